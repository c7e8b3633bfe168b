"""Checks that the calls that a step replays as they are work position by position.

A step model applies them to single tokens, so that their output at a position must not
depend on other positions. A call is accepted for one of three reasons: its layer is
known to be position-wise, its layer declares it (`position_wise = True`), or a probe
has found the output for single positions equal to that for whole sequences. Calls whose
tensors have no recognizable sequence axis (after a transpose, say) are probed together
with the calls around them. All others are refused by name.

Probes use random values for all weights, so that the result does not depend on the
current weights (a gate of zero would hide a dependence), and every token id for calls
that read ids.
"""

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_attn._graph import functional
from keras_attn._types import Tensor
from keras_attn.decoding.step.random_weights import random_weights
from keras_attn.layers import FeedForward, TokenEmbedding

__all__ = ["POSITION_WISE", "check_position_wise"]

# Layers that work position by position for all arguments that are checked below.
POSITION_WISE = (
    keras.layers.Embedding,
    keras.layers.Dense,
    keras.layers.Dropout,
    keras.layers.Identity,
    keras.layers.LayerNormalization,
    keras.layers.RMSNormalization,
    FeedForward,
    TokenEmbedding,
)
# Layers that combine positions for all arguments. They are refused without a probe.
_MIXES_POSITIONS = (
    keras.layers.AveragePooling1D,
    keras.layers.MaxPooling1D,
    keras.layers.GlobalAveragePooling1D,
    keras.layers.GlobalMaxPooling1D,
    keras.layers.Bidirectional,
)
_KERAS_ATTENTION = (
    keras.layers.MultiHeadAttention,
    keras.layers.GroupQueryAttention,
)
_CONVOLUTIONS = (
    keras.layers.Conv1D,
    keras.layers.Conv1DTranspose,
    keras.layers.DepthwiseConv1D,
    keras.layers.SeparableConv1D,
)
_MIN_LENGTH, _MAX_LENGTH = 64, 1024
_ROWS = 2048  # token ids per call
# Standard deviations of random inputs: a layer may combine positions only where its
# inputs are large or small.
_SCALES = (1.0, 1e2, 1e-2, 1e4)


@dataclasses.dataclass(frozen=True, eq=False)
class _Segment:
    """Calls that are probed together.

    Attributes:
        calls: in the order of the graph.
        by_position: the inputs that are read position by position.
        fixed: the other inputs.
        outputs: the outputs that calls outside the segment read.
    """

    calls: list[functional.Call]
    by_position: list[keras.KerasTensor]
    fixed: list[keras.KerasTensor]
    outputs: list[keras.KerasTensor]


def check_position_wise(
    calls: Sequence[tuple[functional.Call, Collection[int]]],
    dependent: set[int],
    target: keras.KerasTensor,
    logits: keras.KerasTensor,
    max_length: int,
    num_ids: int,
) -> None:
    """Raise a ValueError if a call does not work position by position.

    Args:
        calls: tuples of a call that a step replays as it is, and the ids of its inputs
            that are aligned with the target.
        dependent: ids of the tensors that depend on the target.
        target: the target input.
        logits: the output of the model.
        max_length: int, the largest number of positions.
        num_ids: int, number of token ids of the target.
    """
    by_position = dependent | {i for _, aligned in calls for i in aligned}
    unknown = [call for call, _ in calls if not _is_known(call)]
    segments = _segments(unknown, calls, by_position, target, logits)
    for segment in segments:
        _probe(segment, target, max_length, num_ids)


def _is_known(call: functional.Call) -> bool:
    """Return whether a call needs no probe; raise an error if it mixes positions."""
    layer: Any = call.operation
    if getattr(layer, "position_wise", False) is True:
        return True
    if isinstance(layer, _MIXES_POSITIONS):
        raise _error(call)
    is_convolution = isinstance(layer, _CONVOLUTIONS)
    if is_convolution and max(*layer.kernel_size, *layer.strides) > 1:
        raise _error(call)
    if not isinstance(layer, POSITION_WISE):
        return False
    if isinstance(
        layer, (keras.layers.LayerNormalization, keras.layers.RMSNormalization)
    ):
        # Over the last axis of `(B, T, ...)`. Keras stores an int or a list.
        rank = len(call.outputs[0].shape)
        if (np.ravel(layer.axis) % rank < 2).any():
            return False
    if isinstance(layer, keras.layers.Dense) and len(call.outputs[0].shape) < 3:
        return False
    # A subclass may override `call`.
    return any(type(layer).call is known.call for known in POSITION_WISE)


def _error(call: functional.Call, reason: str = "") -> ValueError:
    operation: Any = call.operation
    return ValueError(
        "The model cannot be decoded step by step: the output of "
        f"'{operation.name}' at one position depends, or may depend, on other "
        f"positions{reason}. {_advice(operation)} "
        f"Received: operation={operation.name!r} of type {type(operation).__name__}"
    )


