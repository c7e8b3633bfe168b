"""The kinds of masks there are: what each says of any queries and keys."""

import dataclasses
import functools
import operator
import typing

from keras import ops

from keras_attn.ops.spans import Rule, Span

__all__ = ["All", "Causal", "Dense", "Mask", "Padding", "Segments", "Window", "join"]


class Mask(Rule):
    """Base of all masks: a rule that tells which query may attend to which key.

    `evaluate` gives bools, True = may attend.
    """

    def overlap(self, queries, keys):
        """Which block of queries may attend to anything in which block of keys.

        What it rules out is skipped by kernels that work block by block, so it may be
        True too often, but never False too often.

        Args:
            queries, keys: `Blocks`.

        Returns:
            A bool array or tensor that broadcasts to `(blocks of queries, blocks of
            keys)`, or None: any may.
        """
        return None

    @property
    def can_exclude_every_key(self):
        """Whether some query may be left with nothing to attend to."""
        return True

    def __and__(self, other):
        return join(self, other)

    __rand__ = __and__


@dataclasses.dataclass(frozen=True, eq=False)
class Causal(Mask):
    """Of `masks.causal`."""

    offset: typing.Any

    def evaluate(self, query, key):
        last_visible = query.positions() + self.offset
        return ops.expand_dims(
            key.positions()[None, :] <= last_visible[:, None], axis=(0, 1)
        )

    def overlap(self, queries, keys):
        return keys.starts[None, :] <= queries.last[:, None] + self.offset

    @property
    def can_exclude_every_key(self):
        return not (isinstance(self.offset, int) and self.offset >= 0)


@dataclasses.dataclass(frozen=True, eq=False)
class Window(Mask):
    """Of `masks.window`."""

    size: int
    num_global: int

    def evaluate(self, query, key):
        i, j = query.positions()[:, None], key.positions()[None, :]
        near = ops.absolute(i - j) < self.size
        if self.num_global:
            near = near | (j < self.num_global) | (i < self.num_global)
        return ops.expand_dims(near, axis=(0, 1))

    def overlap(self, queries, keys):
        first, last = queries.starts[:, None], queries.last[:, None]
        near = keys.starts[None, :] - last < self.size
        near = near & (first - keys.last[None, :] < self.size)
        if self.num_global:
            near = near | (keys.starts[None, :] < self.num_global)
            near = near | (first < self.num_global)
        return near


@dataclasses.dataclass(frozen=True, eq=False)
class Segments(Mask):
    """Of `masks.segments`."""

    query_ids: typing.Any
    key_ids: typing.Any
    query_start: typing.Any

    def evaluate(self, query, key):
        query = Span(query.start - self.query_start, query.length)
        i, j = query.of(self.query_ids, axis=1), key.of(self.key_ids, axis=1)
        same = ops.equal(ops.expand_dims(i, 2), ops.expand_dims(j, 1))
        return ops.expand_dims(same, axis=1)

    def overlap(self, queries, keys):
        # Ids in order, as packing makes them, leave no two blocks in doubt.
        low, high = queries.extremes(self.query_ids)
        least, most = keys.extremes(self.key_ids)
        low, high = ops.expand_dims(low, 2), ops.expand_dims(high, 2)
        least, most = ops.expand_dims(least, 1), ops.expand_dims(most, 1)
        return ops.any(ops.logical_and(low <= most, least <= high), axis=0)


@dataclasses.dataclass(frozen=True, eq=False)
class Padding(Mask):
    """Of `masks.padding`."""

    keep: typing.Any

    def evaluate(self, query, key):
        return ops.expand_dims(key.of(self.keep, axis=1), axis=(1, 2))

    def overlap(self, queries, keys):
        _, most = keys.extremes(ops.any(self.keep, axis=0, keepdims=True))
        return most > 0


@dataclasses.dataclass(frozen=True, eq=False)
class Dense(Mask):
    """Of `masks.dense`."""

    keep: typing.Any

    def evaluate(self, query, key):
        return key.of(query.of(self.keep, axis=2), axis=3)


@dataclasses.dataclass(frozen=True, eq=False)
class All(Mask):
    """Several masks, all of which must hold."""

    masks: tuple

    def evaluate(self, query, key):
        result = self.masks[0].evaluate(query, key)
        for mask in self.masks[1:]:
            result = ops.logical_and(result, mask.evaluate(query, key))
        return result

    def overlap(self, queries, keys):
        tables = [mask.overlap(queries, keys) for mask in self.masks]
        tables = [table for table in tables if table is not None]
        if any(map(ops.is_tensor, tables)):  # PyTorch joins none with an array
            tables = [ops.convert_to_tensor(table, "bool") for table in tables]
        return functools.reduce(operator.and_, tables) if tables else None

    @property
    def can_exclude_every_key(self):
        return any(mask.can_exclude_every_key for mask in self.masks)


def join(*masks):
    """The mask that holds where all of `masks` hold; `None`s are left out.

    Returns:
        A `Mask`, or `None` where no mask was given.
    """
    flat = []
    for mask in masks:
        if isinstance(mask, All):
            flat.extend(mask.masks)
        elif mask is not None:
            flat.append(mask)
    if len(flat) < 2:
        return flat[0] if flat else None
    return All(tuple(flat))
