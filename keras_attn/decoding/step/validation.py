"""Comparing a step model with the model it was derived from."""

import contextlib

import keras
import numpy as np

from keras_attn._graph import functional
from keras_attn.decoding.compile import compiled
from keras_attn.decoding.step.model_info import length_limit
from keras_attn.decoding.step.position_wise import POSITION_WISE, first_across_positions
from keras_attn.decoding.step.recurrent import has_step
from keras_attn.decoding.step.vocabulary import vocabulary_sizes

__all__ = ["check_step_model", "continued"]

BATCH, LENGTH = 2, 6


def check_step_model(model, step):
    """Raise where `step` does not reproduce `model`, as far as that can be tried.

    Raises:
        ValueError: names the operation that looks across positions, or the layers that
            may.
    """
    across = first_across_positions(*step._uncached())
    if across is not None:
        raise ValueError(
            "The model cannot be decoded step by step: what "
            f"'{across.operation.name}' gives at one position depends on other "
            "positions, of which a step has none. Received: an operation of type "
            f"{type(across.operation).__name__} over the target's positions"
        )
    inputs = _random_inputs(model, step)
    length = min(inputs[step.target].shape[1], step.max_length)

    def full(inputs):
        structure = functional.input_structure(model)
        inputs = functional.map_tensors(lambda tensor: inputs[tensor.name], structure)
        return model(inputs, training=False)

    expected = _fast(full, model)(inputs)
    expected = keras.ops.convert_to_numpy(expected)[:, :length].astype("float64")
    if not np.isfinite(expected).all():
        raise ValueError(
            "The model's logits must be finite numbers, and are not for random tokens: "
            f"its weights may have diverged. Received: {expected.ravel()[:3]}"
        )
    suspects = ", ".join(_suspects(model, step.target))
    try:
        with _plain_errors():
            found = _run(step, inputs, length)
    except Exception as error:
        hint = f" (layers that may need all positions: {suspects})" if suspects else ""
        raise ValueError(
            f"The model cannot be decoded step by step: {error}{hint}"
        ) from error
    # Half precision, and long sums, move the last digits.
    dtype = keras.backend.standardize_dtype(model.outputs[0].dtype)
    tolerance = {"float32": 1e-3, "float64": 1e-6}.get(dtype, 5e-2)
    scale = max(1.0, float(np.max(np.abs(expected))))
    error = np.max(np.abs(expected - found), axis=(0, 2))
    if not np.all(error <= tolerance * scale):
        position = int(np.argmax(~(error <= tolerance * scale)))
        raise ValueError(
            "The model cannot be decoded step by step: its outputs at a position "
            f"depend on tokens in a way that {suspects or 'some layer'} cannot give "
            "one token at a time (attention to later tokens, pooling or "
            "convolution over positions). Received: a difference of "
            f"{error[position]:.2g} from the full model at position {position}"
        )


def continued(model, step):
    """Which of `step.beside` may be continued later, see `StepModel`.

    Returns:
        A frozenset of names of inputs whose last entry has no part in what is computed
        of the entries before it.
    """
    if not step.beside:
        return frozenset()
    inputs = _random_inputs(model, step)
    encode = _fast(step.encode, step)

    def encoded(inputs):
        """The frontier as it was before the last position."""
        return [
            keras.ops.convert_to_numpy(leaf)[:, : -1 if name in step._aligned else None]
            for name, leaf in encode(inputs).items()
        ]

    before, found = encoded(inputs), set()
    for name in step.beside:
        values = keras.ops.convert_to_numpy(inputs[name]).copy()
        values[:, -1] = values[:, -1] == 0
        values = keras.ops.convert_to_tensor(values, dtype=inputs[name].dtype)
        after = encoded({**inputs, name: values})
        if all(np.array_equal(old, new) for old, new in zip(before, after)):
            found.add(name)
    return frozenset(found)


def _random_inputs(model, step):
    target, length = step.target, min(LENGTH, step.max_length)
    rng = np.random.default_rng(0)
    # Ids must differ, or a mistake may not show: what a layer of a user's own embeds
    # has as many ids, most likely, as there are logits.
    sizes = {target: model.outputs[0].shape[-1], **vocabulary_sizes(model)}
    # No longer than the learned positions of any side.
    room = length_limit(functional.read(model).calls)
    free = min(LENGTH, room or LENGTH)
    inputs = {}
    grown = next(tensor for tensor in model.inputs if tensor.name == target)
    for tensor in model.inputs:
        shape = [BATCH, *(free if axis is None else axis for axis in tensor.shape[1:])]
        if tensor.name == target:
            shape[1] = tensor.shape[1] or length
        elif tensor.name in step.beside:
            shape[1] = tensor.shape[1] or grown.shape[1] or length
        dtype = keras.backend.standardize_dtype(tensor.dtype)
        if dtype == "bool":
            values = rng.random(shape) < 0.7
            values[:, :1] = True
        elif "int" in dtype:
            values = rng.integers(1, max(2, sizes.get(tensor.name, 2)), shape)
        else:
            values = rng.normal(size=shape)
        inputs[tensor.name] = keras.ops.convert_to_tensor(values.astype(dtype))
    return inputs


def _run(step, inputs, length):
    """Logits of the step model: a prompt of two tokens, then one by one."""
    frontier = _fast(step.encode, step)(inputs)
    cache = step.empty_cache(BATCH)
    run = _fast(step.step, step)
    logits, index = [], 0
    for size in [min(2, length)] + [1] * (length - 2):
        tokens = inputs[step.target][:, index : index + size]
        position = keras.ops.convert_to_tensor(index, dtype="int32")
        new, cache = run(tokens, position, frontier, cache)
        logits.append(keras.ops.convert_to_numpy(new).astype("float64"))
        index += size
    return np.concatenate(logits, axis=1)


def _fast(function, model):
    """`function`, compiled on JAX, where one operation at a time takes far longer."""
    if keras.backend.backend() != "jax":
        return function
    encoder = getattr(model, "encoder", None)
    variables = model.variables + (encoder.variables if encoder else [])
    return compiled(function, list({id(v): v for v in variables}.values()))


@contextlib.contextmanager
def _plain_errors():
    """Errors as they were raised, without what Keras writes around them."""
    is_filtering = keras.config.is_traceback_filtering_enabled()
    keras.config.disable_traceback_filtering()
    try:
        yield
    finally:
        if is_filtering:
            keras.config.enable_traceback_filtering()


def _suspects(model, target):
    """Layers between the target and the output that may look across positions."""
    calls = functional.read(model).calls
    tensors = [tensor for tensor in model.inputs if tensor.name == target]
    moving = functional.dependents(calls, tensors)
    names = (
        f"'{call.operation.name}'"
        for call in calls
        if any(id(tensor) in moving for tensor in call.outputs)
        and not has_step(call.operation)
        and isinstance(call.operation, keras.layers.Layer)
        and not isinstance(call.operation, (*POSITION_WISE, keras.layers.Activation))
    )
    return list(dict.fromkeys(names))
