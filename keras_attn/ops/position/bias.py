"""Position biases: terms of attention scores that depend on the positions.

A bias, like a mask, is an object that can be evaluated for any range of positions, so
that the blockwise kernel never stores all of it.
"""

# Keras's functions are inferred to return None for a backend without them.
# pyright: reportGeneralTypeIssues=false, reportOperatorIssue=false
# pyright: reportOptionalMemberAccess=false, reportOptionalOperand=false
# pyright: reportOptionalSubscript=false

import dataclasses
import math

import numpy as np
from keras import ops

from keras_attn._types import Tensor
from keras_attn.ops.masks.positions import CachedPositions, PositionFunction, Span

__all__ = ["Bias", "alibi", "alibi_slopes", "as_bias", "relative", "relative_bucket"]


class Bias(PositionFunction):
    """Base class of biases; `evaluate` returns float32."""

    def add_gradient(
        self, sums: list[Tensor], upstream: Tensor, query: Span, key: Span
    ) -> list[Tensor]:
        """Add the gradients of the tensors for one block of queries and one of keys.

        Args:
            sums: The sums so far, one per tensor of `self.tensors()`. Axes of positions
                may be longer than those of the tensor.
            upstream: float32 `(B, N, T, S)`, the gradient of the result of `evaluate`.
            query: The positions of the queries.
            key: The positions of the keys.

        Returns:
            The new sums.
        """
        raise NotImplementedError


@dataclasses.dataclass(frozen=True, eq=False)
class _Dense(Bias):
    values: Tensor

    def evaluate(self, query: Span, key: Span | CachedPositions) -> Tensor:
        values = ops.cast(self.values, "float32")
        for axis, positions in (2, query), (3, key):
            if values.shape[axis] != 1:
                values = positions.take(values, axis)
        return values

    def add_gradient(
        self, sums: list[Tensor], upstream: Tensor, query: Span, key: Span
    ) -> list[Tensor]:
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
    """A bias that depends only on the distance of key and query."""

    def of_distances(self, distances: Tensor) -> Tensor:
        """Return float32 `(N, ...)` for int32 `(...)`, key minus query position."""
        raise NotImplementedError

    def add_gradient_of_distances(
        self, sums: list[Tensor], upstream: Tensor, distances: Tensor
    ) -> list[Tensor]:
        """Add the gradients for distances, int32 `(D,)`; `upstream` is `(N, D)`."""
        return sums

    def evaluate(self, query: Span, key: Span | CachedPositions) -> Tensor:
        if isinstance(key, Span):
            values = _along_diagonals(
                self.of_distances(_distances(query, key)), query.length, key.length
            )
        else:
            values = self.of_distances(
                key.positions()[None, :] - query.positions()[:, None]
            )
        return ops.expand_dims(values, axis=0)

    def add_gradient(
        self, sums: list[Tensor], upstream: Tensor, query: Span, key: Span
    ) -> list[Tensor]:
        if not sums:
            return sums
        upstream = _sum_diagonals(ops.sum(upstream, axis=0))
        return self.add_gradient_of_distances(sums, upstream, _distances(query, key))


@dataclasses.dataclass(frozen=True, eq=False)
class _Alibi(_ByDistance):
    slopes: tuple[float, ...]

    def of_distances(self, distances: Tensor) -> Tensor:
        distances = ops.cast(ops.absolute(distances), "float32")
        slopes = ops.convert_to_tensor(self.slopes, dtype="float32")
        slopes = ops.reshape(slopes, (-1, *[1] * len(distances.shape)))
        return -slopes * distances


@dataclasses.dataclass(frozen=True, eq=False)
class _Relative(_ByDistance):
    table: Tensor
    max_distance: int
    bidirectional: bool

    def _buckets(self, distances: Tensor) -> Tensor:
        return relative_bucket(
            distances, self.table.shape[0], self.max_distance, self.bidirectional
        )

    def of_distances(self, distances: Tensor) -> Tensor:
        table = ops.transpose(ops.cast(self.table, "float32"))
        return ops.take(table, self._buckets(distances), axis=1)

    def add_gradient_of_distances(
        self, sums: list[Tensor], upstream: Tensor, distances: Tensor
    ) -> list[Tensor]:
        (total,) = sums
        buckets = ops.one_hot(self._buckets(distances), self.table.shape[0], axis=0)
        gradient = ops.matmul(ops.cast(buckets, "float32"), ops.transpose(upstream))
        return [total + ops.cast(gradient, total.dtype)]


def as_bias(bias: Bias | Tensor | None) -> Bias | None:
    """Return a `Bias` unchanged, and floats that broadcast to `(B, N, T, S)` as one.

    `None` is returned unchanged.
    """
    if bias is None or isinstance(bias, Bias):
        return bias
    values: Tensor = ops.convert_to_tensor(bias)
    missing = 4 - len(values.shape)
    if missing:
        values = ops.expand_dims(values, axis=tuple(range(missing)))
    return _Dense(values)


def alibi(slopes: list[float]) -> Bias:
    """Return the ALiBi bias: minus the distance of query and key, times a slope.

    Args:
        slopes: One float per head, see `alibi_slopes`.

    Returns:
        A `Bias`.

    Example:
        >>> import keras
        >>> from keras_attn.ops import biases, masks
        >>> bias = biases.alibi([0.5])
        >>> positions = masks.Span(0, 3)
        >>> values = bias.evaluate(positions, positions)
        >>> keras.ops.convert_to_numpy(values)[0, 0].tolist()
        [[-0.0, -0.5, -1.0], [-0.5, -0.0, -0.5], [-1.0, -0.5, -0.0]]

    Reference:
        Press et al. 2021, "Train Short, Test Long" (https://arxiv.org/abs/2108.12409).
    """
    return _Alibi(tuple(map(float, slopes)))


