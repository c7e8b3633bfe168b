"""Dot-product attention: the one entry, and the rule that picks a kernel."""

import contextlib
import contextvars

import keras
import numpy as np
from keras import ops

from keras_attn.ops import masks
from keras_attn.ops.attention.blockwise.attention import blockwise_attention
from keras_attn.ops.attention.softmax import (
    bounded,
    by_head,
    by_kv_head,
    evaluate,
    head_by_head,
    softmax_weights,
    swap,
    weighted_sum,
    zero_rows,
)
from keras_attn.ops.masks.positions import Held, Span
from keras_attn.ops.position.bias import as_bias

__all__ = ["KERNELS", "attention_kernel", "dot_product_attention"]

KERNELS = ("auto", "full", "blockwise", "fused")

# From so many scores of a head on, blocks are faster than one tensor of them all.
_MANY_SCORES = 1024 * 1024

_FORCED = contextvars.ContextVar("attention_kernel", default="auto")


@contextlib.contextmanager
def attention_kernel(kernel):
    """A context in which attention takes `kernel` wherever the choice is left open.

    Args:
        kernel: `"auto"`, `"full"`, `"blockwise"` or `"fused"`, see
            `dot_product_attention`. A kernel that a call or a layer names itself goes
            before.

    Raises:
        ValueError: for another kernel and, in the context, where it cannot serve.

    Example:
        >>> with attention_kernel("blockwise"):
        ...     outputs = model(inputs)
    """
    _check_kernel(kernel)
    token = _FORCED.set(kernel)
    try:
        yield
    finally:
        _FORCED.reset(token)


def dot_product_attention(
    query,
    key,
    value,
    mask=None,
    bias=None,
    scale=None,
    dropout=0.0,
    seed=None,
    query_start=0,
    kernel="auto",
    return_weights=False,
    heads_first=False,
    logit_soft_cap=None,
    sinks=None,
    key_positions=None,
):
    """`softmax(scale * query . key + bias) . value`, head by head.

    All kernels give the same numbers:

    - `"full"` builds the `(B, N, T, S)` weights from plain operations.
    - `"blockwise"` goes through blocks of queries and keys and never holds more weights
      than one of each has: memory O(T + S), in the gradient as well. Blocks that the
      mask rules out are skipped.
    - `"fused"` is the backend's own (`keras.ops.dot_product_attention`).

    `"auto"` takes, in this order: the full one where the weights are wanted; the fused
    one where the backend has one (PyTorch; JAX with an accelerator) that serves what is
    asked (no dropout, soft cap, sinks or two sizes of heads on JAX) without a mask or
    bias as large as the weights; the blockwise one where T x S is known and at least
    2^20; else the full one. The names of other kernels are taken from
    `attention_kernel`, if that is set.

    A query with nothing to attend to gets zero weights, a zero output and finite
    gradients. The softmax is computed in float32.

    Args:
        query: `(B, T, N, H)`.
        key: `(B, S, K, H)`; N is a multiple of K, and N / K heads that follow one
            another share a key and a value (grouped queries; K = 1: multi-query).
        value: `(B, S, K, V)`.
        mask: a `keras_attn.ops.masks.Mask`, or None.
        bias: what is added to the scores before the mask: a float tensor that
            broadcasts to `(B, N, T, S)`, a `keras_attn.ops.position.bias.Bias`, or None. What
            is below -1e29 (fused, in half precision, -3e4) counts as that: to forbid a
            key is the mask's office.
        scale: float; default `1 / sqrt(H)`.
        dropout: rate in [0, 1) of the weights to drop; the rest are scaled up. Which
            ones differs from kernel to kernel.
        seed: a `keras.random.SeedGenerator` or int, needed with `dropout`.
        query_start: position of the first query, where keys start at 0; an int or
            an int32 scalar tensor.
        kernel: `"auto"`, `"full"`, `"blockwise"` or `"fused"`.
        return_weights: whether to return the weights too.
        heads_first: whether key and value are `(B, K, S, H)` and `(B, K, S, V)`, as
            caches hold them, and which no kernel need transpose.
        logit_soft_cap: float c > 0: scores become `c * tanh(score / c)`, before the bias
            (Gemma 2, https://arxiv.org/abs/2408.00118); or None.
        sinks: float tensor `(N,)`, learned scores of one more key of each head, whose
            value is zero: weights need not sum to one; or None.
        key_positions: int32 `(S,)`, positions of keys that are not 0, 1, ..., as in a
            cache that is written in a ring. Full kernel only.

    Returns:
        The output, `(B, T, N, V)` in the dtype of `value`; with `return_weights` a
        pair of it and the weights `(B, N, T, S)`, before dropout.

    Raises:
        ValueError: for heads that the groups do not divide, an unknown kernel, or one
            that cannot serve what is asked.

    Example:
        >>> x = keras.random.normal((2, 7, 4, 16))
        >>> dot_product_attention(x, x, x, mask=masks.causal()).shape
        (2, 7, 4, 16)

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.2.1
        (https://arxiv.org/abs/1706.03762).
    """
    if scale is None:
        scale = query.shape[-1] ** -0.5
    heads, kv_heads = query.shape[2], key.shape[1 if heads_first else 2]
    if heads % kv_heads:
        raise ValueError(
            "The number of query heads must be a multiple of the number of key heads. "
            f"Received: {heads} and {kv_heads}"
        )
    total = ops.shape(key)[2 if heads_first else 1]
    queries = Span(query_start, ops.shape(query)[1])
    keys = Span(0, total) if key_positions is None else Held(key_positions)
    obstacles = {
        "return_weights=True": return_weights,
        "key_positions": key_positions is not None,
        "dropout": dropout > 0.0,
        "logit_soft_cap": logit_soft_cap is not None,
        "sinks": sinks is not None,
        "two sizes of heads": query.shape[-1] != value.shape[-1]
        and keras.backend.backend() == "jax",
    }
    kernel = _choose(kernel, obstacles, mask, bias, queries.length, total)
    bias = as_bias(bias)

    if kernel == "fused":
        if heads_first:
            key, value = swap(key), swap(value)
        return _fused(query, key, value, mask, bias, scale, queries, keys)

    if not heads_first:
        key, value = swap(key), swap(value)
    query = swap(ops.multiply(query, scale))
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
        return swap(output)

    allowed, row_has_key = evaluate(mask, queries, keys)
    scores = by_head(_products(by_kv_head(query, key), key), query)
    if logit_soft_cap is not None:
        scores = logit_soft_cap * ops.tanh(ops.cast(scores, "float32") / logit_soft_cap)
    if bias is not None:
        bias = bias.evaluate(queries, keys)
    weights = softmax_weights(scores, allowed, key.dtype, bias, sinks)
    return weighted_sum(weights, value, row_has_key, dropout, seed, return_weights)


