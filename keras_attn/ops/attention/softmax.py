"""Attention weights from scores, and outputs from weights, for every kind of score."""

# Keras's functions are inferred to return None for a backend without them.
# pyright: reportGeneralTypeIssues=false, reportOptionalOperand=false
# pyright: reportOptionalSubscript=false

import keras
from keras import ops

from keras_attn._types import DTypeLike, Tensor
from keras_attn.ops.masks.kinds import Mask
from keras_attn.ops.masks.positions import CachedPositions, Span

__all__ = [
    "clip_bias",
    "evaluate_mask",
    "group_heads",
    "matmul_per_head",
    "softmax_weights",
    "transpose_heads",
    "ungroup_heads",
    "weighted_sum",
    "zero_fully_masked",
    "zero_padding",
]


def evaluate_mask(
    mask: Mask | None, queries: Span, keys: Span | CachedPositions
) -> tuple[Tensor | None, Tensor | None]:
    """Return which keys each query may attend to, and which queries have any key.

    Args:
        mask: A `Mask` or `None`.
        queries: The positions of the queries.
        keys: The positions of the keys.

    Returns:
        A tuple `(allowed, query_has_key)`. `allowed`: bool, broadcasts to
        `(B, N, T, S)`; `None` without a mask. `query_has_key`: bool of the same rank,
        its last axis is 1; `None` if every query has a key.
    """
    if mask is None:
        return None, None
    allowed = mask.evaluate(queries, keys)
    if not mask.can_exclude_every_key:
        return allowed, None
    return allowed, ops.any(allowed, axis=-1, keepdims=True)


def zero_padding(
    key: Tensor, value: Tensor, mask: Mask | None
) -> tuple[Tensor, Tensor]:
    """Return keys and values `(B, S, K, H)` with zeros at padded positions.

    Padding may hold NaN or infinity, which a weight of zero does not remove.
    """
    padding_mask = None if mask is None else mask.padding_mask()
    if padding_mask is None:
        return key, value
    keep = ops.expand_dims(padding_mask, (2, 3))
    return (
        ops.where(keep, key, ops.zeros_like(key)),
        ops.where(keep, value, ops.zeros_like(value)),
    )


def softmax_weights(
    scores: Tensor,
    allowed: Tensor | None,
    dtype: DTypeLike,
    bias: Tensor | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """Return attention weights.

    For a query without any key they are meaningless: `weighted_sum` replaces them, and
    its output, by zeros.

    Args:
        scores: floats `(B, N, T, S)`.
        allowed: See `evaluate_mask`.
        dtype: The dtype of the weights; the softmax is computed in float32.
        bias: float32 that broadcasts to the scores, or `None`.
        sinks: float32 `(N,)`, the score of one more key per head, which takes part in
            the softmax only, or `None`.

    Returns:
        `(B, N, T, S)`.
    """
    scores = ops.cast(scores, "float32")
    if bias is not None:
        scores = scores + clip_bias(bias)
    if allowed is not None:
        scores = ops.where(allowed, scores, -1e30)
    if sinks is not None:
        sinks = ops.reshape(ops.cast(sinks, "float32"), (1, -1, 1, 1))
        sinks = ops.broadcast_to(sinks, (*ops.shape(scores)[:3], 1))
        weights = ops.softmax(ops.concatenate([scores, sinks], axis=3), axis=3)
        weights = weights[..., :-1]
    elif scores.shape[-1] == 1:
        # `ops.softmax` warns about a single entry. The formula holds for more of them:
        # an export from PyTorch records this branch for a sample of one position.
        weights = ops.exp(scores - ops.max(scores, axis=-1, keepdims=True))
        weights = weights / ops.sum(weights, axis=-1, keepdims=True)
    else:
        weights = ops.softmax(scores, axis=-1)
    return ops.cast(weights, dtype)


def weighted_sum(
    weights: Tensor,
    value: Tensor,
    query_has_key: Tensor | None,
    dropout: float,
    seed: keras.random.SeedGenerator | int | None,
    return_weights: bool,
) -> Tensor | tuple[Tensor, Tensor]:
    """Return the sums of the values under the attention weights.

    Args:
        weights: `(B, N, T, S)`, see `softmax_weights`.
        value: `(B, K, S, V)`, N a multiple of K.
        query_has_key: See `evaluate_mask`.
        dropout: Rate of the weights to drop.
        seed: Seed of the dropout.
        return_weights: Whether to return the weights, too.

    Returns:
        The output `(B, T, N, V)`, or a tuple `(output, weights)`.
    """
    dropped = weights
    if dropout > 0.0:
        dropped = keras.random.dropout(weights, dropout, seed=seed)
    is_grouped = weights.shape[1] != value.shape[1]
    if is_grouped:
        dropped = group_heads(dropped, value.shape[1])
    if dropped.shape[2] == 1:
        output = matmul_per_head(dropped, value)
    else:
        output = ops.matmul(dropped, value)
    if is_grouped:
        output = ungroup_heads(output, weights)
    output = transpose_heads(output)
    if query_has_key is not None:
        output = zero_fully_masked(output, query_has_key)
    if not return_weights:
        return output
    if query_has_key is not None:
        weights = ops.where(query_has_key, weights, ops.zeros_like(weights))
    return output, weights


def group_heads(x: Tensor, num_key_value_heads: int) -> Tensor:
    """Reshape `(B, N, T, H)` to `(B, K, G x T, H)`; G = N / K heads share a key.

    Grouped heads become more rows of the same product, so no key is repeated.
    """
    batch, num_heads, length, size = ops.shape(x)
    group_size = num_heads // num_key_value_heads
    return ops.reshape(x, (batch, num_key_value_heads, group_size * length, size))


def ungroup_heads(x: Tensor, like: Tensor) -> Tensor:
    """Reshape `(B, K, G x T, H)` to `(B, N, T, H)`, with B, N and T of `like`."""
    return ops.reshape(x, (*ops.shape(like)[:3], ops.shape(x)[3]))


def transpose_heads(x: Tensor) -> Tensor:
    """Transpose `(B, T, N, H)` to `(B, N, T, H)`, or the reverse."""
    return ops.transpose(x, (0, 2, 1, 3))


def matmul_per_head(x: Tensor, y: Tensor) -> Tensor:
    """Return `ops.matmul(x, y)` of `(B, N, ...)`, computed as B x N matrices.

    A KV cache is stored as such a stack: XLA would copy it to multiply it in a
    different shape.
    """
    batch, num_heads, length, _ = ops.shape(x)
    stacks = (ops.reshape(z, (batch * num_heads, *ops.shape(z)[2:])) for z in (x, y))
    product = ops.matmul(*stacks)
    return ops.reshape(product, (batch, num_heads, length, ops.shape(y)[3]))


def clip_bias(bias: Tensor) -> Tensor:
    """Clip a bias from below, so that it stays above the score of a masked key."""
    dtype = keras.backend.standardize_dtype(bias.dtype)
    return ops.maximum(bias, ops.cast(-3e4 if dtype == "float16" else -1e29, dtype))


def zero_fully_masked(output: Tensor, query_has_key: Tensor) -> Tensor:
    """Set the outputs of queries without any key to zero.

    Args:
        output: `(B, T, N, V)`.
        query_has_key: bool, broadcasts to `(B, N, T, 1)`.
    """
    query_has_key = transpose_heads(query_has_key)
    return ops.where(query_has_key, output, ops.zeros_like(output))
