"""Attention written out in NumPy and float64: what the layers are compared with."""

import numpy as np


def attention(query, key, value, allowed=True, bias=0.0, scale=None):
    """One query, one head, one batch row at a time.

    Args:
        query, key, value: `(B, T, N, H)`, `(B, S, N, H)`, `(B, S, N, V)`.
        allowed: bool, broadcasts to `(B, N, T, S)`.
        bias: float, likewise.
        scale: float; default `1 / sqrt(H)`.

    Returns:
        A pair of the output `(B, T, N, V)` and the weights `(B, N, T, S)`.
    """
    query, key, value = (np.asarray(x, "float64") for x in (query, key, value))
    batch, length, heads, size = query.shape
    total = key.shape[1]
    scale = 1 / np.sqrt(size) if scale is None else scale
    allowed = np.broadcast_to(allowed, (batch, heads, length, total))
    bias = np.broadcast_to(bias, (batch, heads, length, total))
    output = np.zeros((batch, length, heads, value.shape[-1]))
    weights = np.zeros((batch, heads, length, total))
    for b, n, t in np.ndindex(batch, heads, length):
        seen = np.flatnonzero(allowed[b, n, t])
        if not seen.size:
            continue
        scores = key[b, seen, n] @ query[b, t, n] * scale + bias[b, n, t, seen]
        exponentials = np.exp(scores - scores.max())
        weights[b, n, t, seen] = exponentials / exponentials.sum()
        output[b, t, n] = weights[b, n, t] @ value[b, :, n]
    return output, weights


def multi_head_attention(layer_weights, query, value, key=None, allowed=True):
    """The whole layer.

    Args:
        layer_weights: kernel and bias of query, key, value and output, in this order;
            kernels alone where there are no biases.
        query, value, key: `(B, T, D)`, `(B, S, D')`, `(B, S, D'')`.
        allowed: bool, broadcasts to `(B, N, T, S)`.

    Returns:
        A pair of the output `(B, T, D)` and the weights `(B, N, T, S)`.
    """
    layer_weights = [np.asarray(weight, "float64") for weight in layer_weights]
    if len(layer_weights) == 4:
        kernels, biases = layer_weights, [0.0] * 4
    else:
        kernels, biases = layer_weights[0::2], layer_weights[1::2]
    key = value if key is None else key
    projected = [
        np.tensordot(np.asarray(x, "float64"), kernel, axes=1) + bias
        for x, kernel, bias in zip((query, key, value), kernels, biases)
    ]
    output, weights = attention(*projected, allowed=allowed)
    return np.tensordot(output, kernels[3], axes=2) + biases[3], weights


def layer_norm(x, scale, shift, epsilon=1e-5):
    x = np.asarray(x, "float64")
    centred = x - x.mean(-1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon)
    return centred / deviation * scale + shift
