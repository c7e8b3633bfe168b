"""Mask classes, and their intersection."""

# Keras's functions are inferred to return None for a backend without them.
# pyright: reportOptionalOperand=false

import collections.abc
import dataclasses
import functools
import operator

import numpy as np
from keras import ops

from keras_attn._types import Tensor
from keras_attn.ops.masks.positions import (
    Blocks,
    CachedPositions,
    PositionFunction,
    Span,
)

__all__ = [
    "All",
    "Causal",
    "Dense",
    "Mask",
    "Padding",
    "Segments",
    "Window",
    "all_true",
    "join",
]


class Mask(PositionFunction):
    """Base class of masks, which define the keys that a query may attend to.

    `evaluate` returns bools, True = may attend. Masks are joined with `&`.
    """

    def overlap(self, queries: Blocks, keys: Blocks) -> np.ndarray | Tensor | None:
        """Return which pairs of blocks have a query that may attend to a key.

        The blockwise kernel skips the other pairs. False positives are allowed, false
        negatives are not.

        Returns:
            A bool array or tensor that broadcasts to `(query blocks, key blocks)`, or
            `None` if every pair may have one.
        """
        return None

    def covers(self, queries: Blocks, keys: Blocks) -> np.ndarray | Tensor | None:
        """Return in which pairs of blocks every query may attend to every key.

        The blockwise kernel does not evaluate the mask for these pairs. False negatives
        are allowed, false positives are not.

        Returns:
            A bool array or tensor that broadcasts to `(query blocks, key blocks)`, or
            `None` if it is not known for any pair.
        """
        return None

    def padding_mask(self) -> Tensor | None:
        """Return bool `(B, S)`, False = no query may attend to the key, or `None`.

        Padding may hold NaN or infinity, which a weight of zero does not remove.
        """
        return None

    @property
    def can_exclude_every_key(self) -> bool:
        """Whether the mask may leave a query without any key to attend to."""
        return True

    def __and__(self, other: "Mask | None") -> "Mask":
        return join(self, other)  # pyright: ignore[reportReturnType]

    __rand__ = __and__


@dataclasses.dataclass(frozen=True, eq=False)
class Causal(Mask):
    """The mask of `masks.causal`."""

    offset: int | Tensor

    def evaluate(self, query: Span, key: Span | CachedPositions) -> Tensor:
        last_visible = query.positions() + self.offset
        return ops.expand_dims(
            key.positions()[None, :] <= last_visible[:, None], axis=(0, 1)
        )

    def overlap(self, queries: Blocks, keys: Blocks) -> np.ndarray | Tensor:
        return keys.starts[None, :] <= queries.last[:, None] + self.offset

    def covers(self, queries: Blocks, keys: Blocks) -> np.ndarray | Tensor:
        return keys.last[None, :] <= queries.starts[:, None] + self.offset

    @property
    def can_exclude_every_key(self) -> bool:
        return not (isinstance(self.offset, int) and self.offset >= 0)


@dataclasses.dataclass(frozen=True, eq=False)
class Window(Mask):
    """The mask of `masks.window`."""

    size: int
    num_global: int

    def evaluate(self, query: Span, key: Span | CachedPositions) -> Tensor:
        i, j = query.positions()[:, None], key.positions()[None, :]
        near = ops.absolute(i - j) < self.size
        if self.num_global:
            near = near | (j < self.num_global) | (i < self.num_global)
        return ops.expand_dims(near, axis=(0, 1))

    def overlap(self, queries: Blocks, keys: Blocks) -> np.ndarray | Tensor:
        first, last = queries.starts[:, None], queries.last[:, None]
        near = keys.starts[None, :] - last < self.size
        near = near & (first - keys.last[None, :] < self.size)
        if self.num_global:
            near = near | (keys.starts[None, :] < self.num_global)
            near = near | (first < self.num_global)
        return near

    def covers(self, queries: Blocks, keys: Blocks) -> np.ndarray | Tensor:
        first, last = queries.starts[:, None], queries.last[:, None]
        near = last - keys.starts[None, :] < self.size
        near = near & (keys.last[None, :] - first < self.size)
        if self.num_global:
            near = near | (keys.last[None, :] < self.num_global)
            near = near | (last < self.num_global)
        return near


