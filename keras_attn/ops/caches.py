"""Writing into the fixed-size buffers that decoding keeps."""

from keras import ops

__all__ = ["put", "write"]


def write(buffer, new, index):
    """`buffer` with `new` in the place of positions `index, index + 1, ...`.

    By selection, not by a scatter: it reads and writes the buffer once, as the
    attention that follows does, and stays within the core operations of every
    backend.

    Args:
        buffer: `(B, L, ...)`.
        new: `(B, T, ...)` of the same dtype, T <= L.
        index: int32 scalar, position of the first new entry.

    Returns:
        A tensor like `buffer`.
    """
    place = ops.arange(buffer.shape[1], dtype="int32") - index
    length = ops.shape(new)[1]
    is_new = ops.logical_and(place >= 0, place < length)
    if new.shape[1] != 1:
        new = ops.take(new, ops.clip(place, 0, length - 1), axis=1)
    is_new = ops.reshape(is_new, (1, -1) + (1,) * (len(buffer.shape) - 2))
    return ops.where(is_new, new, buffer)


def put(buffer, new, index):
    """`buffer` with one new entry a row, each at a position of its own.

    Args:
        buffer: `(B, L)`.
        new: `(B,)` of the same dtype.
        index: int32 `(B,)`.

    Returns:
        A tensor like `buffer`.
    """
    place = ops.arange(buffer.shape[1], dtype="int32")
    is_new = ops.equal(place, ops.expand_dims(index, 1))
    return ops.where(is_new, ops.expand_dims(new, 1), buffer)
