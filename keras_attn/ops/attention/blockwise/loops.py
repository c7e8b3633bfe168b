"""Loops over blocks, one after the other, those left out that there is nothing in."""

import numpy as np
from keras import ops

__all__ = ["Live", "block", "for_each", "loop", "over"]


class Live:
    """For each row of a table, the columns that there is anything to do for.

    Args:
        live: bools `(rows, columns)`, an array of NumPy or a tensor: where there is.
        sure: likewise, of the live ones those that need no mask.

    Attributes:
        order: int32 `(rows, columns)`, of each row first the columns that are sure,
            then the others that are live.
        counts_sure, counts: int32 `(rows,)`, how many are sure, how many live.
    """

    def __init__(self, live, sure):
        known = isinstance(live, np.ndarray) and isinstance(sure, np.ndarray)
        if known:
            rank = np.where(live, np.where(sure, 0, 1), 2)
            order = np.argsort(rank, axis=1, kind="stable")
            counts = [(rank < least).sum(axis=1) for least in (1, 2)]
        else:
            live, sure = (ops.convert_to_tensor(x, "bool") for x in (live, sure))
            one = ops.cast(ops.logical_not(sure), "int32")
            rank = ops.where(live, one, 2)
            # Stable by hand: what comes first among equals is left to no backend.
            width = ops.shape(rank)[1]
            keys = rank * width + ops.arange(width, dtype="int32")
            order = ops.argsort(keys, axis=1)
            counts = [
                ops.sum(ops.cast(rank < least, "int32"), axis=1) for least in (1, 2)
            ]
        self.order, self.counts_sure, self.counts = (
            ops.convert_to_tensor(ops.cast(x, "int32"), dtype="int32")
            for x in (order, *counts)
        )


def over(live, row, count, body, state):
    """A loop over the live columns of a row, or over all `count`.

    Args:
        body: a function of a column, whether it needs the mask, and the state.
    """
    if live is None:
        return loop(0, count, lambda t, *s: body(t, True, *s), state)
    order = block(live.order, row)
    done = 0
    for masked, counts in (False, live.counts_sure), (True, live.counts):
        stop = block(counts, row)

        def turn(t, *state, masked=masked):
            return body(block(order, t), masked, *state)

        state = loop(done, stop, turn, state)
        done = stop
    return state


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
