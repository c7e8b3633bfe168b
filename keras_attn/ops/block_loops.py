"""Loops over blocks, one after the other, those left out that there is nothing in."""

import numpy as np
from keras import ops

__all__ = ["Live", "block", "for_each", "loop", "over"]


class Live:
    """In a table of bools, the columns of each row that are True.

    Attributes:
        order: int32 `(rows, columns)`, of each row first the columns that are True.
        counts: int32 `(rows,)`, how many those are.
    """

    def __init__(self, table):
        if isinstance(table, np.ndarray):
            order = np.argsort(~table, axis=1, kind="stable").astype("int32")
            counts = table.sum(axis=1, dtype="int32")
        else:
            dead = ops.cast(ops.logical_not(table), "int32")
            # Stable by hand: what comes first among equals is left to no backend.
            width = ops.shape(table)[1]
            keys = dead * width + ops.arange(width, dtype="int32")
            order = ops.cast(ops.argsort(keys, axis=1), "int32")
            counts = ops.sum(ops.cast(table, "int32"), axis=1)
        self.order = ops.convert_to_tensor(order, dtype="int32")
        self.counts = ops.convert_to_tensor(counts, dtype="int32")


def over(live, row, count, body, state):
    """A loop over the live columns of a row, or over all `count`."""
    if live is None:
        return loop(0, count, body, state)
    order = block(live.order, row)
    return loop(
        0, block(live.counts, row), lambda t, *s: body(block(order, t), *s), state
    )


def loop(start, stop, body, state):
    """`state = body(i, *state)` for each `i`, one after the other."""

    def step(i, *state):
        state = tuple(body(i, *state))
        return (_after(i, state[0]), *state)

    start = ops.convert_to_tensor(start, dtype="int32")
    stop = ops.cast(stop, "int32")
    found = ops.while_loop(lambda i, *_: i < stop, step, (start, *state))
    return tuple(found[1:])


def _after(i, tensor):
    """`i + 1`, once `tensor` is there.

    Else TensorFlow begins the products of the next ten steps before it ends this one,
    and holds what they give.
    """
    first = ops.reshape(tensor, (-1,))[0]
    return i + ops.maximum(ops.cast(first >= 0, "int32"), 1)


def for_each(function, blocks, shapes):
    """`function(index, *blocks)` for each block, what it gives stacked.

    It gives float32 tensors of `shapes`.
    """

    def step(_, index):
        found = tuple(function(index, *(block(x, index) for x in blocks)))
        return found, found

    # The carry is for TensorFlow, where Keras wants what is stacked to be like it, and
    # takes one tensor to go through, if it is of unknown length.
    carry = tuple(ops.zeros(shape, dtype="float32") for shape in shapes)
    indices = ops.arange(ops.shape(blocks[0])[0], dtype="int32")
    return ops.scan(step, carry, indices)[1]


def block(blocks, index):
    return ops.take(blocks, index, axis=0)
