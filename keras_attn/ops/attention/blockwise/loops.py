"""Sequential loops over blocks that skip fully masked pairs of blocks."""

# Keras's functions are inferred to return None for a backend without them.
# pyright: reportGeneralTypeIssues=false, reportOperatorIssue=false
# pyright: reportOptionalOperand=false, reportOptionalSubscript=false

import collections.abc
import typing

import numpy as np
from keras import ops

from keras_attn._types import Shape, Tensor

__all__ = ["ActiveBlocks", "loop", "loop_over_active", "map_blocks", "take_block"]


class ActiveBlocks:
    """For each block of one axis, the blocks of the other axis to compute.

    Args:
        active: bools `(rows, columns)`, a NumPy array or a tensor: the pairs of blocks
            that are not fully masked.
        unmasked: bools like `active`: those of the active pairs that need no mask.

    Attributes:
        order: int32 `(rows, columns)`: in each row the unmasked columns, then the other
            active columns, then the rest.
        counts_unmasked: int32 `(rows,)`, the number of unmasked columns.
        counts: int32 `(rows,)`, the number of active columns.
    """

    order: Tensor
    counts_unmasked: Tensor
    counts: Tensor

    def __init__(
        self, active: np.ndarray | Tensor, unmasked: np.ndarray | Tensor
    ) -> None:
        if isinstance(active, np.ndarray) and isinstance(unmasked, np.ndarray):
            rank = np.where(active, np.where(unmasked, 0, 1), 2)
            order = np.argsort(rank, axis=1, kind="stable")
            counts = [(rank < limit).sum(axis=1) for limit in (1, 2)]
        else:
            active, unmasked = (
                ops.convert_to_tensor(x, "bool") for x in (active, unmasked)
            )
            one = ops.cast(ops.logical_not(unmasked), "int32")
            rank = ops.where(active, one, 2)
            # Unique sort keys, because not every backend has a stable sort.
            width = ops.shape(rank)[1]
            keys = rank * width + ops.arange(width, dtype="int32")
            order = ops.argsort(keys, axis=1)
            counts = [
                ops.sum(ops.cast(rank < limit, "int32"), axis=1) for limit in (1, 2)
            ]
        self.order, self.counts_unmasked, self.counts = (
            ops.convert_to_tensor(ops.cast(x, "int32"), dtype="int32")
            for x in (order, *counts)
        )


def loop_over_active(
    active: ActiveBlocks | None,
    row: Tensor,
    count: int | Tensor,
    body: collections.abc.Callable[..., collections.abc.Iterable[Tensor]],
    state: collections.abc.Iterable[Tensor],
) -> tuple[Tensor, ...]:
    """Run a loop over the active columns of a row.

    Args:
        active: The active columns of each row, or `None` for all `count` columns.
        row: int32 scalar.
        count: The number of columns.
        body: `body(column, is_masked, *state)` returns the next state; if `is_masked`
            is False, the body need not apply the mask.
        state: The initial state.

    Returns:
        The final state.
    """
    if active is None:
        return loop(0, count, lambda t, *s: body(t, True, *s), state)
    order = take_block(active.order, row)
    start = 0
    for is_masked, counts in (False, active.counts_unmasked), (True, active.counts):
        stop = take_block(counts, row)

        def step(
            t: Tensor, *state: Tensor, is_masked: bool = is_masked
        ) -> collections.abc.Iterable[Tensor]:
            return body(take_block(order, t), is_masked, *state)

        state = loop(start, stop, step, state)
        start = stop
    return tuple(state)


def loop(
    start: int | Tensor,
    stop: int | Tensor,
    body: collections.abc.Callable[..., collections.abc.Iterable[Tensor]],
    state: collections.abc.Iterable[Tensor],
) -> tuple[Tensor, ...]:
    """Compute `state = body(i, *state)` for each `i` in sequence.

    Returns:
        The final state.
    """

    def step(i: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        state = tuple(body(i, *state))
        return (_increment_after(i, state[0]), *state)

    start = ops.convert_to_tensor(start, dtype="int32")
    stop = ops.cast(stop, "int32")
    _, *state = ops.while_loop(lambda i, *_: i < stop, step, (start, *state))
    return tuple(state)


def _increment_after(i: Tensor, tensor: Tensor) -> Tensor:
    """Return `i + 1`, with a data dependency on `tensor`.

    Without it TensorFlow starts the products of the next ten steps before the end of
    the current step, and stores their results.
    """
    first = ops.reshape(tensor, (-1,))[0]
    return i + ops.maximum(ops.cast(first >= 0, "int32"), 1)


def map_blocks(
    function: collections.abc.Callable[..., collections.abc.Iterable[Tensor]],
    blocks: list[Tensor],
    shapes: collections.abc.Iterable[Shape],
) -> typing.Any:
    """Return the stacked results of `function(index, *blocks)` for each block.

    Args:
        function: Returns float32 tensors of `shapes`.
        blocks: Tensors whose first axis is that of the blocks.
        shapes: The shapes of the results for one block.

    Returns:
        A tuple of one tensor per shape.
    """

    def step(_: typing.Any, index: Tensor) -> tuple[typing.Any, typing.Any]:
        results = tuple(function(index, *(take_block(x, index) for x in blocks)))
        return results, results

    # On TensorFlow, Keras requires the carry to be like the stacked results, and a
    # single tensor to scan over if its length is not known.
    carry = tuple(ops.zeros(shape, dtype="float32") for shape in shapes)
    indices = ops.arange(ops.shape(blocks[0])[0], dtype="int32")
    return ops.scan(step, carry, indices)[1]


def take_block(blocks: Tensor, index: Tensor) -> Tensor:
    return ops.take(blocks, index, axis=0)
