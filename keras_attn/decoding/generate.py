"""Generation: tokens from a training model, by any strategy."""

import weakref

import numpy as np
from keras import ops

from keras_attn import graph
from keras_attn.decoding.compiled import compiled, uses_xla
from keras_attn.decoding.constraints import Constraints
from keras_attn.decoding.greedy_search import GreedySearch
from keras_attn.decoding.loop import decoding_loop
from keras_attn.decoding.step_model import find_target, step_model
from keras_attn.decoding.strategy import Strategy
from keras_attn.decoding.validation import vocabulary_sizes
from keras_attn.layers.arguments import positive_int
from keras_attn.ops.values import check_ids

__all__ = ["generate"]

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
    jit_compile="auto",
    *,
    prefix=None,
    min_length=0,
    banned_token_ids=(),
):
    """Generates token sequences with a training model, step by step with a cache.

    One compiled loop, which ends when every row has ended. The step model is derived
    from `model` on the first call and kept; weights are always the current ones.

    Args:
        model: a Functional model as `step_model` takes it.
        inputs: dict of the model's inputs, int `(B, S)` ids and the like. Where the
            target is among them, `(B, P)` with P >= 1, it is the prompt, and
            `start_token_id` is not needed. Shorter prompts are padded with 0 at the
            end.
        start_token_id: int, the token that stands before the first generated one.
        end_token_id: int, the token that ends a row; or several of them; or None,
            and all rows get `max_length` tokens.
        max_length: int L, how many tokens are generated at most.
        strategy: how tokens are chosen: `GreedySearch()` (default), `BeamSearch()`,
            `Sampling()`.
        target: name of the input that grows, see `step_model`.
        jit_compile: bool, whether TensorFlow compiles the loop with XLA: two to three
            times faster a step, but each new shape of the inputs is compiled anew, for
            some seconds. `"auto"` does so for a model where that pays: parameters times
            `max_length` of 100 million and more.
        prefix: int `(F,)` or `(B, F)`, tokens that every row begins with; shorter
            ones are padded with 0 at the end. They are among the generated ones.
        min_length: int, how many tokens a row has at least, its end token among them.
        banned_token_ids: ints, tokens that are never generated.

    Returns:
        A dict of tensors, R hypotheses a row (one, unless the strategy gives more),
        the best first: `"token_ids"` int32 `(B, R, L)`, the generated tokens up to
        and with the first end token, then zeros; `"scores"` float32 `(B, R)`, as the
        strategy says; `"lengths"` int32 `(B, R)`, their number. A row that never ends
        is cut: its length is L.

    Raises:
        ValueError: for missing or unknown inputs, ids outside a vocabulary, a model
            that cannot be stepped.

    Example:
        >>> found = generate(model, {"source": ids}, start_token_id=2, end_token_id=3,
        ...                  strategy=BeamSearch(num_beams=4))
        >>> found["token_ids"].shape
        (4, 1, 128)
    """
    graph.check_functional(model)
    strategy = GreedySearch() if strategy is None else strategy
    if not isinstance(strategy, Strategy):
        raise ValueError(
            "`strategy` must be one of `keras_attn.decoding`'s, such as "
            f"`GreedySearch()`. Received: strategy={strategy!r}"
        )
    max_length = positive_int("max_length", max_length)
    prompt_name = find_target(model, target).name
    constraints = _constraints(model, end_token_id, min_length, banned_token_ids)
    jit_compile = uses_xla(jit_compile, model, max_length)
    loops = _loops(model)
    inputs = _tensors(model, inputs, prompt_name, loops.sizes)
    prefill = room = 1
    if prompt_name in inputs:
        room = int(inputs[prompt_name].shape[1])
        prefill = _shortest_prompt(inputs[prompt_name], prompt_name)
    elif start_token_id is None:
        raise ValueError(
            "Give `start_token_id`, or a prompt as the input "
            f"'{prompt_name}'. Received: start_token_id=None"
        )
    else:
        bound = loops.sizes.get(prompt_name)
        check_ids(start_token_id, bound, "`start_token_id`", "start_token_id")
        start_token_id = int(start_token_id)
    rows = int(next(iter(inputs.values())).shape[0])
    prefix = _prefix(model, prefix, rows)
    key = (start_token_id, constraints, max_length, strategy, target, jit_compile)
    key = (*key, room, prefill, frozenset(inputs))
    if key not in loops:
        step = step_model(model, room + max_length - 1, target)
        loop = decoding_loop(
            step,
            strategy,
            constraints,
            start_token_id,
            max_length,
            prefill,
            transpose_kernels=jit_compile,
        )
        loops[key] = compiled(loop, model.variables, jit_compile)
    return loops[key](inputs, prefix, strategy.draw(rows, max_length))


