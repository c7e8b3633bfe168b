"""The positions of the tokens of a call."""

from typing import Any

from keras import ops

from keras_attn._types import Tensor

__all__ = ["token_positions"]


def token_positions(
    inputs: Tensor, start_index: Any = 0, positions: Tensor | None = None
) -> Tensor:
    """Return the positions of the tokens of `inputs`, `(..., T, D)`, as int32.

    Returns:
        `positions` if they are given, otherwise `start_index, start_index + 1, ...` of
        shape `(T,)`.
    """
    if positions is not None:
        return ops.cast(positions, "int32")
    return ops.arange(ops.shape(inputs)[-2], dtype="int32") + (
        start_index if isinstance(start_index, int) else ops.cast(start_index, "int32")
    )
