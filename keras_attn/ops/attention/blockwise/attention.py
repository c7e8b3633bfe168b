"""Exact attention in memory that grows linearly with the length.

Queries and keys are split into blocks. The scores of one block of queries and one of
keys are computed, used and discarded: while it iterates over the keys, each query
carries its largest score so far and the sums relative to it (the online softmax). The
gradient computes the scores again, once for the queries and once for the keys and
values, so that each pass accumulates into one place only. Fully masked pairs of blocks
are skipped.

References:
    Rabe and Staats 2021 (https://arxiv.org/abs/2112.05682), Dao et al. 2022
    (https://arxiv.org/abs/2205.14135).
"""

# Keras's functions are inferred to return None for a backend without them.
# pyright: reportOptionalSubscript=false

import itertools
import typing

import keras
from keras import ops

from keras_attn._types import Tensor
from keras_attn.ops.attention.blockwise.dropout import random_bits
from keras_attn.ops.attention.blockwise.tiles import Tiles
from keras_attn.ops.masks.kinds import Mask
from keras_attn.ops.position.bias import Bias

__all__ = ["blockwise_attention"]

# Most scores of one pair of blocks, over the batch and all heads: 16 MiB.
_MAX_SCORES = 2**22


def blockwise_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Mask | None = None,
    bias: Bias | None = None,
    logit_soft_cap: float | None = None,
    sinks: Tensor | None = None,
    dropout: float = 0.0,
    seed: keras.random.SeedGenerator | int | None = None,
    query_start: int | Tensor = 0,
    block_sizes: tuple[int, int] | None = None,
) -> Tensor:
    """Compute dot-product attention block by block.

    `keras_attn.ops.dot_product_attention` is the public function and documents the
    arguments that are not listed here.

    Args:
        query: `(B, N, T, H)`, scaled.
        key: `(B, K, S, H)`, N a multiple of K.
        value: `(B, K, S, V)`.
        block_sizes: The numbers of queries and of keys per block.

    Returns:
        `(B, N, T, V)`.
    """
    bits = []
    if dropout > 0.0:
        shapes = ops.shape(query)[:3], (1, 1, ops.shape(key)[2])
        bits = [random_bits(shape, seed, i) for i, shape in enumerate(shapes)]
    groups = [
        [query, key, value],
        [] if sinks is None else [sinks],
        [] if bias is None else bias.tensors(),
        [] if mask is None else mask.tensors(),
        bits,
        [query_start] if ops.is_tensor(query_start) else [],
    ]
    sizes = block_sizes or _block_sizes(query, key)

    @ops.custom_gradient
    def attend(*tensors: Tensor) -> tuple[Tensor, typing.Any]:
        # A custom gradient requires every tensor that it uses as an argument.
        (query, key, value), own_sinks, bias_tensors, mask_tensors, own_bits, start = (
            _split_like(groups, tensors)
        )
        tiles = Tiles(
            query,
            key,
            value,
            mask and mask.with_tensors(mask_tensors),
            bias and bias.with_tensors(bias_tensors),
            logit_soft_cap,
            own_sinks[0] if own_sinks else None,
            (dropout, *own_bits),
            start[0] if start else query_start,
            sizes,
        )
        output, log_sums = tiles.forward()

        def gradient(
            *arguments: Tensor, upstream: Tensor | None = None
        ) -> tuple[Tensor | None, ...]:
            if upstream is None:
                (upstream,) = arguments
            gradients = tiles.gradients(output, log_sums, upstream)
            missing = [None] * (len(tensors) - len(gradients))
            return tuple(
                None if x is None else ops.cast(x, tensor.dtype)
                for tensor, x in zip(tensors, [*gradients, *missing])
            )

        return tiles.join_queries(output, value.dtype), gradient

    # Reshaping reads variables, which TensorFlow's custom gradients do not accept.
    return attend(*(ops.reshape(x, ops.shape(x)) for x in itertools.chain(*groups)))


def _split_like(
    groups: list[list[Tensor]], values: tuple[Tensor, ...]
) -> list[list[Tensor]]:
    """Split `values` into lists of the same lengths as `groups`."""
    remaining = iter(values)
    return [list(itertools.islice(remaining, len(group))) for group in groups]


def _block_sizes(query: Tensor, key: Tensor) -> tuple[int, int]:
    """Return the numbers of queries and of keys per block."""
    batch, heads = query.shape[:2]
    queries, keys = 256, 512
    stacked = (batch or 1) * heads
    while stacked * queries * keys > _MAX_SCORES and keys > 64:
        queries, keys = (
            (queries // 2, keys) if queries >= keys else (queries, keys // 2)
        )

    def clip(size: int, length: int | None) -> int:
        # At most the length, rounded up to a multiple of 16.
        return size if length is None else min(size, -(-length // 16) * 16)

    return clip(queries, query.shape[2]), clip(keys, key.shape[2])
