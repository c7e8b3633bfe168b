"""Attention of tiles, the pairs of a block of queries and a block of keys."""

# Keras's functions are inferred to return None for a backend without them.
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false
# pyright: reportOptionalMemberAccess=false, reportOptionalOperand=false
# pyright: reportOptionalSubscript=false

import collections.abc
import typing

import numpy as np
from keras import ops

from keras_attn._types import DTypeLike, Shape, Tensor
from keras_attn.ops.attention.blockwise.dropout import hash_bits
from keras_attn.ops.attention.blockwise.loops import (
    ActiveBlocks,
    loop,
    loop_over_active,
    map_blocks,
    take_block,
)
from keras_attn.ops.attention.softmax import clip_bias
from keras_attn.ops.masks.kinds import Mask, all_true
from keras_attn.ops.masks.positions import Blocks, Span
from keras_attn.ops.position.bias import Bias

__all__ = ["Tiles"]


class _QueryBlock(typing.NamedTuple):
    """The tensors that the gradient needs of a block of queries.

    Attributes:
        query: `(B, K, G x Q, H)`.
        upstream: The gradient of the output, `(B, K, G x Q, V)`.
        log_sum: The logarithm of the sum of the softmax, `(B, K, G x Q, 1)`.
        delta: For each query, the sum over keys of weight times gradient of the weight
            (D in FlashAttention), `(B, K, G x Q, 1)`.
    """

    query: Tensor
    upstream: Tensor
    log_sum: Tensor
    delta: Tensor


