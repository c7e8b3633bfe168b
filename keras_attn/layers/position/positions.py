"""Where the tokens of a call stand."""

from keras import ops

__all__ = ["positions_of"]


def positions_of(inputs, start_index=0, positions=None):
    """Positions of the tokens of `inputs`, `(..., T, D)`, as an int32 tensor.

    Returns:
        `positions` as int32 where given, else `(T,)` counted from `start_index`.
    """
    if positions is not None:
        return ops.cast(positions, "int32")
    return ops.arange(ops.shape(inputs)[-2], dtype="int32") + (
        start_index if isinstance(start_index, int) else ops.cast(start_index, "int32")
    )
