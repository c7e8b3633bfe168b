"""Dot-product attention, and the choice of its kernel."""

# Keras's functions are inferred to return None for a backend without them.
# pyright: reportGeneralTypeIssues=false, reportOperatorIssue=false
# pyright: reportOptionalOperand=false, reportOptionalSubscript=false

import collections.abc
import contextlib
import contextvars

import keras
import numpy as np
from keras import ops

from keras_attn._types import Tensor
from keras_attn.ops import masks
from keras_attn.ops.attention.blockwise.attention import blockwise_attention
from keras_attn.ops.attention.softmax import (
    clip_bias,
    evaluate_mask,
    group_heads,
    matmul_per_head,
    softmax_weights,
    transpose_heads,
    ungroup_heads,
    weighted_sum,
    zero_fully_masked,
    zero_padding,
)
from keras_attn.ops.masks.kinds import Mask
from keras_attn.ops.masks.positions import CachedPositions, Span
from keras_attn.ops.position.bias import Bias, as_bias

__all__ = ["KERNELS", "attention_kernel", "dot_product_attention"]

KERNELS = ("auto", "full", "blockwise", "fused")

# From this number of scores per head on, the blockwise kernel is faster than the full
# one with XLA; without XLA it takes up to a fifth longer. See docs/results.md.
_MANY_SCORES = 1024 * 1024

# The features of a call that a kernel does not support.
_UNSUPPORTED = {
    "full": frozenset(),
    "blockwise": frozenset({"return_weights=True", "key_positions"}),
    "fused": frozenset(
        {
            "return_weights=True",
            "key_positions",
            "dropout",
            "logit_soft_cap",
            "sinks",
            "different head sizes of query and value",
        }
    ),
}

_FORCED = contextvars.ContextVar("attention_kernel", default="auto")


@contextlib.contextmanager
def attention_kernel(kernel: str) -> collections.abc.Iterator[None]:
    """Set the kernel of the attention calls in a context that do not name one.

    Args:
        kernel: `"auto"`, `"full"`, `"blockwise"` or `"fused"`, see
            `dot_product_attention`. A kernel that is passed to a call or to a layer has
            precedence.

    Raises:
        ValueError: If the kernel is unknown; in the context, if it does not support a
            call.

    Example:
        >>> import numpy as np
        >>> from keras_attn.ops import attention_kernel, dot_product_attention
        >>> x = np.ones((1, 20, 2, 4), "float32")
        >>> with attention_kernel("blockwise"):
        ...     outputs = dot_product_attention(x, x, x)
    """
    _check_kernel(kernel)
    token = _FORCED.set(kernel)
    try:
        yield
    finally:
        _FORCED.reset(token)


def dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Mask | None = None,
    bias: Bias | Tensor | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    seed: keras.random.SeedGenerator | int | None = None,
    query_start: int | Tensor = 0,
    kernel: str = "auto",
    return_weights: bool = False,
    heads_first: bool = False,
    logit_soft_cap: float | None = None,
    sinks: Tensor | None = None,
    key_positions: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Compute `softmax(scale * query . key + bias) . value` for each head.

    All kernels return the same numbers:

    - `"full"` computes the `(B, N, T, S)` weights with plain operations.
    - `"blockwise"` iterates over blocks of queries and keys and never stores more
      weights than those of one pair of blocks: O(T + S) memory, for the gradient as
      well. It skips blocks that are fully masked.
    - `"fused"` is the kernel of the backend (`keras.ops.dot_product_attention`).

    A call is large if T and S are known, T > 1 and T x S is at least 2^20. `"auto"`
    selects the first that applies: the full kernel if the weights are returned or
    `key_positions` are given; the fused kernel if the backend has one (PyTorch, JAX
    with an accelerator) and it supports the call (no dropout, soft cap or sinks; on JAX
    also equal head sizes of query and value), unless the call is large and needs a mask
    or bias of size T x S (any bias, and any mask but a causal one with T = S); the
    blockwise kernel if the call is large; the full kernel. `attention_kernel` replaces
    `"auto"`.

    A query without any key to attend to has zero weights, a zero output and finite
    gradients. The softmax is computed in float32.

    Args:
        query: floats `(B, T, N, H)`.
        key: floats `(B, S, K, H)`. N is a multiple of K, and N / K consecutive heads
            share a key and a value (grouped-query attention; K = 1: multi-query).
        value: floats `(B, S, K, V)`.
        mask: A `keras_attn.ops.masks.Mask`, or `None`.
        bias: Added to the scores before the mask: floats that broadcast to
            `(B, N, T, S)`, a `keras_attn.ops.biases.Bias`, or `None`. It is clipped
            from below at -1e29 (float16: -3e4): use `mask` to exclude keys.
        scale: Factor of the scores; `1 / sqrt(H)` by default.
        dropout: Rate in [0, 1) of the weights to drop; the others are scaled up. The
            random numbers differ between kernels.
        seed: A `keras.random.SeedGenerator` or an int, required with `dropout`.
        query_start: The position of the first query if that of the first key is 0, an
            int or an int32 scalar tensor.
        kernel: `"auto"`, `"full"`, `"blockwise"` or `"fused"`.
        return_weights: Whether to return the weights, too.
        heads_first: Whether key and value are `(B, K, S, H)` and `(B, K, S, V)`, the
            layout of a KV cache, which needs no transpose. Padding must be finite
            there.
        logit_soft_cap: Positive float c: scores become `c * tanh(score / c)`, before
            the bias (Gemma 2, https://arxiv.org/abs/2408.00118); or `None`.
        sinks: floats `(N,)`, a learned score per head of one more key, whose value is
            zero, so that weights sum to less than one; or `None`.
        key_positions: int32 `(S,)`, the positions of the keys if they are not
            0, 1, ..., as in a ring buffer. Full kernel only.

    Returns:
        The output, `(B, T, N, V)` of the dtype of `value`; with `return_weights` a
        tuple `(output, weights)`, with weights `(B, N, T, S)` before dropout.

    Raises:
        ValueError: If N is not a multiple of K, or the kernel is unknown or does not
            support the call.

    Example:
        >>> import numpy as np
        >>> from keras_attn.ops import dot_product_attention, masks
        >>> x = np.random.default_rng(0).normal(size=(2, 7, 4, 16)).astype("float32")
        >>> output, weights = dot_product_attention(
        ...     x, x, x, mask=masks.causal(), return_weights=True
        ... )
        >>> tuple(output.shape), tuple(weights.shape)
        ((2, 7, 4, 16), (2, 4, 7, 7))

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.2.1
        (https://arxiv.org/abs/1706.03762).
    """
    if scale is None:
        scale = float(query.shape[-1] ** -0.5)
    num_heads, num_key_value_heads = query.shape[2], key.shape[1 if heads_first else 2]
    if num_heads % num_key_value_heads:
        raise ValueError(
            "The number of query heads must be a multiple of the number of key heads. "
            f"Received: {num_heads=}, {num_key_value_heads=}"
        )
    num_queries = ops.shape(query)[1]
    num_keys = ops.shape(key)[2 if heads_first else 1]
    features = {
        "return_weights=True": return_weights,
        "key_positions": key_positions is not None,
        "dropout": dropout > 0.0,
        "logit_soft_cap": logit_soft_cap is not None,
        "sinks": sinks is not None,
        "different head sizes of query and value": (
            query.shape[-1] != value.shape[-1] and keras.backend.backend() == "jax"
        ),
    }
    kernel = _choose_kernel(kernel, features, mask, bias, num_queries, num_keys)
    sizes = (query.shape[0], num_queries, num_keys)
    if any(isinstance(size, int) and size == 0 for size in sizes):
        return _empty(query, value, num_keys, return_weights)
    bias = None if bias is None else as_bias(bias)
    if mask is not None and not heads_first:
        key, value = zero_padding(key, value, mask)
    if kernel == "fused":
        if heads_first:
            key, value = transpose_heads(key), transpose_heads(value)
        return _fused(query, key, value, mask, bias, scale, query_start)

    if not heads_first:
        key, value = transpose_heads(key), transpose_heads(value)
    query = transpose_heads(ops.multiply(query, scale))
    if kernel == "blockwise":
        output = blockwise_attention(
            query,
            key,
            value,
            mask,
            bias,
            logit_soft_cap,
            sinks,
            dropout,
            seed,
            query_start,
        )
        return transpose_heads(output)

    allowed = query_has_key = None
    if mask is not None or bias is not None:
        queries, keys = Span(query_start, num_queries), Span(0, num_keys)
        if key_positions is not None:
            keys = CachedPositions(key_positions)
        allowed, query_has_key = evaluate_mask(mask, queries, keys)
        bias = None if bias is None else bias.evaluate(queries, keys)
    scores = _scores(query, key, logit_soft_cap)
    weights = softmax_weights(scores, allowed, key.dtype, bias, sinks)
    return weighted_sum(weights, value, query_has_key, dropout, seed, return_weights)


def _empty(
    query: Tensor,
    value: Tensor,
    num_keys: int | Tensor,
    return_weights: bool,
) -> Tensor | tuple[Tensor, Tensor]:
    """Return the output for an empty batch, no queries or no keys: zeros."""
    shape = ops.shape(query)
    output = ops.zeros((*shape[:3], value.shape[-1]), dtype=value.dtype)
    if not return_weights:
        return output
    weights_shape = (shape[0], shape[2], shape[1], num_keys)
    return output, ops.zeros(weights_shape, dtype=value.dtype)


def _check_kernel(kernel: str) -> None:
    if kernel not in KERNELS:
        raise ValueError(f"`kernel` must be one of {KERNELS}. Received: {kernel=}")


def _choose_kernel(
    kernel: str,
    features: dict[str, bool],
    mask: Mask | None,
    bias: Bias | Tensor | None,
    num_queries: int | Tensor,
    num_keys: int | Tensor,
) -> str:
    """Return the name of the kernel to run, or raise if it does not support the call.

    Args:
        kernel: The requested kernel.
        features: Whether the call uses each of the features in `_UNSUPPORTED`.
        mask: The mask of the call.
        bias: The bias of the call.
        num_queries: T.
        num_keys: S.
    """
    used = [name for name in features if features[name]]
    if kernel == "auto":
        kernel = _FORCED.get()
    if kernel != "auto":
        _check_kernel(kernel)
        unsupported = [name for name in used if name in _UNSUPPORTED[kernel]]
        if unsupported:
            raise ValueError(
                f"The {kernel} kernel does not support {' and '.join(unsupported)}: "
                f"use kernel='auto' or kernel='full'. Received: kernel='{kernel}'"
            )
        return kernel
    is_large = (
        isinstance(num_queries, int)
        and isinstance(num_keys, int)
        and num_queries > 1
        and num_queries * num_keys >= _MANY_SCORES
    )
    # Too large for a tensor of T x S that the fused kernel would need.
    is_too_large = is_large and not (
        bias is None and _is_flag(mask, num_queries, num_keys)
    )
    if (
        not is_too_large
        and _UNSUPPORTED["fused"].isdisjoint(used)
        and _has_fused_kernel()
    ):
        return "fused"
    if is_large and _UNSUPPORTED["blockwise"].isdisjoint(used):
        return "blockwise"
    return "full"


def _is_flag(
    mask: Mask | None, num_queries: int | Tensor, num_keys: int | Tensor
) -> bool:
    """Return whether a fused kernel takes the mask as a flag, not as a tensor."""
    return mask is None or (num_queries == num_keys and masks.is_only_causal(mask))


def _has_fused_kernel() -> bool:
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        return jax.default_backend() != "cpu"
    return backend == "torch"


def _scores(query: Tensor, key: Tensor, logit_soft_cap: float | None) -> Tensor:
    """Return the capped products of each query with each key, `(B, N, T, S)`.

    Args:
        query: `(B, N, T, H)`, already scaled: it has T x H numbers, the scores T x S.
        key: `(B, K, S, H)`, N a multiple of K.
        logit_soft_cap: as in `dot_product_attention`.
    """
    is_grouped = query.shape[1] != key.shape[1]
    grouped = group_heads(query, key.shape[1]) if is_grouped else query
    # Transposes and matmul rather than einsum, whose gradient is a quarter slower on
    # TensorFlow. The last transpose is fused with the product.
    if grouped.shape[2] == 1:  # A single query is faster as the right operand.
        scores = matmul_per_head(key, ops.swapaxes(grouped, 2, 3))
        scores = ops.swapaxes(scores, 2, 3)
    else:
        scores = ops.matmul(grouped, ops.swapaxes(key, 2, 3))
    if is_grouped:
        scores = ungroup_heads(scores, query)
    if logit_soft_cap is not None:
        scores = logit_soft_cap * ops.tanh(ops.cast(scores, "float32") / logit_soft_cap)
    return scores


def _fused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Mask | None,
    bias: Bias | None,
    scale: float,
    query_start: int | Tensor,
) -> Tensor:
    """Return the output `(B, T, N, V)` of the fused kernel of the backend."""
    dtype = value.dtype
    if keras.backend.backend() == "tensorflow":
        query, key, value = _for_einsum(query, key, value)
    if scale < 0:  # PyTorch's kernel returns NaN.
        query, scale = ops.multiply(query, scale), 1.0
    batch, num_queries, heads, _ = ops.shape(query)
    num_keys = ops.shape(key)[1]
    starts_at_zero = isinstance(query_start, int) and query_start == 0
    if bias is None and starts_at_zero and _is_flag(mask, num_queries, num_keys):
        output = ops.dot_product_attention(
            query, key, value, scale=scale, is_causal=mask is not None
        )
        return ops.cast(output, dtype)
    queries, keys = Span(query_start, num_queries), Span(0, num_keys)
    allowed, query_has_key = evaluate_mask(mask, queries, keys)
    if query_has_key is not None:
        # A fused softmax over no keys is NaN. Such a query attends to all keys here;
        # its output is set to zero below.
        allowed = ops.logical_or(allowed, ops.logical_not(query_has_key))
    # Backends differ in the axes of a mask or bias that they broadcast.
    shape = (batch, heads, num_queries, num_keys)
    if allowed is not None:
        allowed = ops.broadcast_to(allowed, shape)
    dense_bias = None
    if bias is not None:
        dense_bias = ops.cast(bias.evaluate(queries, keys), query.dtype)
        dense_bias = ops.broadcast_to(clip_bias(dense_bias), shape)
        if allowed is not None:  # PyTorch takes a mask or a bias, but not both.
            dense_bias, allowed = ops.where(allowed, dense_bias, -np.inf), None
    output = ops.dot_product_attention(
        query, key, value, bias=dense_bias, mask=allowed, scale=scale
    )
    output = ops.cast(output, dtype)
    if query_has_key is None:
        return output
    return zero_fully_masked(output, query_has_key)


def _for_einsum(
    query: Tensor, key: Tensor, value: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return query, key and value as Keras's kernel on TensorFlow requires them.

    It computes scores in the dtype of the inputs, where those of float16 overflow, and
    does not broadcast grouped heads.
    """
    if keras.backend.standardize_dtype(query.dtype) == "float16":
        query, key, value = (ops.cast(x, "float32") for x in (query, key, value))
    group_size = query.shape[2] // key.shape[2]
    if group_size > 1:
        key, value = (ops.repeat(x, group_size, axis=2) for x in (key, value))
    return query, key, value
