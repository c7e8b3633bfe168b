"""The kinds of masks there are: what each says of any queries and keys."""

import dataclasses
import functools
import operator
import typing

from keras import ops

from keras_attn.ops.masks.positions import Rule, Span

__all__ = [
    "All",
    "Causal",
    "Dense",
    "Mask",
    "Padding",
    "Segments",
    "Window",
    "all_of",
    "join",
]


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

    def covers(self, queries, keys):
        """Which block of queries may attend to everything in which block of keys.

        There kernels that work block by block need not evaluate the mask, so it may be
        False too often, but never True too often.

        Args:
            queries, keys: `Blocks`.

        Returns:
            As `overlap` does, or None: it cannot be told.
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

    def covers(self, queries, keys):
        return keys.last[None, :] <= queries.starts[:, None] + self.offset

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

    def covers(self, queries, keys):
        first, last = queries.starts[:, None], queries.last[:, None]
        near = last - keys.starts[None, :] < self.size
        near = near & (keys.last[None, :] - first < self.size)
        if self.num_global:
            near = near | (keys.last[None, :] < self.num_global)
            near = near | (last < self.num_global)
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
        low, high, least, most = self._extremes(queries, keys)
        return ops.any(ops.logical_and(low <= most, least <= high), axis=0)

    def covers(self, queries, keys):
        low, high, least, most = self._extremes(queries, keys)
        return ops.all(ops.logical_and(high <= least, most <= low), axis=0)

    def _extremes(self, queries, keys):
        """Least and largest ids of the queries' blocks, then of the keys'."""
        of_queries = [ops.expand_dims(x, 2) for x in queries.extremes(self.query_ids)]
        of_keys = [ops.expand_dims(x, 1) for x in keys.extremes(self.key_ids)]
        return *of_queries, *of_keys


@dataclasses.dataclass(frozen=True, eq=False)
class Padding(Mask):
    """Of `masks.padding`."""

    keep: typing.Any

    def evaluate(self, query, key):
        return ops.expand_dims(key.of(self.keep, axis=1), axis=(1, 2))

    def overlap(self, queries, keys):
        _, most = keys.extremes(ops.any(self.keep, axis=0, keepdims=True))
        return most > 0

    def covers(self, queries, keys):
        least, _ = keys.extremes(ops.all(self.keep, axis=0, keepdims=True))
        return least > 0


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
        return all_of(table for table in tables if table is not None)

    def covers(self, queries, keys):
        tables = [mask.covers(queries, keys) for mask in self.masks]
        return None if any(table is None for table in tables) else all_of(tables)

    @property
    def can_exclude_every_key(self):
        return any(mask.can_exclude_every_key for mask in self.masks)


def all_of(tables):
    """Where all of several tables of bools are True; None if there are none."""
    tables = list(tables)
    if any(map(ops.is_tensor, tables)):  # PyTorch joins none with an array
        tables = [ops.convert_to_tensor(table, "bool") for table in tables]
    return functools.reduce(operator.and_, tables) if tables else None


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
