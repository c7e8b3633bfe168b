"""What is added to the scores of a query and a key, by where they stand.

A bias is a value, as a mask is: it can be evaluated for any positions, so that a kernel
that works block by block never holds it whole.
"""

import dataclasses
import math
import typing

import numpy as np
from keras import ops

from keras_attn.ops.masks.positions import Rule, Span

__all__ = ["Bias", "alibi", "alibi_slopes", "as_bias", "relative", "relative_bucket"]


class Bias(Rule):
    """Base of all biases: `evaluate` gives float32."""

    def add_gradient(self, sums, upstream, query, key):
        """Adds the part that some queries and keys have in the gradient of the bias.

        Args:
            sums: list of tensors, like `self.tensors()`, or longer at the end of the
                axes of positions.
            upstream: float32 `(B, N, T, S)`, the gradient of what `evaluate` gave.
            query, key: `Span`s.

        Returns:
            A list of tensors like `sums`.
        """
        raise NotImplementedError


@dataclasses.dataclass(frozen=True, eq=False)
class _Dense(Bias):
    values: typing.Any

    def evaluate(self, query, key):
        values = ops.cast(self.values, "float32")
        for axis, span in (2, query), (3, key):
            if values.shape[axis] != 1:
                values = span.of(values, axis)
        return values

    def add_gradient(self, sums, upstream, query, key):
        (total,) = sums
        start = [0, 0, 0, 0]
        for axis in range(4):
            if self.values.shape[axis] == 1:
                upstream = ops.sum(upstream, axis=axis, keepdims=True)
            elif axis > 1:
                start[axis] = (query, key)[axis - 2].start
        start = ops.stack([ops.cast(x, "int32") for x in start])
        shape = ops.shape(upstream)
        old = ops.slice(total, start, shape)
        new = old + ops.cast(upstream, total.dtype)
        return [ops.slice_update(total, start, new)]


class _ByDistance(Bias):
    """A bias that depends on how far the key is after the query, and nothing else."""

    def of_distances(self, distances):
        """float32 `(N, ...)` for int32 distances `(...)`, key minus query position."""
        raise NotImplementedError

    def add_gradient_of_distances(self, sums, upstream, distances):
        """`add_gradient` from upstream float32 `(N, D)` of distances `(D,)`."""
        return sums

    def evaluate(self, query, key):
        if isinstance(key, Span):
            values = _along_diagonals(
                self.of_distances(_distances(query, key)), query.length, key.length
            )
        else:
            values = self.of_distances(
                key.positions()[None, :] - query.positions()[:, None]
            )
        return ops.expand_dims(values, axis=0)

    def add_gradient(self, sums, upstream, query, key):
        if not sums:
            return sums
        upstream = _sum_diagonals(ops.sum(upstream, axis=0))
        return self.add_gradient_of_distances(sums, upstream, _distances(query, key))


@dataclasses.dataclass(frozen=True, eq=False)
class _Alibi(_ByDistance):
    slopes: tuple

    def of_distances(self, distances):
        far = ops.cast(ops.absolute(distances), "float32")
        slopes = ops.convert_to_tensor(self.slopes, dtype="float32")
        return -ops.reshape(slopes, (-1, *[1] * len(far.shape))) * far


@dataclasses.dataclass(frozen=True, eq=False)
class _Relative(_ByDistance):
    table: typing.Any
    max_distance: int
    bidirectional: bool

    def _buckets(self, distances):
        return relative_bucket(
            distances, self.table.shape[0], self.max_distance, self.bidirectional
        )

    def of_distances(self, distances):
        table = ops.transpose(ops.cast(self.table, "float32"))
        return ops.take(table, self._buckets(distances), axis=1)

    def add_gradient_of_distances(self, sums, upstream, distances):
        (total,) = sums
        which = ops.one_hot(self._buckets(distances), self.table.shape[0], axis=0)
        found = ops.matmul(ops.cast(which, "float32"), ops.transpose(upstream))
        return [total + ops.cast(found, total.dtype)]


def as_bias(bias):
    """A `Bias`, as it is, or of a float tensor that broadcasts to `(B, N, T, S)`."""
    if bias is None or isinstance(bias, Bias):
        return bias
    bias = ops.convert_to_tensor(bias)
    missing = 4 - len(bias.shape)
    return _Dense(
        ops.expand_dims(bias, axis=tuple(range(missing))) if missing else bias
    )


