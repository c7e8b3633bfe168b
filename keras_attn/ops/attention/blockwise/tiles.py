"""Blocks of queries and of keys, and what attention does with a pair of them."""

import numpy as np
from keras import ops

from keras_attn.ops.attention.blockwise.dropout import mixed
from keras_attn.ops.attention.blockwise.loops import Live, block, for_each, loop, over
from keras_attn.ops.attention.softmax import bounded
from keras_attn.ops.masks.kinds import all_of
from keras_attn.ops.masks.positions import Blocks, Span

__all__ = ["Tiles"]


class Tiles:
    """The pairs of a block of queries and a block of keys, and what is done with them.

    Arguments are those of `blockwise_attention`. In what follows G = N / K heads share
    a key, Q and P are the sizes of a block of queries and of keys.
    """

    def __init__(
        self,
        query,
        key,
        value,
        mask,
        bias,
        logit_soft_cap,
        sinks,
        dropout,
        query_start,
        block_sizes,
    ):
        self.mask, self.bias, self.logit_soft_cap, self.sinks = (
            mask,
            bias,
            logit_soft_cap,
            sinks,
        )
        self.query_start = query_start
        self.size_q, self.size_k = block_sizes
        self.rows, self.heads, self.length, _ = ops.shape(query)
        self.kv_heads, self.total = ops.shape(key)[1:3]
        self.groups = self.heads // self.kv_heads
        self.count_q = -(-self.length // self.size_q)
        self.count_k = -(-self.total // self.size_k)
        # (blocks, B, K, G x Q, H) and (blocks, B, K, P, H): a block in one piece.
        self.queries = self._cut_queries(query)
        self.keys, self.values = self._cut_keys(key), self._cut_keys(value)
        self.rate, *bits = dropout
        if bits:
            self.bits_q = self._cut_queries(ops.expand_dims(bits[0], -1))
            self.bits_k = self._cut_keys(ops.expand_dims(bits[1], -1))
        self._find_live()

    # Cutting and joining

    def _cut_queries(self, x):
        x = _padded(x, self.length, self.count_q * self.size_q)
        shape = (self.rows, self.kv_heads, self.groups, self.count_q, self.size_q)
        x = ops.transpose(ops.reshape(x, (*shape, x.shape[3])), (3, 0, 1, 2, 4, 5))
        shape = (self.rows, self.kv_heads, self.groups * self.size_q, x.shape[5])
        return ops.reshape(x, (self.count_q, *shape))

    def _cut_keys(self, x):
        x = _padded(x, self.total, self.count_k * self.size_k)
        rows, heads = ops.shape(x)[:2]
        x = ops.reshape(x, (rows, heads, self.count_k, self.size_k, x.shape[3]))
        return ops.transpose(x, (2, 0, 1, 3, 4))

    def whole(self, x, dtype):
        """The blocks of queries joined, `(B, N, T, V)`."""
        shape = (self.count_q, self.rows, self.kv_heads, self.groups, self.size_q)
        x = ops.transpose(
            ops.reshape(ops.cast(x, dtype), (*shape, x.shape[4])), (1, 2, 3, 0, 4, 5)
        )
        x = ops.reshape(x, (self.rows, self.heads, -1, x.shape[5]))
        return x[:, :, : self.length]

    def _whole_keys(self, x):
        x = ops.transpose(x, (1, 2, 0, 3, 4))
        x = ops.reshape(x, (self.rows, self.kv_heads, -1, x.shape[4]))
        return x[:, :, : self.total]

    # Which blocks there is anything to do for

    def _find_live(self):
        self.live_keys = self.live_queries = None
        starts = _starts(self.count_q, self.size_q) + self.query_start
        queries = Blocks(starts, self.size_q)
        keys = Blocks(_starts(self.count_k, self.size_k), self.size_k)
        live, sure = None, []
        if self.mask is not None:
            live = self.mask.overlap(queries, keys)
            sure.append(self.mask.covers(queries, keys))
        if not self._fills_blocks():
            sure.append(keys.last[None, :] < self.total)
        if live is None and (not sure or sure[0] is None):
            return  # Nothing to skip, and the same to do for all.
        shape = (self.count_q, self.count_k)
        sure = np.array(False) if sure[0] is None else all_of(sure)
        live, sure = (
            _broadcast(table, shape)
            for table in (np.array(True) if live is None else live, sure)
        )
        self.live_keys = Live(live, sure)
        self.live_queries = Live(_turned(live), _turned(sure))

    def _fills_blocks(self):
        """Whether the last block of keys is known to be as full as the others."""
        return isinstance(self.total, int) and self.total % self.size_k == 0

    # One tile

    def _spans(self, i, j):
        query = Span(i * self.size_q + self.query_start, self.size_q)
        return query, Span(j * self.size_k, self.size_k)

    def _by_group(self, x, turned):
        """What broadcasts to `(B, N, Q, P)` as what does to scores with a G axis."""
        if self.groups > 1:
            heads = x.shape[1]
            by_group = (1, 1) if heads == 1 else (self.kv_heads, self.groups)
            rows, _, *sizes = ops.shape(x)
            x = ops.reshape(x, (rows, *by_group, *sizes))
        if not turned:
            return x
        last = len(x.shape) - 1
        return ops.transpose(x, (0, 1, last, *range(2, last)))

    def _shape(self, turned):
        groups = (self.groups,) if self.groups > 1 else ()
        if turned:
            return (self.rows, self.kv_heads, self.size_k, *groups, self.size_q)
        return (self.rows, self.kv_heads, *groups, self.size_q, self.size_k)

    def _scores(self, i, j, query, key, masked, turned=False):
        """Scores of a tile, float32 `(B, K, G x Q, P)`, or turned, `(B, K, P, G x Q)`.

        Args:
            masked: bool, whether the mask has anything to say of this tile.

        Returns:
            A pair of them and of the slope of the soft cap, None without one.
        """
        left, right = (key, query) if turned else (query, key)
        scores = ops.matmul(left, ops.swapaxes(right, 2, 3))
        scores = ops.cast(scores, "float32")
        slope = None
        if self.logit_soft_cap is not None:
            bent = ops.tanh(scores / self.logit_soft_cap)
            scores, slope = bent * self.logit_soft_cap, 1.0 - bent * bent
        span_q, span_k = self._spans(i, j)
        shape = ops.shape(scores)
        if self.bias is not None:
            bias = bounded(self.bias.evaluate(span_q, span_k))
            scores = ops.reshape(scores, self._shape(turned))
            scores = scores + self._by_group(bias, turned)
        allowed = self._allowed(span_q, span_k) if masked else None
        if allowed is not None:
            scores = ops.reshape(scores, self._shape(turned))
            scores = ops.where(self._by_group(allowed, turned), scores, -1e30)
        return ops.reshape(scores, shape), slope

    def _allowed(self, query, key):
        inside = None
        if not self._fills_blocks():
            inside = ops.reshape(key.positions() < self.total, (1, 1, 1, -1))
        if self.mask is None:
            return inside
        allowed = self.mask.evaluate(query, key)
        return allowed if inside is None else ops.logical_and(allowed, inside)

    def _kept(self, i, j, turned=False):
        """Factors of a tile's weights: zero where dropped, else more than one."""
        if not self.rate:
            return None
        bits_q = ops.take(self.bits_q, i, axis=0)
        bits_k = ops.take(self.bits_k, j, axis=0)
        if turned:
            bits = ops.bitwise_xor(bits_k, ops.swapaxes(bits_q, 2, 3))
        else:
            bits = ops.bitwise_xor(bits_q, ops.swapaxes(bits_k, 2, 3))
        bits = mixed(bits)
        least = round((self.rate - 0.5) * 2**32)
        kept = bits >= ops.cast(min(least, 2**31 - 1), "int32")
        return ops.cast(kept, "float32") * (1.0 / (1.0 - self.rate))

    # Passes over all tiles

    def forward(self):
        """Outputs and logarithms of the softmax's sums, float32 blocks of queries."""
        rows = ops.shape(self.queries)[1:4]
        shapes = (*rows, self.values.shape[4]), (*rows, 1)

        def one_block(i, query):
            def one_tile(j, masked, output, largest, total):
                key, value = block(self.keys, j), block(self.values, j)
                scores, _ = self._scores(i, j, query, key, masked)
                new = ops.maximum(largest, ops.max(scores, axis=3, keepdims=True))
                weights, shrunk = ops.exp(scores - new), ops.exp(largest - new)
                total = total * shrunk + ops.sum(weights, axis=3, keepdims=True)
                kept = self._kept(i, j)
                if kept is not None:
                    weights = weights * kept
                weights = ops.cast(weights, value.dtype)
                found = ops.cast(ops.matmul(weights, value), "float32")
                return output * shrunk + found, new, total

            zeros = [ops.zeros(shape, dtype="float32") for shape in shapes]
            output, largest, total = self._through_keys(
                i, one_tile, (zeros[0], zeros[1] - 1e29, zeros[1])
            )
            if self.sinks is not None:
                sink = self._sink()
                new = ops.maximum(largest, sink)
                shrunk = ops.exp(largest - new)
                output, total = output * shrunk, total * shrunk + ops.exp(sink - new)
                largest = new
            total = ops.maximum(total, 1e-30)
            return output / total, largest + ops.log(total)

        return for_each(one_block, [self.queries], shapes)

    def _sink(self):
        """The scores of the sinks for a block of queries, `(1, K, G x Q, 1)`."""
        sinks = ops.cast(self.sinks, "float32")
        sinks = ops.reshape(sinks, (1, self.kv_heads, self.groups, 1))
        return ops.repeat(sinks, self.size_q, axis=2) if self.size_q > 1 else sinks

    def gradients(self, output, log_sums, upstream):
        """Gradients of query, key, value, the sinks and the bias's tensors, a list."""
        dtype = self.values.dtype
        upstream = self._cut_queries(ops.cast(upstream, dtype))
        # Of each query: the mean of the weights' gradients, under the weights.
        means = ops.sum(ops.cast(upstream, "float32") * output, axis=4, keepdims=True)

        def of_scores(i, j, of_query, key, value, masked, turned=False):
            """Weights as applied, and gradients of products and of sums of scores."""
            query, above, log_sum, mean = of_query
            if turned:
                log_sum, mean = ops.swapaxes(log_sum, 2, 3), ops.swapaxes(mean, 2, 3)
            scores, slope = self._scores(i, j, query, key, masked, turned)
            weights = ops.exp(scores - log_sum)
            left, right = (value, above) if turned else (above, value)
            gradient = ops.matmul(left, ops.swapaxes(right, 2, 3))
            gradient = ops.cast(gradient, "float32")
            kept = self._kept(i, j, turned)
            used = weights
            if kept is not None:
                gradient, used = gradient * kept, weights * kept
            of_sums = weights * (gradient - mean)
            of_products = of_sums if slope is None else of_sums * slope
            return ops.cast(used, dtype), ops.cast(of_products, dtype), of_sums

        blocks_q = [self.queries, upstream, log_sums, means]

        def of_query(i, *of_query):
            def one_tile(j, masked, total):
                key, value = block(self.keys, j), block(self.values, j)
                _, gradient, _ = of_scores(i, j, of_query, key, value, masked)
                return (total + ops.cast(ops.matmul(gradient, key), "float32"),)

            zero = ops.zeros(ops.shape(of_query[0]), dtype="float32")
            return self._through_keys(i, one_tile, (zero,))

        (queries,) = for_each(of_query, blocks_q, [ops.shape(self.queries)[1:]])

        def of_key(j, key, value):
            def one_tile(i, masked, of_key, of_value):
                of_query = [block(x, i) for x in blocks_q]
                used, gradient, _ = of_scores(
                    i, j, of_query, key, value, masked, turned=True
                )
                of_key = of_key + ops.cast(ops.matmul(gradient, of_query[0]), "float32")
                of_value = of_value + ops.cast(ops.matmul(used, of_query[1]), "float32")
                return of_key, of_value

            zeros = [ops.zeros(ops.shape(x), dtype="float32") for x in (key, value)]
            return self._through_queries(j, one_tile, zeros)

        blocks_k = [self.keys, self.values]
        shapes = [ops.shape(x)[1:] for x in blocks_k]
        keys, values = for_each(of_key, blocks_k, shapes)
        found = [self.whole(queries, "float32"), *map(self._whole_keys, (keys, values))]
        if self.sinks is not None:
            found.append(self._sink_gradient(log_sums, means))
        if self.bias is not None and self.bias.tensors():
            found += self._bias_gradients(of_scores, blocks_q)
        return found

    def _sink_gradient(self, log_sums, means):
        gradient = -ops.exp(self._sink() - log_sums) * means
        shape = (-1, self.kv_heads, self.groups, self.size_q)
        gradient = ops.sum(ops.reshape(gradient, shape), axis=(0, 3))
        return ops.reshape(gradient, self.sinks.shape)

    def _bias_gradients(self, of_scores, blocks_q):
        tensors = self.bias.tensors()
        sums = []
        for tensor in tensors:
            shape = list(ops.shape(tensor))
            if len(shape) == 4:  # by positions: room for whole blocks
                for axis, room in (
                    (2, self.count_q * self.size_q),
                    (3, self.count_k * self.size_k),
                ):
                    if tensor.shape[axis] != 1:
                        shape[axis] = room
            sums.append(ops.zeros(shape, dtype="float32"))
        shape = (self.rows, self.heads, self.size_q, self.size_k)

        def one_block(i, *sums):
            of_query = [block(x, i) for x in blocks_q]

            def one_tile(j, masked, *sums):
                key, value = block(self.keys, j), block(self.values, j)
                *_, gradient = of_scores(i, j, of_query, key, value, masked)
                span_q, span_k = self._spans(i, j)
                gradient = ops.reshape(gradient, shape)
                return self.bias.add_gradient(list(sums), gradient, span_q, span_k)

            return self._through_keys(i, one_tile, sums)

        sums = loop(0, self.count_q, one_block, sums)
        return [
            _cropped(total, ops.shape(tensor)) for total, tensor in zip(sums, tensors)
        ]

    def _through_keys(self, i, one_tile, state):
        return over(self.live_keys, i, self.count_k, one_tile, state)

    def _through_queries(self, j, one_tile, state):
        return over(self.live_queries, j, self.count_q, one_tile, state)


def _starts(count, size):
    if isinstance(count, int):
        return np.arange(count, dtype="int32") * size
    return ops.arange(count, dtype="int32") * size


def _broadcast(table, shape):
    known = isinstance(table, np.ndarray) and all(isinstance(n, int) for n in shape)
    return (np if known else ops).broadcast_to(table, shape)


def _turned(table):
    return table.T if isinstance(table, np.ndarray) else ops.transpose(table)


def _padded(x, length, room):
    """`(B, N, T, H)` with zeros up to `room` of T."""
    if isinstance(length, int) and length == room:
        return x
    shape = ops.shape(x)
    zeros = ops.zeros((*shape[:2], room - length, shape[3]), dtype=x.dtype)
    return ops.concatenate([x, zeros], axis=2)


def _cropped(x, shape):
    return ops.slice(x, [0] * len(shape), shape)