@dataclasses.dataclass(frozen=True, eq=False)
class Segments(Mask):
    """The mask of `masks.segments`."""

    query_ids: Tensor
    key_ids: Tensor
    query_start: int | Tensor

    def evaluate(self, query: Span, key: Span | CachedPositions) -> Tensor:
        query = Span(query.start - self.query_start, query.length)
        i, j = query.take(self.query_ids, axis=1), key.take(self.key_ids, axis=1)
        same = ops.equal(ops.expand_dims(i, 2), ops.expand_dims(j, 1))
        return ops.expand_dims(same, axis=1)

    def overlap(self, queries: Blocks, keys: Blocks) -> Tensor:
        # Exact if the ids are sorted, as in packed sequences.
        min_q, max_q, min_k, max_k = self._min_max(queries, keys)
        return ops.any(ops.logical_and(min_q <= max_k, min_k <= max_q), axis=0)

    def covers(self, queries: Blocks, keys: Blocks) -> Tensor:
        min_q, max_q, min_k, max_k = self._min_max(queries, keys)
        return ops.all(ops.logical_and(max_q <= min_k, max_k <= min_q), axis=0)

    def _min_max(
        self, queries: Blocks, keys: Blocks
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the smallest and largest ids of query blocks, then of key blocks."""
        min_q, max_q = (ops.expand_dims(x, 2) for x in queries.min_max(self.query_ids))
        min_k, max_k = (ops.expand_dims(x, 1) for x in keys.min_max(self.key_ids))
        return min_q, max_q, min_k, max_k


@dataclasses.dataclass(frozen=True, eq=False)
class Padding(Mask):
    """The mask of `masks.padding`."""

    keep: Tensor

    def evaluate(self, query: Span, key: Span | CachedPositions) -> Tensor:
        return ops.expand_dims(key.take(self.keep, axis=1), axis=(1, 2))

    def padding_mask(self) -> Tensor | None:
        return self.keep

    def overlap(self, queries: Blocks, keys: Blocks) -> Tensor:
        _, largest = keys.min_max(ops.any(self.keep, axis=0, keepdims=True))
        return largest > 0

    def covers(self, queries: Blocks, keys: Blocks) -> Tensor:
        smallest, _ = keys.min_max(ops.all(self.keep, axis=0, keepdims=True))
        return smallest > 0


@dataclasses.dataclass(frozen=True, eq=False)
class Dense(Mask):
    """The mask of `masks.dense`."""

    keep: Tensor

    def evaluate(self, query: Span, key: Span | CachedPositions) -> Tensor:
        return key.take(query.take(self.keep, axis=2), axis=3)


@dataclasses.dataclass(frozen=True, eq=False)
class All(Mask):
    """The intersection of several masks."""

    masks: tuple[Mask, ...]

    def evaluate(self, query: Span, key: Span | CachedPositions) -> Tensor:
        result = self.masks[0].evaluate(query, key)
        for mask in self.masks[1:]:
            result = ops.logical_and(result, mask.evaluate(query, key))
        return result

    def padding_mask(self) -> Tensor | None:
        found = [mask.padding_mask() for mask in self.masks]
        found = [mask for mask in found if mask is not None]
        return functools.reduce(ops.logical_and, found) if found else None

    def overlap(self, queries: Blocks, keys: Blocks) -> np.ndarray | Tensor | None:
        tables = [mask.overlap(queries, keys) for mask in self.masks]
        return all_true(table for table in tables if table is not None)

    def covers(self, queries: Blocks, keys: Blocks) -> np.ndarray | Tensor | None:
        tables = [mask.covers(queries, keys) for mask in self.masks]
        return None if any(table is None for table in tables) else all_true(tables)

    @property
    def can_exclude_every_key(self) -> bool:
        return any(mask.can_exclude_every_key for mask in self.masks)


def all_true(
    tables: collections.abc.Iterable[np.ndarray | Tensor],
) -> np.ndarray | Tensor | None:
    """Return the logical and of several bool tables, or None if there are none."""
    tables = list(tables)
    if any(map(ops.is_tensor, tables)):  # PyTorch cannot join a tensor and an array.
        tables = [ops.convert_to_tensor(table, "bool") for table in tables]
    return functools.reduce(operator.and_, tables) if tables else None


def join(*masks: Mask | None) -> Mask | None:
    """Return the intersection of masks: every mask must allow a pair of positions.

    Args:
        *masks: Masks; each `None` is ignored.

    Returns:
        A `Mask`, or `None` without any mask.

    Example:
        >>> from keras_attn.ops import masks
        >>> mask = masks.join(masks.causal(), None, masks.window(2))
        >>> len(mask.masks)
        2
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
