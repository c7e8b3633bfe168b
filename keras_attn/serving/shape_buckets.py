"""Padding of batches to a few shapes, since XLA compiles a program for each shape."""

from collections.abc import Sequence

import tensorflow as tf

from keras_attn._types import Tensor

__all__ = ["bucket_sizes", "next_size", "pad_batch"]

# More texts or tokens than fit into memory.
_SIZE_LIMIT = 2**30


def bucket_sizes(smallest: int, include: int = 1) -> tuple[int, ...]:
    """Return sizes to pad to, each of them twice the previous one.

    Args:
        smallest: The size to begin with.
        include: One more size, which need not be `smallest` times a power of two.

    Returns:
        A tuple of ints in increasing order. The first one is the smaller one of
        `smallest` and `include`.
    """
    sizes = {max(include, 1)}
    size = smallest
    while size < _SIZE_LIMIT:
        sizes.add(size)
        size *= 2
    return tuple(sorted(sizes))


def next_size(number: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return the smallest of `sizes` that is at least `number`.

    Args:
        number: An int32 scalar.
        sizes: Ints in increasing order.

    Returns:
        An int32 scalar.
    """
    candidates = tf.constant(sizes, tf.int32)
    return candidates[tf.searchsorted(candidates, number[tf.newaxis])[0]]


def pad_batch(
    tensor: Tensor,
    batch_size: Tensor | int,
    length: Tensor | int | None = None,
    fill_value: int = 0,
) -> Tensor:
    """Pad a batch to a larger batch size and length.

    Args:
        tensor: `(B, S)`.
        batch_size: int32 scalar, at least B and at least 1. The new batch elements are
            copies of the first one, so that a search does not take longer for them.
            In an empty batch they consist of `fill_value`.
        length: int32 scalar, at least S, or None for S.
        fill_value: The value of new positions.

    Returns:
        A tensor `(batch_size, length)`.
    """
    shape = tf.shape(tensor)
    added_length = 0 if length is None else length - shape[1]
    is_empty = tf.cast(tf.equal(shape[0], 0), tf.int32)
    paddings = [[0, is_empty], [0, added_length]]
    tensor = tf.pad(tensor, paddings, constant_values=fill_value)
    index = tf.range(batch_size)
    return tf.gather(tensor, tf.where(index < shape[0], index, 0))
