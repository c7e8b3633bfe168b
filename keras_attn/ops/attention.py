"""Dot-product attention: the one entry, and the rule that picks a kernel."""

import keras
import numpy as np
from keras import ops

from keras_attn.ops.weighting import (
    bounded,
    evaluate,
    head_by_head,
    softmax_weights,
    swap,
    weighted_sum,
    zero_rows,
)

__all__ = ["KERNELS", "dot_product_attention"]

KERNELS = ("auto", "full", "fused")


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
):
    """`softmax(scale * query . key + bias) . value`, head by head.

    All kernels give the same numbers. `"full"` builds the `(B, N, T, S)` weights from
    plain operations. `"fused"` is the backend's own
    (`keras.ops.dot_product_attention`). `"auto"` takes the fused one on the PyTorch
    backend, which has fused kernels for the CPU and the GPU, and on JAX with an
    accelerator and keys and values of one size; it takes the full one on TensorFlow,
    whose "fused" op is the same plain operations, and wherever the weights are wanted
    or dropout falls on them.

    A query with nothing to attend to gets zero weights, a zero output and finite
    gradients. The softmax is computed in float32.

    Args:
        query: `(B, T, N, H)`.
        key: `(B, S, N, H)`.
        value: `(B, S, N, V)`.
        mask: a `keras_attn.ops.masks.Mask`, or None.
        bias: a float tensor that broadcasts to `(B, N, T, S)`, added to the scores
            before the mask, or None. What is below -1e29 (in half precision -3e4)
            counts as that: to forbid a key is the mask's office.
        scale: float; default `1 / sqrt(H)`.
        dropout: rate in [0, 1) of the weights to drop; the rest are scaled up.
        seed: a `keras.random.SeedGenerator` or int, needed with `dropout`.
        query_start: position of the first query, where keys start at 0; an int or
            an int32 scalar tensor.
        kernel: `"auto"`, `"full"` or `"fused"`.
        return_weights: whether to return the weights too.
        heads_first: whether key and value are `(B, N, S, H)` and `(B, N, S, V)`, as
            caches hold them, and which no kernel need transpose.

    Returns:
        The output, `(B, T, N, V)` in the dtype of `value`; with `return_weights` a
        pair of it and the weights `(B, N, T, S)`, before dropout.

    Raises:
        ValueError: for an unknown kernel, or the fused one where it cannot serve.

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
    total = ops.shape(key)[2 if heads_first else 1]
    allowed, row_has_key = evaluate(mask, query_start, ops.shape(query)[1], total)

    one_size = query.shape[-1] == value.shape[-1]
    if _choose(kernel, dropout, return_weights, one_size) == "fused":
        if row_has_key is not None:
            # A fused softmax over no keys is not a number. Such a row sees every key
            # here and is set to zero below.
            allowed = ops.logical_or(allowed, ops.logical_not(row_has_key))
        if heads_first:
            key, value = swap(key), swap(value)
        output = _fused(query, key, value, allowed, bias, scale)
        return zero_rows(output, row_has_key)

    if not heads_first:
        key, value = swap(key), swap(value)
    scores = _scores(swap(ops.multiply(query, scale)), key)
    weights = softmax_weights(scores, allowed, key.dtype, bias)
    return weighted_sum(weights, value, row_has_key, dropout, seed, return_weights)


def _choose(kernel, dropout, return_weights, one_size):
    if kernel not in KERNELS:
        raise ValueError(f"`kernel` must be one of {KERNELS}. Received: {kernel=}")
    needs_weights = return_weights or dropout > 0.0
    if kernel == "fused" and needs_weights:
        raise ValueError(
            "The fused kernel has no weights to return or to drop: use "
            "kernel='auto' or kernel='full'. Received: "
            f"kernel='fused', {dropout=}, {return_weights=}"
        )
    fits = one_size or keras.backend.backend() != "jax"
    if kernel == "fused" and not fits:
        raise ValueError(
            "JAX's fused kernel takes keys and values of one size: use kernel='auto' "
            "or kernel='full'. Received: kernel='fused' and two sizes"
        )
    if kernel != "auto":
        return kernel
    can_fuse = fits and not needs_weights and _backend_has_fused()
    return "fused" if can_fuse else "full"


def _backend_has_fused():
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        return jax.default_backend() != "cpu"
    return backend == "torch"


def _scores(query, key):
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


def _fused(query, key, value, allowed, bias, scale):
    # Backends differ in which axes of a mask or bias they broadcast.
    shape = ops.shape(query)
    full = (shape[0], shape[2], shape[1], ops.shape(key)[1])
    if allowed is not None:
        allowed = ops.broadcast_to(allowed, full)
    if bias is not None:
        bias = ops.broadcast_to(bounded(ops.cast(bias, query.dtype)), full)
        if allowed is not None:  # of the two, PyTorch takes one
            bias, allowed = ops.where(allowed, bias, -np.inf), None
    return ops.dot_product_attention(
        query, key, value, bias=bias, mask=allowed, scale=scale
    )
