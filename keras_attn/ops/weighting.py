"""From scores to weights, from weights to an output: the same for every score."""

import keras
from keras import ops

from keras_attn.ops.masks import Span

__all__ = [
    "bounded",
    "evaluate",
    "head_by_head",
    "softmax_weights",
    "swap",
    "weighted_sum",
    "zero_rows",
]


def evaluate(mask, query_start, num_queries, num_keys):
    """A mask over queries from `query_start` on and all keys.

    Returns:
        A pair: which query may attend to which key, bool that broadcasts to
        `(B, N, T, S)`, or None; and which query has a key at all, of the same rank, or
        None where all have.
    """
    if mask is None:
        return None, None
    allowed = mask.evaluate(Span(query_start, num_queries), Span(0, num_keys))
    if not mask.can_exclude_every_key:
        return allowed, None
    return allowed, ops.any(allowed, axis=-1, keepdims=True)


def softmax_weights(scores, allowed, dtype, bias=None):
    """Attention weights `(B, N, T, S)`, uniform in rows with nothing allowed.

    Args:
        scores: floats `(B, N, T, S)`.
        allowed: what `evaluate` gave.
        dtype: of the weights; the softmax is computed in float32.
        bias: floats that broadcast to the scores, or None.
    """
    scores = ops.cast(scores, "float32")
    if bias is not None:
        scores = scores + bounded(ops.cast(bias, "float32"))
    if allowed is not None:
        scores = ops.where(allowed, scores, -1e30)
    if scores.shape[-1] == 1:  # Keras warns of such a softmax, rightly elsewhere.
        weights = ops.exp(scores - scores)  # ones, with a gradient as well: zero
    else:
        weights = ops.softmax(scores, axis=-1)
    return ops.cast(weights, dtype)


def weighted_sum(weights, value, row_has_key, dropout, seed, return_weights):
    """The output `(B, T, N, V)`; with `return_weights` a pair of it and the weights.

    Args:
        weights: what `softmax_weights` gave.
        value: `(B, N, S, V)`.
        row_has_key: what `evaluate` gave.
        dropout, seed, return_weights: see `keras_attn.ops.dot_product_attention`.
    """
    dropped = weights
    if dropout > 0.0:
        dropped = keras.random.dropout(weights, dropout, seed=seed)
    product = head_by_head if weights.shape[2] == 1 else ops.matmul
    output = zero_rows(swap(product(dropped, value)), row_has_key)
    if not return_weights:
        return output
    if row_has_key is not None:
        weights = ops.where(row_has_key, weights, ops.zeros_like(weights))
    return output, weights


def swap(x):
    """`(B, T, N, H)` to `(B, N, T, H)`, and back."""
    return ops.transpose(x, (0, 2, 1, 3))


def head_by_head(x, y):
    """`ops.matmul(x, y)` of `(B, N, ...)`, as one stack of B x N matrices.

    As a cache is: XLA would copy one that came to the product in another shape.
    """
    rows, heads, length, _ = ops.shape(x)
    stacks = (ops.reshape(z, (rows * heads, *ops.shape(z)[2:])) for z in (x, y))
    return ops.reshape(ops.matmul(*stacks), (rows, heads, length, ops.shape(y)[3]))


def bounded(bias):
    """A bias that stays above what stands for a forbidden key."""
    dtype = keras.backend.standardize_dtype(bias.dtype)
    return ops.maximum(bias, ops.cast(-3e4 if dtype == "float16" else -1e29, dtype))


def zero_rows(output, row_has_key):
    """Zero where a query had nothing to attend to; `(B, 1|N, 1|T, 1)` to BTN1."""
    if row_has_key is None:
        return output
    return ops.where(swap(row_has_key), output, ops.zeros_like(output))