def _advice(operation: Any) -> str:
    """Return the advice for an operation that is refused."""
    if isinstance(operation, _KERAS_ATTENTION):
        return (
            "Use the layer of keras_attn that `checkpoints.from_keras_layer` makes of "
            "it, which has a cache."
        )
    if isinstance(operation, (*_MIXES_POSITIONS, *_CONVOLUTIONS)):
        return (
            "Use attention or a recurrent layer for it, or a layer of your own that "
            "keeps earlier positions in a cache (`decoding.CachedLayer`)."
        )
    return (
        "If it is a layer of your own: set its attribute `position_wise = True` if it "
        "does work position by position, or implement `decoding.CachedLayer`."
    )


def _segments(
    unknown: Sequence[functional.Call],
    calls: Sequence[tuple[functional.Call, Collection[int]]],
    by_position: set[int],
    target: keras.KerasTensor,
    logits: keras.KerasTensor,
) -> Iterator[_Segment]:
    """Yield the groups of calls that must be probed together.

    Two calls belong together if a tensor between them has no recognizable sequence
    axis.
    """
    length = target.shape[1]
    produced = {id(t): call for call, _ in calls for t in call.outputs}
    groups: dict[int, list[functional.Call]] = {}
    group_of: dict[functional.Call, int] = {}

    def join(call: functional.Call, other: functional.Call) -> None:
        a, b = group_of[call], group_of[other]
        if a != b:
            groups[a] += groups.pop(b)
            group_of.update(dict.fromkeys(groups[a], a))

    pending = list(unknown)
    for call in pending:
        groups[len(group_of)] = [call]
        group_of[call] = len(group_of)
    consumers: dict[int, list[functional.Call]] = {}
    for call, _ in calls:
        for tensor in call.inputs:
            consumers.setdefault(id(tensor), []).append(call)
    while pending:
        call = pending.pop()
        tensors = [t for t in (*call.inputs, *call.outputs) if id(t) in by_position]
        for tensor in tensors:
            if _has_sequence_axis(tensor, length):
                continue
            neighbours = [*consumers.get(id(tensor), ())]
            neighbours += [produced[id(tensor)]] if id(tensor) in produced else []
            for other in neighbours:
                if other not in group_of:
                    group_of[other] = len(group_of) + len(calls)
                    groups[group_of[other]] = [other]
                    pending.append(other)
                join(call, other)
    order = {call: i for i, (call, _) in enumerate(calls)}
    for group in groups.values():
        yield _segment(
            sorted(group, key=order.__getitem__), by_position, consumers, logits
        )


def _segment(
    group: list[functional.Call],
    by_position: set[int],
    consumers: Mapping[int, list[functional.Call]],
    logits: keras.KerasTensor,
) -> _Segment:
    inside = {id(tensor) for call in group for tensor in call.outputs}
    inputs = {id(t): t for call in group for t in call.inputs if id(t) not in inside}
    outputs = {
        id(tensor): tensor
        for call in group
        for tensor in call.outputs
        if tensor is logits
        or any(other not in group for other in consumers.get(id(tensor), ()))
        or id(tensor) not in consumers
    }
    return _Segment(
        group,
        [t for t in inputs.values() if id(t) in by_position],
        [t for t in inputs.values() if id(t) not in by_position],
        list(outputs.values()),
    )


def _has_sequence_axis(tensor: keras.KerasTensor, length: int | None) -> bool:
    """Return whether the second axis, and no later one, has the target's length."""
    shape = tuple(tensor.shape)
    return len(shape) > 1 and shape[1] == length and length not in shape[2:]


def _probe(
    segment: _Segment, target: keras.KerasTensor, max_length: int, num_ids: int
) -> None:
    """Raise a ValueError if a segment does not work position by position."""
    call = segment.calls[0] if len(segment.calls) == 1 else _suspect(segment)
    length = target.shape[1]
    if length is None:
        length = min(max(_MIN_LENGTH, max_length), _MAX_LENGTH)
        limit = functional.min_attribute(
            segment.calls, "sequence_length", unless="positions"
        )
        length = min(length, limit or length)
    layers = [c.operation for c in segment.calls]
    variables = [v for layer in layers for v in getattr(layer, "variables", ())]
    try:
        with random_weights(variables):
            is_position_wise = all(
                _is_position_wise(segment, length, num_ids, scale)
                for scale in _scales(segment)
            ) and _ids_are_independent(segment, length, num_ids)
    except Exception as error:  # each backend and operation has its own errors
        raise _error(call, f" (it fails for single positions: {error})") from error
    if not is_position_wise:
        raise _error(call)


def _suspect(segment: _Segment) -> functional.Call:
    """Return the call to name: the first layer, or else the first operation."""
    rearranging = ("transpose", "permute", "reshape", "getitem", "expand", "squeeze")
    for call in segment.calls:
        if not any(word in call.operation.name.lower() for word in rearranging):
            return call
    return segment.calls[0]


def _scales(segment: _Segment) -> tuple[float, ...]:
    """Return the scales of random inputs: 1 only, unless all inputs are float32."""
    dtypes = {
        keras.backend.standardize_dtype(tensor.dtype) for tensor in segment.by_position
    }
    # Large values of half precision differ by more than the tolerance.
    return _SCALES if dtypes <= {"float32", "float64"} else _SCALES[:1]


