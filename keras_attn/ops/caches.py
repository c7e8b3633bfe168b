"""Writing into the buffers of fixed size that decoding keeps."""

from keras import ops

__all__ = ["put", "write"]


def write(buffer, new, index):
    """`buffer` with `new` in the place of positions `index, index + 1, ...`.

    In a loop that XLA compiles (always on JAX) the buffer is changed in place: what
    a step writes does not grow with the buffer.

    Args:
        buffer: `(B, L, ...)`.
        new: `(B, T, ...)` of the same dtype, T <= L.
        index: int32 scalar, position of the first new entry.

    Returns:
        A tensor like `buffer`.
    """
    zero = ops.zeros((), dtype="int32")
    start = [zero, ops.cast(index, "int32"), *[zero] * (len(buffer.shape) - 2)]
    return ops.slice_update(buffer, ops.stack(start), new)


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
