"""Trying single calls of a model: does one look across positions?

The step model as a whole is compared with the full model on a few random tokens, and
these may miss what a call does for others: a count of the tokens 7, say, or a
convolution that reaches far back. So each call is tried by itself, on random values
over many positions, whole and in two halves.
"""

import keras
import numpy as np

from keras_attn._graph import functional
from keras_attn.layers import FeedForward, TokenEmbedding

__all__ = ["POSITION_WISE", "first_across_positions"]

LENGTH = 64

# Layers of Keras that work position by position, whatever their arguments.
POSITION_WISE = (
    keras.layers.Embedding,
    keras.layers.Dense,
    keras.layers.Dropout,
    keras.layers.Identity,
    keras.layers.LayerNormalization,
)
_NOT_TRIED = (*POSITION_WISE, FeedForward, TokenEmbedding)


def first_across_positions(calls, moving, target):
    """The first call whose output at one position depends on another position.

    A call is left out whose tensors have no axis that is the positions' for certain,
    or which does not work on what it is tried with.

    Args:
        calls: pairs of a `functional.Call` that a step replays as it is, and the ids of
            those of its fixed inputs that run beside the target.
        moving: ids of the tensors that depend on the target.
        target: the `keras.KerasTensor` of the target ids.

    Returns:
        A `functional.Call`, or None.
    """
    length = target.shape[1]
    for call, beside in calls:
        by_position = [
            tensor for tensor in call.inputs if id(tensor) in moving | set(beside)
        ]
        if (
            not isinstance(call.operation, _NOT_TRIED)
            and not call.accepts("start_index")
            and all(_has_positions(t, length) for t in (*by_position, *call.outputs))
            and _looks_across(call, set(map(id, by_position)))
        ):
            return call
    return None


def _has_positions(tensor, length):
    """Whether its second axis, and no other one, is as long as the target."""
    shape = tuple(tensor.shape)
    return len(shape) > 1 and shape[1] == length and length not in shape[2:]


def _looks_across(call, by_position):
    values = _values(call, by_position)
    try:
        whole = _outputs(call, values)
        for part in (slice(LENGTH // 2), slice(LENGTH // 2, None)):
            some = [
                value[:, part] if id(tensor) in by_position else value
                for tensor, value in zip(call.inputs, values)
            ]
            for found, expected in zip(_outputs(call, some), whole):
                expected = expected[:, part]
                if not np.allclose(found, expected, 1e-2, 1e-3, equal_nan=True):
                    return True
    except Exception:  # each backend and operation has errors of its own
        return False
    return False


def _outputs(call, values):
    tensors = [
        keras.ops.convert_to_tensor(value, dtype=tensor.dtype)
        for tensor, value in zip(call.inputs, values)
    ]
    outputs = keras.tree.flatten(functional.call_again(call, tensors))
    return [keras.ops.convert_to_numpy(x).astype("float32") for x in outputs]


def _values(call, by_position):
    """Random values for the inputs of a call, the same ones for one tensor."""
    rng = np.random.default_rng(0)
    bound = getattr(call.operation, "input_dim", None)
    bound = bound if isinstance(bound, int) else 5
    made = {}
    for tensor in call.inputs:
        if id(tensor) in made:
            continue
        shape = [2, *(3 if axis is None else axis for axis in tensor.shape[1:])]
        if id(tensor) in by_position:
            shape[1] = LENGTH
        dtype = keras.backend.standardize_dtype(tensor.dtype)
        if dtype == "bool":
            made[id(tensor)] = rng.random(shape) < 0.7
        elif "int" in dtype:
            made[id(tensor)] = rng.integers(0, bound, shape)
        else:
            made[id(tensor)] = rng.normal(size=shape)
    return [made[id(tensor)] for tensor in call.inputs]