def _is_position_wise(
    segment: _Segment, length: int, num_ids: int, scale: float
) -> bool:
    """Return whether outputs for single positions equal those for whole sequences."""
    values = _random_values(segment, length, num_ids, scale=scale)
    whole = _outputs(segment, values)
    positions = {0, 1 % length, length // 2, length - 1}
    for position in sorted(positions) if scale == 1 else [0, length - 1]:
        part = slice(position, position + 1)
        single = _outputs(segment, _take(segment, values, part), position)
        if not _equal(single, [output[:, part] for output in whole]):
            return False
    return True


def _ids_are_independent(segment: _Segment, length: int, num_ids: int) -> bool:
    """Return whether no token id affects other positions, for inputs of ids."""
    ids = [t for t in segment.by_position if "int" in str(t.dtype)]
    if not ids:
        return True
    length = min(length, 4)
    if segment.by_position[0].shape[1] is not None:
        length = segment.by_position[0].shape[1]
    base = _random_values(segment, length, num_ids, batch_size=1)
    position = 1 % length
    others = [i for i in range(length) if i != position]
    expected = _outputs(segment, base)
    for start in range(0, num_ids, _ROWS):
        new = np.arange(start, min(start + _ROWS, num_ids))
        rows = {key: np.repeat(x, len(new), axis=0) for key, x in base.items()}
        for tensor in ids:
            rows[id(tensor)][:, position] = new.reshape(
                -1, *[1] * (rows[id(tensor)].ndim - 2)
            )
        outputs = _outputs(segment, rows)
        same = [np.repeat(x[:, others], len(new), axis=0) for x in expected]
        if not _equal([output[:, others] for output in outputs], same):
            return False
        part = slice(position, position + 1)
        single = _outputs(segment, _take(segment, rows, part), position)
        if not _equal(single, [output[:, part] for output in outputs]):
            return False
    return True


def _equal(found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> bool:
    """Return whether arrays are equal, up to errors of rounding."""
    return all(
        a.shape == b.shape
        and np.allclose(a, b, 1e-2, 1e-3 * min(1.0, _magnitude(b)), equal_nan=True)
        for a, b in zip(found, expected)
    )


def _magnitude(array: np.ndarray) -> float:
    """Return the largest finite absolute value, or 1 if there is none but 0."""
    return float(np.abs(array[np.isfinite(array)]).max(initial=0.0)) or 1.0


def _take(
    segment: _Segment, values: Mapping[int, np.ndarray], part: slice
) -> dict[int, np.ndarray]:
    """Return the values with the inputs that are read by position cut to `part`."""
    cut = {id(t): values[id(t)][:, part] for t in segment.by_position}
    return {**values, **cut}


def _outputs(
    segment: _Segment, values: Mapping[int, np.ndarray], start_index: int = 0
) -> list[np.ndarray]:
    """Return the outputs of a segment for values of its inputs.

    Args:
        segment: the segment.
        values: NumPy arrays by `id(tensor)`.
        start_index: int, position of the first token.
    """
    tensors: dict[int, Tensor] = {
        id(tensor): keras.ops.convert_to_tensor(values[id(tensor)], dtype=tensor.dtype)
        for tensor in (*segment.by_position, *segment.fixed)
    }
    for call in segment.calls:
        args, kwargs = functional.substitute_tensors(tensors, call.args, call.kwargs)
        if call.accepts("start_index"):
            kwargs["start_index"] = start_index + call.arguments().get("start_index", 0)
        outputs = keras.tree.flatten(call.operation(*args, **kwargs))
        tensors.update(zip(map(id, call.outputs), outputs))
    return [
        keras.ops.convert_to_numpy(tensors[id(tensor)]).astype("float32")
        for tensor in segment.outputs
    ]


def _random_values(
    segment: _Segment,
    length: int,
    num_ids: int,
    batch_size: int = 2,
    scale: float = 1.0,
) -> dict[int, np.ndarray]:
    """Return random inputs of a segment, by `id(tensor)`.

    Floats are normal with a standard deviation of `scale`.
    """
    rng = np.random.default_rng(0)
    by_position = {id(tensor) for tensor in segment.by_position}
    values: dict[int, np.ndarray] = {}
    for tensor in (*segment.by_position, *segment.fixed):
        shape = [
            batch_size,
            *(3 if axis is None else axis for axis in tensor.shape[1:]),
        ]
        if id(tensor) in by_position:
            shape[1] = length
        dtype = keras.backend.standardize_dtype(tensor.dtype)
        if dtype == "bool":
            values[id(tensor)] = rng.random(shape) < 0.7
        elif "int" in dtype:
            sizes = [
                size
                for call in segment.calls
                if any(t is tensor for t in call.inputs)
                and isinstance(size := getattr(call.operation, "input_dim", None), int)
            ]
            values[id(tensor)] = rng.integers(0, min([num_ids, *sizes]), shape)
        else:
            values[id(tensor)] = scale * rng.normal(size=shape)
    return values