class _Loops(dict):
    """Compiled loops by their arguments, of a model with its variables of now."""

    def __init__(self, model):
        super().__init__()
        self.variables = model.variables
        # Read once: to read a model with others in it calls their layers anew.
        self.sizes = vocabulary_sizes(model)


def _loops(model):
    """The loops compiled for a model as it is now.

    `enable_lora` and `quantize` give layers other variables: what was traced before
    would go on with the old ones.
    """
    loops = _LOOPS.get(model)
    if loops is None or [*map(id, loops.variables)] != [*map(id, model.variables)]:
        loops = _LOOPS[model] = _Loops(model)
    return loops


def _constraints(model, end_token_id, min_length, banned_token_ids):
    if end_token_id is None:
        end_token_id = ()
    bound = model.outputs[0].shape[-1]
    end_token_ids, banned_token_ids = np.ravel(end_token_id), np.ravel(banned_token_ids)
    check_ids(end_token_ids, bound, "`end_token_id`", "end_token_id")
    check_ids(banned_token_ids, bound, "`banned_token_ids`", "banned_token_id")
    end_token_ids = tuple(end_token_ids.astype(int).tolist())
    banned_token_ids = tuple(sorted(set(banned_token_ids.astype(int).tolist())))
    if min_length < 0:
        raise ValueError(f"`min_length` must be an int >= 0. Received: {min_length=}")
    return Constraints(end_token_ids, int(min_length), banned_token_ids)


def _shortest_prompt(prompt, name):
    """Length of the shortest prompt, padding not counted."""
    if prompt.shape[1] == 0:
        raise ValueError(
            f"A prompt has a token at least. Received: shape={tuple(prompt.shape)}"
        )
    is_token = ops.convert_to_numpy(prompt)[:, 1:] != 0
    if (np.diff(is_token.astype(int)) > 0).any():
        raise ValueError(
            f"A prompt has padding (0) at its end only. Received: {name}={prompt}"
        )
    return 1 + int(is_token.sum(axis=1).min(initial=is_token.shape[1]))


def _prefix(model, prefix, rows):
    if prefix is None:
        return None
    values = np.asarray(prefix)
    if values.ndim == 1:
        values = np.broadcast_to(values, (rows, len(values)))
    if values.ndim != 2 or values.shape[0] != rows or not values.shape[1]:
        raise ValueError(
            f"`prefix` must be ints of shape (F,) or ({rows}, F). "
            f"Received: shape={np.shape(prefix)}"
        )
    check_ids(values, model.outputs[0].shape[-1], "Token ids of `prefix`")
    return ops.convert_to_tensor(values, dtype="int32")


def _tensors(model, inputs, target, sizes):
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
    tensors = {}
    for tensor in model.inputs:
        if tensor.name not in inputs:
            continue
        values = inputs[tensor.name]
        if values is None:
            raise ValueError(f"Input '{tensor.name}' is missing. Received: None")
        if hasattr(values, "to_tensor"):  # ragged, as tokenizers give
            values = values.to_tensor()
        if not hasattr(values, "dtype"):
            values = np.asarray(values)
        dtype = str(getattr(values.dtype, "name", values.dtype))
        is_number = any(kind in dtype for kind in ("int", "float", "bool"))
        if not is_number or ("float" in dtype and "int" in tensor.dtype):
            raise ValueError(
                f"Input '{tensor.name}' must be of dtype {tensor.dtype}. "
                f"Received: dtype={dtype}"
            )
        if len(values.shape) != len(tensor.shape):
            raise ValueError(
                f"Input '{tensor.name}' must be of shape {tuple(tensor.shape)}. "
                f"Received: shape={tuple(values.shape)}"
            )
        if tensor.name in sizes:  # before a cast can make other ids of them
            ids = ops.convert_to_numpy(values)
            what = f"Token ids of input '{tensor.name}'"
            check_ids(ids, sizes[tensor.name], what)
        tensors[tensor.name] = ops.convert_to_tensor(values, dtype=tensor.dtype)
    rows = {name: int(tensor.shape[0]) for name, tensor in tensors.items()}
    if len(set(rows.values())) > 1:
        raise ValueError(f"All inputs must have as many rows. Received: rows={rows}")
    return tensors