def alibi(slopes):
    """Minus the distance of query and key, times a slope for each head.

    Args:
        slopes: a float for each head, see `alibi_slopes`.

    Returns:
        A `Bias`.

    Reference:
        Press et al. 2021, "Train Short, Test Long" (https://arxiv.org/abs/2108.12409).
    """
    return _Alibi(tuple(map(float, slopes)))


def alibi_slopes(num_heads):
    """The slopes that ALiBi gives its heads: a geometric series down to 2 to the -8.

    Args:
        num_heads: int. Where it is no power of two, the series of the next smaller
            one comes first, then every other number of the next larger one's.

    Returns:
        A list of floats.

    Reference:
        Press et al. 2021, section 3 (https://arxiv.org/abs/2108.12409).
    """
    power = 2 ** int(math.log2(num_heads))
    slopes = [2 ** (-8 * (head + 1) / power) for head in range(power)]
    finer = [2 ** (-4 * (head + 1) / power) for head in range(0, 2 * power, 2)]
    return slopes + finer[: num_heads - power]


def relative(table, max_distance=128, bidirectional=True):
    """A learned number for each head and each bucket of distances.

    Args:
        table: float tensor `(buckets, N)`.
        max_distance, bidirectional: see `relative_bucket`.

    Returns:
        A `Bias`.

    Reference:
        Raffel et al. 2019, section 2.1 (https://arxiv.org/abs/1910.10683).
    """
    return _Relative(ops.convert_to_tensor(table), max_distance, bidirectional)


def relative_bucket(distances, num_buckets, max_distance, bidirectional):
    """T5's buckets: one for each small distance, the larger ones logarithmic.

    Args:
        distances: int32 tensor, key minus query position.
        num_buckets: int.
        max_distance: int, from which on all fall in one bucket.
        bidirectional: bool. True: half of the buckets are for keys after the query;
            False: those count as distance zero.

    Returns:
        An int32 tensor like `distances`.
    """
    if bidirectional:
        num_buckets //= 2
        first = ops.where(distances > 0, num_buckets, 0)
        distances = ops.absolute(distances)
    else:
        first = 0
        distances = ops.maximum(-distances, 0)
    exact = num_buckets // 2
    # At least one, since both sides of `where` are computed.
    ratio = ops.cast(ops.maximum(distances, 1), "float32") / exact
    share = ops.log(ratio) / np.float32(math.log(max_distance / exact))
    large = exact + ops.cast(share * (num_buckets - exact), "int32")
    large = ops.minimum(large, num_buckets - 1)
    return ops.cast(first + ops.where(distances < exact, distances, large), "int32")


def _distances(query, key):
    """Distances of a key from a query, from the least to the largest there is."""
    least = key.start - query.start - (query.length - 1)
    return ops.arange(query.length + key.length - 1, dtype="int32") + least


def _along_diagonals(values, num_queries, num_keys):
    """`(N, T + S - 1)` to `(N, T, S)`, the first value in the lower left corner.

    In rows of T + S, one after the other, the values of a row begin one earlier in
    the row that follows: cut into rows one shorter they stand where they belong.
    """
    heads, total = values.shape[0], num_queries + num_keys
    rows = ops.pad(values, [(0, 0), (0, 1)])
    rows = ops.broadcast_to(ops.expand_dims(rows, 1), (heads, num_queries, total))
    rows = ops.reshape(rows, (heads, num_queries * total))
    rows = rows[:, num_queries - 1 : num_queries * total - 1]
    # T - 1 of the front and one of the end are gone: T rows of T + S - 1.
    rows = ops.reshape(rows, (heads, num_queries, total - 1))
    return rows[:, :, :num_keys]


def _sum_diagonals(values):
    """The transpose of `_along_diagonals`: `(N, T, S)` to sums `(N, T + S - 1)`."""
    heads, num_queries, num_keys = ops.shape(values)
    total = num_queries + num_keys
    rows = ops.pad(values, [(0, 0), (0, 0), (0, num_queries - 1)])
    rows = ops.reshape(rows, (heads, num_queries * (total - 1)))
    rows = ops.pad(rows, [(0, 0), (num_queries - 1, 1)])
    rows = ops.reshape(rows, (heads, num_queries, total))
    return ops.sum(rows, axis=1)[:, : total - 1]
