"""Additive attention: scores from a small network."""

# Keras's functions are inferred to return None for a backend without them.
# pyright: reportOptionalOperand=false, reportOptionalSubscript=false

import keras
from keras import ops

from keras_attn._types import Tensor
from keras_attn.ops.attention.softmax import (
    evaluate_mask,
    softmax_weights,
    transpose_heads,
    weighted_sum,
    zero_padding,
)
from keras_attn.ops.masks.kinds import Mask
from keras_attn.ops.masks.positions import Span

__all__ = ["additive_attention"]


def additive_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    vector: Tensor,
    mask: Mask | None = None,
    dropout: float = 0.0,
    seed: keras.random.SeedGenerator | int | None = None,
    query_start: int | Tensor = 0,
    return_weights: bool = False,
    heads_first: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Compute `softmax(vector . tanh(query + key)) . value` for each head.

    The sums are a tensor of B x N x T x S x H numbers, H times the memory of
    dot-product scores.

    Args:
        query: floats `(B, T, N, H)`.
        key: floats `(B, S, N, H)`.
        value: floats `(B, S, N, V)`.
        vector: floats `(H,)`.
        mask: A `keras_attn.ops.masks.Mask`, or `None`.
        dropout: Rate in [0, 1) of the weights to drop; the others are scaled up.
        seed: A `keras.random.SeedGenerator` or an int, required with `dropout`.
        query_start: The position of the first query if that of the first key is 0, an
            int or an int32 scalar tensor.
        return_weights: Whether to return the weights, too.
        heads_first: Whether key and value are `(B, N, S, H)` and `(B, N, S, V)`.

    Returns:
        The output, `(B, T, N, V)` of the dtype of `value`; with `return_weights` a
        tuple `(output, weights)`, with weights `(B, N, T, S)` before dropout.

    Example:
        >>> import numpy as np
        >>> from keras_attn.ops import additive_attention
        >>> x = np.random.default_rng(0).normal(size=(2, 7, 1, 16)).astype("float32")
        >>> tuple(additive_attention(x, x, x, np.ones(16)).shape)
        (2, 7, 1, 16)

    Reference:
        Bahdanau et al. 2014, "Neural Machine Translation by Jointly Learning to Align
        and Translate", appendix A.1.2 (https://arxiv.org/abs/1409.0473).
    """
    if not heads_first:
        key, value = zero_padding(key, value, mask)
        key, value = transpose_heads(key), transpose_heads(value)
    queries, keys = Span(query_start, ops.shape(query)[1]), Span(0, ops.shape(key)[2])
    allowed, query_has_key = evaluate_mask(mask, queries, keys)
    sums = ops.expand_dims(transpose_heads(query), 3) + ops.expand_dims(key, 2)
    scores = ops.sum(ops.tanh(sums) * ops.cast(vector, sums.dtype), axis=-1)
    weights = softmax_weights(scores, allowed, key.dtype)
    return weighted_sum(weights, value, query_has_key, dropout, seed, return_weights)
