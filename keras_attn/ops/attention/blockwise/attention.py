"""Exact attention in memory that grows with the length, not with its square.

Queries and keys are cut into blocks. The scores of one block of queries and one of keys
are made, used and forgotten: going through the keys, each query carries the largest
score so far and the sums that are relative to it (the online softmax). The gradient
makes the scores again, once for the queries' and once for the keys' and values', so
that no pass writes in more than one place. Blocks that the mask rules out are skipped.

References:
    Rabe and Staats 2021 (https://arxiv.org/abs/2112.05682), Dao et al. 2022
    (https://arxiv.org/abs/2205.14135).
"""

import itertools

from keras import ops

from keras_attn.ops.attention.blockwise.dropout import random_bits
from keras_attn.ops.attention.blockwise.tiles import Tiles

__all__ = ["blockwise_attention"]

# Scores of one block of queries and one of keys, all rows and heads, at most: 16 MiB.
_MOST_SCORES = 2**22


def blockwise_attention(
    query,
    key,
    value,
    mask=None,
    bias=None,
    logit_soft_cap=None,
    sinks=None,
    dropout=0.0,
    seed=None,
    query_start=0,
    block_sizes=None,
):
    """See `keras_attn.ops.dot_product_attention`, whose entry this is not.

    Args:
        query: `(B, N, T, H)`, scaled.
        key: `(B, K, S, H)`, N a multiple of K.
        value: `(B, K, S, V)`.
        mask: a `Mask` or None.
        bias: a `Bias` or None.
        logit_soft_cap, sinks, dropout, seed, query_start: see the entry.
        block_sizes: pair of ints, queries and keys of a block.

    Returns:
        `(B, N, T, V)`.
    """
    bits = []
    if dropout > 0.0:
        shapes = ops.shape(query)[:3], (1, 1, ops.shape(key)[2])
        bits = [random_bits(shape, seed, i) for i, shape in enumerate(shapes)]
    held = [
        [query, key, value],
        [] if sinks is None else [sinks],
        [] if bias is None else bias.tensors(),
        [] if mask is None else mask.tensors(),
        bits,
        [query_start] if ops.is_tensor(query_start) else [],
    ]
    block_sizes = block_sizes or _block_sizes(query, key)

    @ops.custom_gradient
    def attend(*tensors):
        # All that a gradient could ask for comes in as an argument.
        main, own_sinks, of_bias, of_mask, own_bits, start = _like(held, tensors)
        query, key, value = main
        tiles = Tiles(
            query,
            key,
            value,
            mask and mask.with_tensors(of_mask),
            bias and bias.with_tensors(of_bias),
            logit_soft_cap,
            own_sinks[0] if own_sinks else None,
            (dropout, *own_bits),
            start[0] if start else query_start,
            block_sizes,
        )
        output, log_sums = tiles.forward()

        def gradient(*arguments, upstream=None):
            if upstream is None:
                (upstream,) = arguments
            found = tiles.gradients(output, log_sums, upstream)
            return tuple(
                None if x is None else ops.cast(x, tensor.dtype)
                for tensor, x in zip(
                    tensors, found + [None] * (len(tensors) - len(found))
                )
            )

        return tiles.whole(output, value.dtype), gradient

    # Read, since a custom gradient takes no variables on TensorFlow.
    return attend(*(ops.reshape(x, ops.shape(x)) for x in itertools.chain(*held)))


def _like(lists, values):
    """`values` in lists as long as `lists`."""
    values = iter(values)
    return [list(itertools.islice(values, len(x))) for x in lists]


def _block_sizes(query, key):
    rows, heads = query.shape[:2]
    queries, keys = 256, 512
    many = (rows or 1) * heads
    while many * queries * keys > _MOST_SCORES and keys > 64:
        queries, keys = (
            (queries // 2, keys) if queries >= keys else (queries, keys // 2)
        )

    def fitting(size, length):
        # No larger than what there is, in sixteens.
        return size if length is None else min(size, -(-length // 16) * 16)

    return fitting(queries, query.shape[2]), fitting(keys, key.shape[2])
