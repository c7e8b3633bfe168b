"""Batches padded to a few shapes, since XLA compiles each shape anew."""

import tensorflow as tf

__all__ = ["doubling", "next_size", "padded"]

# More rows or tokens than anyone can hold.
_ENDLESS = 2**30


def doubling(least, through=1):
    """Sizes to pad to: `least`, then each twice the one before, without an end.

    Args:
        least: int.
        through: int, a size that is among them, whether or not doubling meets it.

    Returns:
        A tuple of rising ints; the first is `through` where that is the least.
    """
    sizes = {max(through, 1)}
    while least < _ENDLESS:
        sizes.add(least)
        least *= 2
    return tuple(sorted(sizes))


def next_size(number, sizes):
    """The least of `sizes`, rising ints, of at least `number`, an int32 scalar."""
    sizes = tf.constant(sizes, tf.int32)
    return sizes[tf.searchsorted(sizes, number[tf.newaxis])[0]]


def padded(tensor, rows, length=None, fill=0):
    """A batch with more rows and longer ones.

    Args:
        tensor: `(B, S)`.
        rows: int32 scalar, at least B and at least 1. The new rows are copies of the
            first one, so that a search takes no longer over them; or `fill`, where
            there is none.
        length: int32 scalar, at least S, or None for S.
        fill: int, what stands in new places.

    Returns:
        A tensor `(rows, length)`.
    """
    given = tf.shape(tensor)
    more = 0 if length is None else length - given[1]
    none = tf.cast(tf.equal(given[0], 0), tf.int32)
    tensor = tf.pad(tensor, [[0, none], [0, more]], constant_values=fill)
    numbers = tf.range(rows)
    return tf.gather(tensor, tf.where(numbers < given[0], numbers, 0))