def alibi_slopes(num_heads: int) -> list[float]:
    """Return the slopes of ALiBi's heads, a geometric series down to 2 ** -8.

    Args:
        num_heads: Number of heads. If it is not a power of two, the series of the next
            smaller power is followed by every other number of the series of the next
            larger power.

    Returns:
        One float per head.

    Example:
        >>> from keras_attn.ops import biases
        >>> biases.alibi_slopes(4)
        [0.25, 0.0625, 0.015625, 0.00390625]

    Reference:
        Press et al. 2021, section 3 (https://arxiv.org/abs/2108.12409).
    """
    power = 2 ** int(math.log2(num_heads))
    slopes = [2 ** (-8 * (head + 1) / power) for head in range(power)]
    finer = [2 ** (-4 * (head + 1) / power) for head in range(0, 2 * power, 2)]
    return slopes + finer[: num_heads - power]


def relative(
    table: Tensor, max_distance: int = 128, bidirectional: bool = True
) -> Bias:
    """Return T5's relative bias: one learned number per head and bucket of distances.

    Args:
        table: floats `(buckets, N)`.
        max_distance: See `relative_bucket`.
        bidirectional: See `relative_bucket`.

    Returns:
        A `Bias`.

    Example:
        >>> import keras
        >>> import numpy as np
        >>> from keras_attn.ops import biases, masks
        >>> table = np.arange(4, dtype="float32")[:, None]
        >>> bias = biases.relative(table, max_distance=8)
        >>> values = bias.evaluate(masks.Span(1, 1), masks.Span(0, 3))
        >>> keras.ops.convert_to_numpy(values).tolist()
        [[[[1.0, 0.0, 3.0]]]]

    Reference:
        Raffel et al. 2019, section 2.1 (https://arxiv.org/abs/1910.10683).
    """
    return _Relative(ops.convert_to_tensor(table), max_distance, bidirectional)


def relative_bucket(
    distances: Tensor, num_buckets: int, max_distance: int, bidirectional: bool
) -> Tensor:
    """Return T5's bucket of each distance.

    There is one bucket per small distance; the buckets of larger distances grow
    logarithmically.

    Args:
        distances: int32, key minus query position.
        num_buckets: Number of buckets.
        max_distance: The distance from which on all distances share a bucket.
        bidirectional: If True, half of the buckets are for keys after the query; if
            False, these have distance zero.

    Returns:
        int32 of the shape of `distances`.

    Example:
        >>> import keras
        >>> import numpy as np
        >>> from keras_attn.ops import biases
        >>> distances = np.array([-100, -2, -1, 0, 1, 2, 100], "int32")
        >>> buckets = biases.relative_bucket(distances, 8, 16, bidirectional=True)
        >>> keras.ops.convert_to_numpy(buckets).tolist()
        [3, 2, 1, 0, 5, 6, 7]

    Reference:
        Raffel et al. 2019, section 2.1 (https://arxiv.org/abs/1910.10683).
    """
    if bidirectional:
        num_buckets //= 2
        first = ops.where(distances > 0, num_buckets, 0)
        distances = ops.absolute(distances)
    else:
        first = 0
        distances = ops.maximum(-distances, 0)
    num_exact = num_buckets // 2
    # At least one, because both branches of `where` are computed.
    ratio = ops.cast(ops.maximum(distances, 1), "float32") / num_exact
    share = ops.log(ratio) / np.float32(math.log(max_distance / num_exact))
    large = num_exact + ops.cast(share * (num_buckets - num_exact), "int32")
    large = ops.minimum(large, num_buckets - 1)
    return ops.cast(first + ops.where(distances < num_exact, distances, large), "int32")


def _distances(query: Span, key: Span) -> Tensor:
    """Return all distances of a key from a query, in increasing order."""
    smallest = key.start - query.start - (query.length - 1)
    return ops.arange(query.length + key.length - 1, dtype="int32") + smallest


def _along_diagonals(
    values: Tensor, num_queries: int | Tensor, num_keys: int | Tensor
) -> Tensor:
    """Repeat the values `(N, T + S - 1)` along the diagonals of `(N, T, S)`.

    The first value is that of the lower left corner. If rows of length T + S are
    concatenated and then cut into rows one shorter, the values of each row begin one
    position earlier than those of the previous row.
    """
    heads, total = values.shape[0], num_queries + num_keys
    rows = ops.pad(values, [(0, 0), (0, 1)])
    rows = ops.broadcast_to(ops.expand_dims(rows, 1), (heads, num_queries, total))
    rows = ops.reshape(rows, (heads, num_queries * total))
    rows = rows[:, num_queries - 1 : num_queries * total - 1]
    # T - 1 values at the start and one at the end are cut: T rows of T + S - 1 remain.
    rows = ops.reshape(rows, (heads, num_queries, total - 1))
    return rows[:, :, :num_keys]


def _sum_diagonals(values: Tensor) -> Tensor:
    """Return the sums `(N, T + S - 1)` of the diagonals of `(N, T, S)`.

    This is the transpose of `_along_diagonals`.
    """
    heads, num_queries, num_keys = ops.shape(values)
    total = num_queries + num_keys
    rows = ops.pad(values, [(0, 0), (0, 0), (0, num_queries - 1)])
    rows = ops.reshape(rows, (heads, num_queries * (total - 1)))
    rows = ops.pad(rows, [(0, 0), (num_queries - 1, 1)])
    rows = ops.reshape(rows, (heads, num_queries, total))
    return ops.sum(rows, axis=1)[:, : total - 1]