# What a kernel cannot serve.
_OBSTACLES = {
    "full": (),
    "blockwise": ("return_weights=True", "key_positions"),
    "fused": (
        "return_weights=True",
        "key_positions",
        "dropout",
        "logit_soft_cap",
        "sinks",
        "two sizes of heads",
    ),
}


def _check_kernel(kernel):
    if kernel not in KERNELS:
        raise ValueError(f"`kernel` must be one of {KERNELS}. Received: {kernel=}")


def _choose(kernel, obstacles, mask, bias, length, total):
    _check_kernel(kernel)
    if kernel == "auto":
        kernel = _FORCED.get()

    def in_the_way(name):
        return [x for x in _OBSTACLES[name] if obstacles[x]]

    if kernel != "auto":
        if in_the_way(kernel):
            raise ValueError(
                f"The {kernel} kernel cannot serve {' and '.join(in_the_way(kernel))}: "
                f"use kernel='auto' or kernel='full'. Received: kernel='{kernel}'"
            )
        return kernel
    is_known = isinstance(length, int) and isinstance(total, int)
    is_large = is_known and length > 1 and length * total >= _MANY_SCORES
    fits = not is_large or (bias is None and _is_plain(mask, length, total))
    if fits and not in_the_way("fused") and _backend_has_fused():
        return "fused"
    return "blockwise" if is_large and not in_the_way("blockwise") else "full"


def _is_plain(mask, length, total):
    """Whether a fused kernel needs no tensor of T x S for the mask."""
    return mask is None or (length == total and masks.is_plainly_causal(mask))


def _backend_has_fused():
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        return jax.default_backend() != "cpu"
    return backend == "torch"


def _products(query, key):
    """Products of query and key, `(B, N, T, S)`.

    Args:
        query: `(B, N, T, H)`, scaled: T x H numbers, where the scores are T x S.
        key: `(B, N, S, H)`.
    """
    # Transposes and matmul rather than einsum: on TensorFlow its gradient is a quarter
    # slower. The last swap is folded into the product.
    if query.shape[2] == 1:  # one query is faster on the right
        return ops.swapaxes(head_by_head(key, ops.swapaxes(query, 2, 3)), 2, 3)
    return ops.matmul(query, ops.swapaxes(key, 2, 3))


def _fused(query, key, value, mask, bias, scale, queries, keys):
    rows, length, heads, _ = ops.shape(query)
    total = ops.shape(key)[1]
    starts_at_zero = isinstance(queries.start, int) and queries.start == 0
    if bias is None and starts_at_zero and _is_plain(mask, length, total):
        return ops.dot_product_attention(
            query, key, value, scale=scale, is_causal=mask is not None
        )
    allowed, row_has_key = evaluate(mask, queries, keys)
    if row_has_key is not None:
        # A fused softmax over no keys is not a number. Such a row sees every key here
        # and is set to zero below.
        allowed = ops.logical_or(allowed, ops.logical_not(row_has_key))
    # Backends differ in which axes of a mask or bias they broadcast.
    full = (rows, heads, length, total)
    if allowed is not None:
        allowed = ops.broadcast_to(allowed, full)
    if bias is not None:
        bias = ops.cast(bias.evaluate(queries, keys), query.dtype)
        bias = ops.broadcast_to(bounded(bias), full)
        if allowed is not None:  # of the two, PyTorch takes one
            bias, allowed = ops.where(allowed, bias, -np.inf), None
    output = ops.dot_product_attention(
        query, key, value, bias=bias, mask=allowed, scale=scale
    )
    return zero_rows(output, row_has_key)
