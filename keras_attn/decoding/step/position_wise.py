"""Probes of single calls: whether their outputs depend on other positions.

The step model as a whole is compared with the training model on a few random tokens,
and these may miss the behaviour of a call for other tokens: a count of the tokens 7,
say, or a convolution that reaches far back. So each call is probed by itself, on
random values over many positions, as a whole and in two halves.
"""

from collections.abc import Collection, Iterable
from typing import Any

import keras
import numpy as np

from keras_attn._graph import functional
from keras_attn.layers import FeedForward, TokenEmbedding

__all__ = ["POSITION_WISE", "first_across_positions"]

_LENGTH = 64

# Layers of Keras that work position by position for all arguments.
POSITION_WISE = (
    keras.layers.Embedding,
    keras.layers.Dense,
    keras.layers.Dropout,
    keras.layers.Identity,
    keras.layers.LayerNormalization,
)
_NOT_PROBED = (*POSITION_WISE, FeedForward, TokenEmbedding)


def first_across_positions(
    calls: Iterable[tuple[functional.Call, Collection[int]]],
    dependent: set[int],
    target: keras.KerasTensor,
) -> functional.Call | None:
    """Return the first call whose output at a position depends on other positions.

    A call is skipped if its tensors have no axis that is surely the sequence axis, or
    if it fails on the random values.

    Args:
        calls: tuples of a call that a step replays as it is, and the ids of its inputs
            that are aligned with the target.
        dependent: ids of the tensors that depend on the target.
        target: the target input.

    Returns:
        A `Call`, or None.
    """
    length = target.shape[1]
    for call, aligned in calls:
        by_position = [
            tensor for tensor in call.inputs if id(tensor) in dependent | set(aligned)
        ]
        if (
            not isinstance(call.operation, _NOT_PROBED)
            and not call.accepts("start_index")
            and all(
                _has_sequence_axis(t, length) for t in (*by_position, *call.outputs)
            )
            and _mixes_positions(call, set(map(id, by_position)))
        ):
            return call
    return None


def _has_sequence_axis(tensor: keras.KerasTensor, length: int | None) -> bool:
    """Return whether the second axis, and no later one, has the target's length."""
    shape = tuple(tensor.shape)
    return len(shape) > 1 and shape[1] == length and length not in shape[2:]


def _mixes_positions(call: functional.Call, by_position: set[int]) -> bool:
    values = _random_values(call, by_position)
    try:
        expected = _outputs(call, values)
        for part in (slice(_LENGTH // 2), slice(_LENGTH // 2, None)):
            half = [
                value[:, part] if id(tensor) in by_position else value
                for tensor, value in zip(call.inputs, values)
            ]
            for output, whole in zip(_outputs(call, half), expected):
                whole = whole[:, part]
                if not np.allclose(output, whole, 1e-2, 1e-3, equal_nan=True):
                    return True
    except Exception:  # each backend and operation has its own errors
        return False
    return False


def _outputs(call: functional.Call, values: Iterable[np.ndarray]) -> list[np.ndarray]:
    tensors = [
        keras.ops.convert_to_tensor(value, dtype=tensor.dtype)
        for tensor, value in zip(call.inputs, values)
    ]
    outputs = keras.tree.flatten(functional.replay_call(call, tensors))
    return [keras.ops.convert_to_numpy(x).astype("float32") for x in outputs]


def _random_values(call: functional.Call, by_position: set[int]) -> list[np.ndarray]:
    """Return random inputs of a call, the same ones for the same tensor."""
    rng = np.random.default_rng(0)
    num_ids = getattr(call.operation, "input_dim", None)
    num_ids = num_ids if isinstance(num_ids, int) else 5
    values: dict[int, Any] = {}
    for tensor in call.inputs:
        if id(tensor) in values:
            continue
        shape = [2, *(3 if axis is None else axis for axis in tensor.shape[1:])]
        if id(tensor) in by_position:
            shape[1] = _LENGTH
        dtype = keras.backend.standardize_dtype(tensor.dtype)
        if dtype == "bool":
            values[id(tensor)] = rng.random(shape) < 0.7
        elif "int" in dtype:
            values[id(tensor)] = rng.integers(0, num_ids, shape)
        else:
            values[id(tensor)] = rng.normal(size=shape)
    return [values[id(tensor)] for tensor in call.inputs]