class Tiles:
    """The tiles of an attention call: its forward pass and its gradients.

    The arguments are those of `blockwise_attention`. In the shapes below, G = N / K
    heads share a key, and Q and P are the sizes of a block of queries and of keys.
    """

    batch: typing.Any
    num_heads: typing.Any
    num_queries: typing.Any
    num_key_value_heads: typing.Any
    num_keys: typing.Any
    group_size: typing.Any
    count_q: typing.Any
    count_k: typing.Any
    size_q: int
    size_k: int
    rate: typing.Any

    def __init__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Mask | None,
        bias: Bias | None,
        logit_soft_cap: float | None,
        sinks: Tensor | None,
        dropout: tuple[typing.Any, ...],
        query_start: int | Tensor,
        block_sizes: tuple[int, int],
    ) -> None:
        self.mask = mask
        self.bias = bias
        self.logit_soft_cap = logit_soft_cap
        self.sinks = sinks
        self.query_start = query_start
        self.size_q, self.size_k = block_sizes
        self.batch, self.num_heads, self.num_queries, _ = ops.shape(query)
        self.num_key_value_heads, self.num_keys = ops.shape(key)[1:3]
        self.group_size = self.num_heads // self.num_key_value_heads
        self.head_shape = (self.num_key_value_heads, self.group_size)
        self.count_q = -(-self.num_queries // self.size_q)
        self.count_k = -(-self.num_keys // self.size_k)
        # (blocks, B, K, G x Q, H) and (blocks, B, K, P, H): each block is contiguous.
        self.queries = self._split_queries(query)
        self.keys, self.values = self._split_keys(key), self._split_keys(value)
        self.rate, *bits = dropout
        if bits:
            self.bits_q = self._split_queries(ops.expand_dims(bits[0], -1))
            self.bits_k = self._split_keys(ops.expand_dims(bits[1], -1))
        self._find_active()

    # Splitting into blocks and joining them

    def _split_queries(self, x: Tensor) -> Tensor:
        x = _pad(x, self.num_queries, self.count_q * self.size_q)
        shape = (self.batch, *self.head_shape, self.count_q, self.size_q, x.shape[3])
        x = ops.transpose(ops.reshape(x, shape), (3, 0, 1, 2, 4, 5))
        rows = self.group_size * self.size_q
        shape = (self.count_q, self.batch, self.num_key_value_heads, rows, x.shape[5])
        return ops.reshape(x, shape)

    def _split_keys(self, x: Tensor) -> Tensor:
        x = _pad(x, self.num_keys, self.count_k * self.size_k)
        batch, heads = ops.shape(x)[:2]
        x = ops.reshape(x, (batch, heads, self.count_k, self.size_k, x.shape[3]))
        return ops.transpose(x, (2, 0, 1, 3, 4))

    def join_queries(self, x: Tensor, dtype: DTypeLike) -> Tensor:
        """Return the blocks of queries as one tensor `(B, N, T, V)`."""
        shape = (self.count_q, self.batch, *self.head_shape, self.size_q, x.shape[4])
        x = ops.reshape(ops.cast(x, dtype), shape)
        x = ops.transpose(x, (1, 2, 3, 0, 4, 5))
        x = ops.reshape(x, (self.batch, self.num_heads, -1, x.shape[5]))
        return x[:, :, : self.num_queries]

    def _join_keys(self, x: Tensor) -> Tensor:
        x = ops.transpose(x, (1, 2, 0, 3, 4))
        x = ops.reshape(x, (self.batch, self.num_key_value_heads, -1, x.shape[4]))
        return x[:, :, : self.num_keys]

    # Tiles that are not fully masked

    def _find_active(self) -> None:
        self.active_keys: ActiveBlocks | None = None
        self.active_queries: ActiveBlocks | None = None
        starts = [
            _starts(self.count_q, self.size_q),
            _starts(self.count_k, self.size_k),
        ]
        if ops.is_tensor(self.query_start):  # PyTorch combines no tensor with an array.
            starts = [ops.convert_to_tensor(x, dtype="int32") for x in starts]
        queries = Blocks(starts[0] + self.query_start, self.size_q)
        keys = Blocks(starts[1], self.size_k)
        active, unmasked = None, []
        if self.mask is not None:
            active = self.mask.overlap(queries, keys)
            unmasked.append(self.mask.covers(queries, keys))
        if not self._has_full_blocks():
            unmasked.append(keys.last[None, :] < self.num_keys)
        if active is None and (not unmasked or unmasked[0] is None):
            return  # No tile to skip, and all tiles are computed in the same way.
        shape = (self.count_q, self.count_k)
        is_unknown = unmasked[0] is None
        active, unmasked = (
            _broadcast(table, shape)
            for table in (
                np.array(True) if active is None else active,
                np.array(False) if is_unknown else all_true(unmasked),
            )
        )
        self.active_keys = ActiveBlocks(active, unmasked)
        self.active_queries = ActiveBlocks(_transpose(active), _transpose(unmasked))

    def _has_full_blocks(self) -> bool:
        """Return whether the last block of keys is known to have no padding."""
        return isinstance(self.num_keys, int) and self.num_keys % self.size_k == 0

    # One tile

    def _spans(self, i: Tensor, j: Tensor) -> tuple[Span, Span]:
        query = Span(i * self.size_q + self.query_start, self.size_q)
        return query, Span(j * self.size_k, self.size_k)

    def _group(self, x: Tensor, transposed: bool) -> Tensor:
        """Reshape a tensor that broadcasts to `(B, N, Q, P)` to the shape of `_shape`.

        The result broadcasts to that shape.
        """
        if self.group_size > 1:
            head_shape = (1, 1) if x.shape[1] == 1 else self.head_shape
            batch, _, *sizes = ops.shape(x)
            x = ops.reshape(x, (batch, *head_shape, *sizes))
        if not transposed:
            return x
        last = len(x.shape) - 1
        return ops.transpose(x, (0, 1, last, *range(2, last)))

    def _shape(self, transposed: bool) -> Shape:
        """Return the shape of the scores of a tile with an axis for the groups."""
        heads, group = self.num_key_value_heads, ()
        if self.group_size > 1:
            group = (self.group_size,)
        if transposed:
            return (self.batch, heads, self.size_k, *group, self.size_q)
        return (self.batch, heads, *group, self.size_q, self.size_k)

    def _scores(
        self,
        i: Tensor,
        j: Tensor,
        query: Tensor,
        key: Tensor,
        is_masked: bool,
        transposed: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the scores of a tile.

        Args:
            i: The index of the block of queries.
            j: The index of the block of keys.
            query: `(B, K, G x Q, H)`.
            key: `(B, K, P, H)`.
            is_masked: Whether the mask has to be applied.
            transposed: Whether to return the scores as `(B, K, P, G x Q)`.

        Returns:
            A tuple of the scores, float32 `(B, K, G x Q, P)`, and the derivative of the
            soft cap, `None` without a soft cap.
        """
        left, right = (key, query) if transposed else (query, key)
        scores = ops.matmul(left, ops.swapaxes(right, 2, 3))
        scores = ops.cast(scores, "float32")
        slope = None
        if self.logit_soft_cap is not None:
            capped = ops.tanh(scores / self.logit_soft_cap)
            scores, slope = capped * self.logit_soft_cap, 1.0 - capped * capped
        span_q, span_k = self._spans(i, j)
        shape = ops.shape(scores)
        if self.bias is not None:
            bias = clip_bias(self.bias.evaluate(span_q, span_k))
            scores = ops.reshape(scores, self._shape(transposed))
            scores = scores + self._group(bias, transposed)
        allowed = self._allowed(span_q, span_k) if is_masked else None
        if allowed is not None:
            scores = ops.reshape(scores, self._shape(transposed))
            scores = ops.where(self._group(allowed, transposed), scores, -1e30)
        return ops.reshape(scores, shape), slope

    def _allowed(self, query: Span, key: Span) -> Tensor | None:
        is_key = None
        if not self._has_full_blocks():
            is_key = ops.reshape(key.positions() < self.num_keys, (1, 1, 1, -1))
        if self.mask is None:
            return is_key
        allowed = self.mask.evaluate(query, key)
        return allowed if is_key is None else ops.logical_and(allowed, is_key)

    def _dropout_factors(
        self, i: Tensor, j: Tensor, transposed: bool = False
    ) -> Tensor | None:
        """Return the factors of the weights of a tile, or None without dropout.

        They are 0 for dropped weights and `1 / (1 - rate)` for the others.
        """
        if not self.rate:
            return None
        bits_q = ops.take(self.bits_q, i, axis=0)
        bits_k = ops.take(self.bits_k, j, axis=0)
        if transposed:
            bits = ops.bitwise_xor(bits_k, ops.swapaxes(bits_q, 2, 3))
        else:
            bits = ops.bitwise_xor(bits_q, ops.swapaxes(bits_k, 2, 3))
        bits = hash_bits(bits)
        threshold = round((self.rate - 0.5) * 2**32)
        keep = bits >= ops.cast(min(threshold, 2**31 - 1), "int32")
        return ops.cast(keep, "float32") * (1.0 / (1.0 - self.rate))

    # Passes over all tiles

    def forward(self) -> tuple[Tensor, Tensor]:
        """Return the outputs and the logarithms of the sums of the softmax.

        Returns:
            float32 blocks of queries, `(blocks, B, K, G x Q, V)` and
            `(blocks, B, K, G x Q, 1)`.
        """
        rows = ops.shape(self.queries)[1:4]
        shapes = (*rows, self.values.shape[4]), (*rows, 1)

        def one_block(i: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
            def one_tile(
                j: Tensor,
                is_masked: bool,
                output: Tensor,
                largest: Tensor,
                weight_sum: Tensor,
            ) -> tuple[Tensor, Tensor, Tensor]:
                key, value = take_block(self.keys, j), take_block(self.values, j)
                scores, _ = self._scores(i, j, query, key, is_masked)
                new = ops.maximum(largest, ops.max(scores, axis=3, keepdims=True))
                weights, rescale = ops.exp(scores - new), ops.exp(largest - new)
                weight_sum = weight_sum * rescale
                weight_sum = weight_sum + ops.sum(weights, axis=3, keepdims=True)
                factors = self._dropout_factors(i, j)
                if factors is not None:
                    weights = weights * factors
                weights = ops.cast(weights, value.dtype)
                product = ops.cast(ops.matmul(weights, value), "float32")
                return output * rescale + product, new, weight_sum

            zeros = [ops.zeros(shape, dtype="float32") for shape in shapes]
            output, largest, weight_sum = self._loop_over_keys(
                i, one_tile, (zeros[0], zeros[1] - 1e29, zeros[1])
            )
            if self.sinks is not None:
                sink = self._sink_scores()
                new = ops.maximum(largest, sink)
                rescale = ops.exp(largest - new)
                output = output * rescale
                weight_sum = weight_sum * rescale + ops.exp(sink - new)
                largest = new
            weight_sum = ops.maximum(weight_sum, 1e-30)
            return output / weight_sum, largest + ops.log(weight_sum)

        return map_blocks(one_block, [self.queries], shapes)

    def _sink_scores(self) -> Tensor:
        """Return the scores of the sinks for a block of queries, `(1, K, G x Q, 1)`."""
        sinks = ops.cast(self.sinks, "float32")
        sinks = ops.reshape(sinks, (1, *self.head_shape, 1))
        return ops.repeat(sinks, self.size_q, axis=2) if self.size_q > 1 else sinks

    def gradients(
        self, output: Tensor, log_sums: Tensor, upstream: Tensor
    ) -> list[Tensor]:
        """Return the gradients of query, key, value, the sinks and the bias's tensors.

        Args:
            output: The first result of `forward`.
            log_sums: The second result of `forward`.
            upstream: The gradient of the output, `(B, N, T, V)`.
        """
        upstream = self._split_queries(ops.cast(upstream, self.values.dtype))
        # For each query, the sum over keys of weight times gradient of the weight (D in
        # FlashAttention).
        deltas = ops.sum(ops.cast(upstream, "float32") * output, axis=4, keepdims=True)
        blocks = _QueryBlock(self.queries, upstream, log_sums, deltas)
        queries = self._query_gradients(blocks)
        keys, values = self._key_gradients(blocks)
        gradients = [
            self.join_queries(queries, "float32"),
            self._join_keys(keys),
            self._join_keys(values),
        ]
        if self.sinks is not None:
            gradients.append(self._sink_gradient(log_sums, deltas))
        if self.bias is not None and self.bias.tensors():
            gradients += self._bias_gradients(blocks, self.bias)
        return gradients

    def _score_gradients(
        self,
        i: Tensor,
        j: Tensor,
        block: _QueryBlock,
        key: Tensor,
        value: Tensor,
        is_masked: bool,
        transposed: bool = False,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the weights of a tile and the gradients of its scores.

        Returns:
            A tuple `(weights, of_products, of_scores)`: the weights after dropout, the
            gradient of the products of query and key, and the gradient of the scores
            after the soft cap and the bias, float32.
        """
        dtype = self.values.dtype
        log_sum, delta = block.log_sum, block.delta
        if transposed:
            log_sum, delta = ops.swapaxes(log_sum, 2, 3), ops.swapaxes(delta, 2, 3)
        scores, slope = self._scores(i, j, block.query, key, is_masked, transposed)
        weights = ops.exp(scores - log_sum)
        left, right = (value, block.upstream) if transposed else (block.upstream, value)
        gradient = ops.matmul(left, ops.swapaxes(right, 2, 3))
        gradient = ops.cast(gradient, "float32")
        factors = self._dropout_factors(i, j, transposed)
        dropped = weights
        if factors is not None:
            gradient, dropped = gradient * factors, weights * factors
        of_scores = weights * (gradient - delta)
        of_products = of_scores if slope is None else of_scores * slope
        return ops.cast(dropped, dtype), ops.cast(of_products, dtype), of_scores

    def _query_gradients(self, blocks: _QueryBlock) -> Tensor:
        def one_block(i: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
            query_block = _QueryBlock(*tensors)

            def one_tile(j: Tensor, is_masked: bool, total: Tensor) -> tuple[Tensor]:
                key, value = take_block(self.keys, j), take_block(self.values, j)
                _, gradient, _ = self._score_gradients(
                    i, j, query_block, key, value, is_masked
                )
                return (total + ops.cast(ops.matmul(gradient, key), "float32"),)

            zero = ops.zeros(ops.shape(query_block.query), dtype="float32")
            return self._loop_over_keys(i, one_tile, (zero,))

        (gradients,) = map_blocks(
            one_block, list(blocks), [ops.shape(self.queries)[1:]]
        )
        return gradients

    def _key_gradients(self, blocks: _QueryBlock) -> tuple[Tensor, Tensor]:
        def one_block(j: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
            def one_tile(
                i: Tensor, is_masked: bool, of_key: Tensor, of_value: Tensor
            ) -> tuple[Tensor, Tensor]:
                block = _QueryBlock(*(take_block(x, i) for x in blocks))
                weights, gradient, _ = self._score_gradients(
                    i, j, block, key, value, is_masked, transposed=True
                )
                of_key = of_key + ops.cast(ops.matmul(gradient, block.query), "float32")
                of_value = of_value + ops.cast(
                    ops.matmul(weights, block.upstream), "float32"
                )
                return of_key, of_value

            zeros = [ops.zeros(ops.shape(x), dtype="float32") for x in (key, value)]
            return self._loop_over_queries(j, one_tile, tuple(zeros))

        tensors = [self.keys, self.values]
        shapes = [ops.shape(x)[1:] for x in tensors]
        keys, values = map_blocks(one_block, tensors, shapes)
        return keys, values

    def _sink_gradient(self, log_sums: Tensor, deltas: Tensor) -> Tensor:
        gradient = -ops.exp(self._sink_scores() - log_sums) * deltas
        shape = (-1, *self.head_shape, self.size_q)
        gradient = ops.sum(ops.reshape(gradient, shape), axis=(0, 3))
        return ops.reshape(gradient, self.sinks.shape)

    def _bias_gradients(self, blocks: _QueryBlock, bias: Bias) -> list[Tensor]:
        tensors = bias.tensors()
        sums = []
        for tensor in tensors:
            shape = list(ops.shape(tensor))
            if len(shape) == 4:  # Axes of positions, extended to complete blocks.
                for axis, length in (
                    (2, self.count_q * self.size_q),
                    (3, self.count_k * self.size_k),
                ):
                    if tensor.shape[axis] != 1:
                        shape[axis] = length
            sums.append(ops.zeros(shape, dtype="float32"))
        shape = (self.batch, self.num_heads, self.size_q, self.size_k)

        def one_block(i: Tensor, *sums: Tensor) -> tuple[Tensor, ...]:
            block = _QueryBlock(*(take_block(x, i) for x in blocks))

            def one_tile(j: Tensor, is_masked: bool, *sums: Tensor) -> list[Tensor]:
                key, value = take_block(self.keys, j), take_block(self.values, j)
                *_, gradient = self._score_gradients(i, j, block, key, value, is_masked)
                span_q, span_k = self._spans(i, j)
                gradient = ops.reshape(gradient, shape)
                return bias.add_gradient(list(sums), gradient, span_q, span_k)

            return self._loop_over_keys(i, one_tile, sums)

        sums = loop(0, self.count_q, one_block, sums)
        return [_crop(total, ops.shape(tensor)) for total, tensor in zip(sums, tensors)]

    def _loop_over_keys(
        self,
        i: Tensor,
        one_tile: collections.abc.Callable[..., collections.abc.Iterable[Tensor]],
        state: tuple[Tensor, ...],
    ) -> tuple[Tensor, ...]:
        return loop_over_active(self.active_keys, i, self.count_k, one_tile, state)

    def _loop_over_queries(
        self,
        j: Tensor,
        one_tile: collections.abc.Callable[..., collections.abc.Iterable[Tensor]],
        state: tuple[Tensor, ...],
    ) -> tuple[Tensor, ...]:
        return loop_over_active(self.active_queries, j, self.count_q, one_tile, state)


def _starts(count: int | Tensor, size: int) -> np.ndarray | Tensor:
    if isinstance(count, int):
        return np.arange(count, dtype="int32") * size
    return ops.arange(count, dtype="int32") * size


def _broadcast(table: np.ndarray | Tensor, shape: Shape) -> np.ndarray | Tensor:
    is_static = isinstance(table, np.ndarray) and all(isinstance(n, int) for n in shape)
    return (np if is_static else ops).broadcast_to(table, shape)  # pyright: ignore


def _transpose(table: np.ndarray | Tensor) -> np.ndarray | Tensor:
    return table.T if isinstance(table, np.ndarray) else ops.transpose(table)


def _pad(x: Tensor, length: int | Tensor, padded_length: int | Tensor) -> Tensor:
    """Pad the third axis of `(B, N, T, H)` with zeros to `padded_length`."""
    if isinstance(length, int) and length == padded_length:
        return x
    shape = ops.shape(x)
    zeros = ops.zeros((*shape[:2], padded_length - length, shape[3]), dtype=x.dtype)
    return ops.concatenate([x, zeros], axis=2)


def _crop(x: Tensor, shape: Shape) -> Tensor:
    return ops.slice(x, [0] * len(shape), shape)
