"""Generation: the loop around a step model and a strategy."""

import weakref

from keras import ops

from keras_attn import graph
from keras_attn.decoding.compiled import compiled
from keras_attn.decoding.greedy_search import GreedySearch
from keras_attn.decoding.step_model import find_target, step_model
from keras_attn.decoding.validation import vocabulary_sizes
from keras_attn.layers.arguments import positive_int
from keras_attn.ops.values import check_ids

__all__ = ["decoding_loop", "generate"]

# model -> {arguments: compiled loop}; an entry goes when its model goes.
_LOOPS = weakref.WeakKeyDictionary()


def generate(
    model,
    inputs,
    start_token_id=None,
    end_token_id=None,
    max_length=128,
    strategy=None,
    target=None,
    jit_compile=False,
):
    """Generates token sequences with a training model, step by step with a cache.

    One compiled loop, which ends when every row has ended. The step model is derived
    from `model` on the first call and kept; weights are always the current ones.

    Args:
        model: a Functional model as `step_model` takes it.
        inputs: dict of the model's inputs, int `(B, S)` ids and the like. Where the
            target is among them, `(B, P)` with P >= 1 and no padding, it is the
            prompt, and `start_token_id` is not needed.
        start_token_id: int, the token that stands before the first generated one.
        end_token_id: int, the token that ends a row.
        max_length: int L, how many tokens are generated at most.
        strategy: how tokens are chosen. Default: `GreedySearch()`.
        target: name of the input that grows, see `step_model`.
        jit_compile: bool, whether TensorFlow compiles the loop with XLA: faster per
            step, but each new shape of the inputs is compiled anew.

    Returns:
        A dict of tensors, R = 1 hypothesis a row: `"token_ids"` int32 `(B, R, L)`,
        the generated tokens up to and with the first end token, then zeros;
        `"scores"` float32 `(B, R)`, their summed log-probability; `"lengths"` int32
        `(B, R)`, their number.

    Raises:
        ValueError: for missing or unknown inputs, ids outside a vocabulary, a model
            that cannot be stepped.

    Example:
        >>> found = generate(model, {"source": ids}, start_token_id=2, end_token_id=3)
        >>> found["token_ids"].shape
        (4, 1, 128)
    """
    graph.check_functional(model)
    strategy = GreedySearch() if strategy is None else strategy
    if end_token_id is None:
        raise ValueError("`end_token_id` must be an int. Received: end_token_id=None")
    max_length = positive_int("max_length", max_length)
    prompt_name = find_target(model, target).name
    inputs = _tensors(model, inputs, prompt_name)
    prompt = inputs.get(prompt_name)
    prompt_length = 1 if prompt is None else int(prompt.shape[1])
    if prompt is None and start_token_id is None:
        raise ValueError(
            "Give `start_token_id`, or a prompt as the input "
            f"'{prompt_name}'. Received: start_token_id=None"
        )
    bound = vocabulary_sizes(model).get(prompt_name)
    if prompt is None:
        check_ids(start_token_id, bound, "`start_token_id`", "start_token_id")
    bound = model.outputs[0].shape[-1]
    check_ids(end_token_id, bound, "`end_token_id`", "end_token_id")
    key = (start_token_id, end_token_id, max_length, strategy, target, jit_compile)
    key = (*key, prompt_length, frozenset(inputs))
    loops = _LOOPS.setdefault(model, {})
    if key not in loops:
        step = step_model(model, prompt_length + max_length - 1, target)
        loop = decoding_loop(step, start_token_id, end_token_id, max_length, strategy)
        loops[key] = compiled(loop, model.variables, jit_compile)
    return loops[key](inputs)


def decoding_loop(step, start_token_id, end_token_id, max_length, strategy):
    """The loop as a pure function from a dict of inputs to a dict of results.

    Args:
        step: a `StepModel` with room for the prompt and `max_length - 1` tokens.
        start_token_id, end_token_id, max_length, strategy: see `generate`.
    """

    def loop(inputs):
        prompt = inputs.get(step.target)
        if prompt is None:
            batch_size = ops.shape(next(iter(inputs.values())))[0]
            prompt = ops.full((batch_size, 1), start_token_id, dtype="int32")
        batch_size, prompt_length = ops.shape(prompt)
        frontier = step.encode(inputs)
        start = ops.convert_to_tensor(0, dtype="int32")
        logits, cache = step.step(prompt, start, frontier, step.empty_cache(batch_size))
        state = strategy.start(batch_size, max_length)
        state, tokens = strategy.advance(state, logits[:, -1], start, end_token_id)

        def unfinished(count, tokens, cache, state):
            return ops.logical_and(
                count < max_length, ops.logical_not(ops.all(state["finished"]))
            )

        def body(count, tokens, cache, state):
            position = count + (prompt_length - 1)
            logits, cache = step.step(tokens, position, frontier, cache)
            state, tokens = strategy.advance(state, logits[:, -1], count, end_token_id)
            return count + 1, tokens, cache, state

        *_, state = ops.while_loop(unfinished, body, (start + 1, tokens, cache, state))
        return strategy.results(state)

    return loop


def _tensors(model, inputs, target):
    """`inputs` as a dict of tensors, after a look at names and ids."""
    names = [tensor.name for tensor in model.inputs]
    if not isinstance(inputs, dict):
        inputs = {names[0]: inputs}
    unknown = sorted(set(inputs) - set(names))
    if unknown or not inputs:
        raise ValueError(
            f"`inputs` must be a dict with some of the keys {sorted(names)}. "
            f"Received: inputs with keys {sorted(inputs)}"
        )
    missing = sorted(set(names) - {target} - set(inputs))
    if missing:
        raise ValueError(
            f"`inputs` must hold the model's inputs {missing} as well. "
            f"Received: inputs with keys {sorted(inputs)}"
        )
    sizes = vocabulary_sizes(model)
    tensors = {}
    for tensor in model.inputs:
        if tensor.name not in inputs:
            continue
        values = ops.convert_to_tensor(inputs[tensor.name], dtype=tensor.dtype)
        if len(values.shape) != len(tensor.shape):
            raise ValueError(
                f"Input '{tensor.name}' must be of shape {tuple(tensor.shape)}. "
                f"Received: shape={tuple(values.shape)}"
            )
        if tensor.name in sizes:
            ids = ops.convert_to_numpy(values)
            what = f"Token ids of input '{tensor.name}'"
            check_ids(ids, sizes[tensor.name], what)
        tensors[tensor.name] = values
    return tensors
