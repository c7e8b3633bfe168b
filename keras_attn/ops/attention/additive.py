"""Additive attention: a small network scores each pair of query and key."""

from keras import ops

from keras_attn.ops.attention.softmax import (
    evaluate,
    softmax_weights,
    swap,
    weighted_sum,
)
from keras_attn.ops.masks.positions import Span

__all__ = ["additive_attention"]


def additive_attention(
    query,
    key,
    value,
    vector,
    mask=None,
    dropout=0.0,
    seed=None,
    query_start=0,
    return_weights=False,
    heads_first=False,
):
    """`softmax(vector . tanh(query + key)) . value`, head by head.

    The sums are a tensor of B x N x T x S x H numbers: H times what dot products take.

    Args:
        query: `(B, T, N, H)`.
        key: `(B, S, N, H)`.
        value: `(B, S, N, V)`.
        vector: `(H,)`.
        mask, dropout, seed, query_start, return_weights, heads_first: see
            `keras_attn.ops.dot_product_attention`.

    Returns:
        As `keras_attn.ops.dot_product_attention`.

    Example:
        >>> x = keras.random.normal((2, 7, 1, 16))
        >>> additive_attention(x, x, x, vector=keras.ops.ones(16)).shape
        (2, 7, 1, 16)

    Reference:
        Bahdanau et al. 2014, "Neural Machine Translation by Jointly Learning to Align
        and Translate", appendix A.1.2 (https://arxiv.org/abs/1409.0473).
    """
    if not heads_first:
        key, value = swap(key), swap(value)
    queries, keys = Span(query_start, ops.shape(query)[1]), Span(0, ops.shape(key)[2])
    allowed, row_has_key = evaluate(mask, queries, keys)
    sums = ops.expand_dims(swap(query), 3) + ops.expand_dims(key, 2)
    scores = ops.sum(ops.tanh(sums) * ops.cast(vector, sums.dtype), axis=-1)
    weights = softmax_weights(scores, allowed, key.dtype)
    return weighted_sum(weights, value, row_has_key, dropout, seed, return_weights)
