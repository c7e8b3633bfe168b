"""From scores to weights, from weights to an output: the same for every score."""

import keras
from keras import ops

__all__ = [
    "bounded",
    "by_head",
    "by_kv_head",
    "evaluate",
    "head_by_head",
    "softmax_weights",
    "swap",
    "weighted_sum",
    "zero_rows",
]


def evaluate(mask, queries, keys):
    """A mask over the positions of queries and of keys.

    Args:
        mask: a `Mask` or None.
        queries, keys: `Span`s; `keys` may be `Held`.

    Returns:
        A pair: which query may attend to which key, bool that broadcasts to
        `(B, N, T, S)`, or None; and which query has a key at all, of the same rank, or
        None where all have.
    """
    if mask is None:
        return None, None
    allowed = mask.evaluate(queries, keys)
    if not mask.can_exclude_every_key:
        return allowed, None
    return allowed, ops.any(allowed, axis=-1, keepdims=True)


def softmax_weights(scores, allowed, dtype, bias=None, sinks=None):
    """Attention weights `(B, N, T, S)`, uniform in rows with nothing allowed.

    Args:
        scores: floats `(B, N, T, S)`.
        allowed: what `evaluate` gave.
        dtype: of the weights; the softmax is computed in float32.
        bias: float32 that broadcasts to the scores, or None.
        sinks: float32 `(N,)`, the scores of one more key for each head, which is in
            the softmax alone, or None.
    """
    scores = ops.cast(scores, "float32")
    if bias is not None:
        scores = scores + bounded(bias)
    if allowed is not None:
        scores = ops.where(allowed, scores, -1e30)
    if sinks is not None:
        sinks = ops.reshape(ops.cast(sinks, "float32"), (1, -1, 1, 1))
        sinks = ops.broadcast_to(sinks, (*ops.shape(scores)[:3], 1))
        weights = ops.softmax(ops.concatenate([scores, sinks], axis=3), axis=3)
        weights = weights[..., :-1]
    elif scores.shape[-1] == 1:  # Keras warns of such a softmax, rightly elsewhere.
        weights = ops.exp(scores - scores)  # ones, with a gradient as well: zero
    else:
        weights = ops.softmax(scores, axis=-1)
    return ops.cast(weights, dtype)


def weighted_sum(weights, value, row_has_key, dropout, seed, return_weights):
    """The output `(B, T, N, V)`; with `return_weights` a pair of it and the weights.

    Args:
        weights: what `softmax_weights` gave.
        value: `(B, K, S, V)`, N a multiple of K.
        row_has_key: what `evaluate` gave.
        dropout, seed, return_weights: see `keras_attn.ops.dot_product_attention`.
    """
    dropped = weights
    if dropout > 0.0:
        dropped = keras.random.dropout(weights, dropout, seed=seed)
    dropped = by_kv_head(dropped, value)
    product = head_by_head if dropped.shape[2] == 1 else ops.matmul
    output = by_head(product(dropped, value), weights)
    output = zero_rows(swap(output), row_has_key)
    if not return_weights:
        return output
    if row_has_key is not None:
        weights = ops.where(row_has_key, weights, ops.zeros_like(weights))
    return output, weights


def by_kv_head(x, key):
    """`(B, N, T, ...)` as `(B, K, G x T, ...)`, where G = N / K heads share a key.

    So grouped heads are more rows of one product, and no key is repeated.

    Args:
        x: `(B, N, T, ...)`.
        key: `(B, K, ...)`.
    """
    if x.shape[1] == key.shape[1]:
        return x
    rows, heads, length, size = ops.shape(x)
    groups = heads // key.shape[1]
    return ops.reshape(x, (rows, key.shape[1], groups * length, size))


def by_head(x, like):
    """What `by_kv_head` gave, as it was: `(B, N, T, ...)` as `like`."""
    if x.shape[1] == like.shape[1]:
        return x
    return ops.reshape(x, (*ops.shape(like)[:3], ops.shape(x)[3]))


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
