"""Comparison of a step model with the training model that it is derived from."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
import numpy as np

from keras_attn._graph import functional
from keras_attn._types import Tensor
from keras_attn.decoding.compile import compile_function
from keras_attn.decoding.step.model_info import (
    max_positions,
    padding_ids,
    vocabulary_sizes,
)
from keras_attn.decoding.step.position_wise import (
    POSITION_WISE,
    check_position_wise,
)
from keras_attn.decoding.step.random_weights import random_weights
from keras_attn.decoding.step.recurrent import is_cached

__all__ = ["check_step_model", "extendable_inputs"]

_BATCH_SIZE, _LENGTH = 2, 6


def check_step_model(model: keras.Model, step: Any) -> None:
    """Raise a ValueError if `step` does not reproduce `model`.

    Each call that a step replays as it is must work position by position. Then the
    logits of both models are compared, with random weights. The message names the
    operation whose outputs depend on other positions, or the layers that may be the
    cause.
    """
    graph = step._graph.value
    num_ids: Any = vocabulary_sizes(model).get(step.target, model.outputs[0].shape[-1])
    check_position_wise(
        graph.uncached_calls,
        graph.dependent,
        step._target.value,
        model.outputs[0],
        step.max_length,
        num_ids,
    )
    inputs = _random_inputs(model, step)
    length = min(inputs[step.target].shape[1], step.max_length)

    def full(inputs: Mapping[str, Tensor]) -> Tensor:
        structure = functional.input_structure(model)
        nested = functional.map_tensors(lambda tensor: inputs[tensor.name], structure)
        return model(nested, training=False)

    run = _compile_on_jax(full, model)
    logits = keras.ops.convert_to_numpy(run(inputs))
    if not np.isfinite(logits.astype("float64")).all():
        raise ValueError(
            "The model's logits must be finite for random tokens; its weights may have "
            f"diverged. Received: logits={logits.ravel()[:3]}"
        )
    encoder_variables = step.encoder.variables if step.encoder else []
    suspects = ", ".join(_suspects(model, step.target))
    with random_weights([*model.variables, *step.variables, *encoder_variables]):
        expected = keras.ops.convert_to_numpy(run(inputs))[:, :length]
        expected = expected.astype("float64")
        try:
            with _unfiltered_errors():
                outputs = _run_steps(step, inputs, length)
        except Exception as error:
            hint = f" (layers that may need all positions: {suspects})"
            raise ValueError(
                f"The model cannot be decoded step by step: {error}"
                f"{hint if suspects else ''}"
            ) from error
    _compare(model, expected, outputs, suspects)


def _compare(
    model: keras.Model, expected: np.ndarray, outputs: np.ndarray, suspects: str
) -> None:
    """Raise a ValueError if the logits of the step model differ from the expected."""
    # Half precision, and long sums, change the last digits.
    dtype = keras.backend.standardize_dtype(model.outputs[0].dtype)
    tolerance = {"float32": 1e-3, "float64": 1e-6}.get(dtype, 5e-2)
    scale = max(1e-3, float(np.max(np.abs(expected))))
    error = np.max(np.abs(expected - outputs), axis=(0, 2))
    if not np.all(error <= tolerance * scale):
        position = int(np.argmax(~(error <= tolerance * scale)))
        raise ValueError(
            "The model cannot be decoded step by step: its outputs at a position "
            f"depend on tokens in a way that {suspects or 'some layer'} cannot compute "
            "one token at a time (attention to later tokens, pooling or "
            "convolution over positions). Received: a difference of "
            f"{error[position]:.2g} from the full model at position {position}"
        )


def extendable_inputs(model: keras.Model, step: Any) -> frozenset[str]:
    """Return the names of the aligned inputs that may be extended later.

    Their last entry has no effect on the positions before it; see `StepModel`.
    """
    if not step.aligned_inputs:
        return frozenset()
    inputs = _random_inputs(model, step)
    encode = _compile_on_jax(step.encode, step)
    aligned = step._graph.value.aligned

    def before_last(inputs: Mapping[str, Tensor]) -> list[np.ndarray]:
        """Return the frontier without the last position of aligned tensors."""
        return [
            keras.ops.convert_to_numpy(leaf)[:, : -1 if name in aligned else None]
            for name, leaf in encode(inputs).items()
        ]

    expected, names = before_last(inputs), set()
    for name in step.aligned_inputs:
        values = keras.ops.convert_to_numpy(inputs[name]).copy()
        values[:, -1] = values[:, -1] == 0
        values = keras.ops.convert_to_tensor(values, dtype=inputs[name].dtype)
        outputs = before_last({**inputs, name: values})
        if all(np.array_equal(old, new) for old, new in zip(expected, outputs)):
            names.add(name)
    return frozenset(names)


def _random_inputs(model: keras.Model, step: Any) -> dict[str, Tensor]:
    target, length = step.target, min(_LENGTH, step.max_length)
    rng = np.random.default_rng(0)
    # Ids must differ, or an error may not show. A custom embedding most likely has one
    # id per logit.
    sizes = {target: model.outputs[0].shape[-1], **vocabulary_sizes(model)}
    padding = padding_ids(model)
    # Not longer than the learned positions of the source or the target.
    limit = max_positions(functional.read_graph(model).calls)
    free_length = min(_LENGTH, limit or _LENGTH)
    inputs = {}
    target_input = next(tensor for tensor in model.inputs if tensor.name == target)
    for tensor in model.inputs:
        shape = [
            _BATCH_SIZE,
            *(free_length if axis is None else axis for axis in tensor.shape[1:]),
        ]
        if tensor.name == target:
            shape[1] = tensor.shape[1] or length
        elif tensor.name in step.aligned_inputs:
            shape[1] = tensor.shape[1] or target_input.shape[1] or length
        dtype = keras.backend.standardize_dtype(tensor.dtype)
        values: Any
        if dtype == "bool":
            values = rng.random(shape) < 0.7
            values[:, :1] = True
        elif "int" in dtype:
            values = rng.integers(1, max(2, sizes.get(tensor.name, 2)), shape)
        else:
            values = rng.normal(size=shape)
        if tensor.name in padding and values.shape[1] > 3:
            values[1, 3] = padding[tensor.name]  # Padding inside a sequence.
        inputs[tensor.name] = keras.ops.convert_to_tensor(values.astype(dtype))
    return inputs


def _run_steps(step: Any, inputs: Mapping[str, Tensor], length: int) -> np.ndarray:
    """Return the logits of the step model: a prompt of two tokens, then one by one."""
    frontier = _compile_on_jax(step.encode, step)(inputs)
    cache = step.empty_cache(_BATCH_SIZE)
    run = _compile_on_jax(step.step, step)
    logits, index = [], 0
    for size in [min(2, length)] + [1] * (length - 2):
        tokens = inputs[step.target][:, index : index + size]
        position = keras.ops.convert_to_tensor(index, dtype="int32")
        new, cache = run(tokens, position, frontier, cache)
        logits.append(keras.ops.convert_to_numpy(new).astype("float64"))
        index += size
    return np.concatenate(logits, axis=1)


def _compile_on_jax(function: Callable[..., Any], model: Any) -> Callable[..., Any]:
    """Return `function`, compiled on JAX, where single operations take far longer."""
    if keras.backend.backend() != "jax":
        return function
    encoder = getattr(model, "encoder", None)
    variables = model.variables + (encoder.variables if encoder else [])
    return compile_function(function, list({id(v): v for v in variables}.values()))


@contextlib.contextmanager
def _unfiltered_errors() -> Iterator[None]:
    """Raise errors as they are, without the text that Keras adds."""
    is_filtering = keras.config.is_traceback_filtering_enabled()
    keras.config.disable_traceback_filtering()
    try:
        yield
    finally:
        if is_filtering:
            keras.config.enable_traceback_filtering()


def _suspects(model: keras.Model, target: str) -> list[str]:
    """Return the layers between target and logits that may mix positions."""
    calls = functional.read_graph(model).calls
    tensors = [tensor for tensor in model.inputs if tensor.name == target]
    dependent = functional.descendants(calls, tensors)
    names = (
        f"'{call.operation.name}'"
        for call in calls
        if any(id(tensor) in dependent for tensor in call.outputs)
        and not is_cached(call.operation)
        and isinstance(call.operation, keras.layers.Layer)
        and not isinstance(call.operation, (*POSITION_WISE, keras.layers.Activation))
    )
    return list(dict.fromkeys(names))
