"""Attention of values at the edge: not finite, very large, negative scales, empty."""

import keras
import numpy as np
import pytest
from numpy_attention import attention
from tensors import array, assert_close, assert_equal, gradients, normal

from keras_attn.ops import dot_product_attention, masks

KERNELS = ["full", "blockwise", "fused"]
pytestmark = [
    pytest.mark.every_backend,
    pytest.mark.parametrize("kernel", KERNELS),
]


@pytest.mark.parametrize("padded", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", ["padding", "segments"])
def test_padding_never_leaks(kernel: str, padded: float, kind: str) -> None:
    query, key, value = (normal(2, 5, 2, 4, seed=i) for i in range(3))
    keep = np.array([[True] * 3 + [False] * 2, [True] * 5])
    expected, _ = attention(query, key, value, allowed=keep[:, None, None])
    key[0, 3:] = value[0, 3:] = padded
    mask = masks.padding(keep)
    if kind == "segments":
        mask = masks.join(mask, masks.segments(np.ones((2, 5), "int32")))

    def loss(query, key, value):
        output = dot_product_attention(query, key, value, mask=mask, kernel=kernel)
        return keras.ops.sum(output**2)

    output = dot_product_attention(query, key, value, mask=mask, kernel=kernel)
    assert_close(output, expected)
    for gradient in gradients(loss, query, key, value):
        assert np.isfinite(gradient).all()


@pytest.mark.parametrize("scale", [-1.0, -0.1])
def test_negative_scale(kernel: str, scale: float) -> None:
    query = 10 * normal(2, 4, 2, 6)
    output = dot_product_attention(
        query, query, query, mask=masks.causal(), scale=scale, kernel=kernel
    )
    allowed = np.tri(4, dtype=bool)
    expected, _ = attention(query, query, query, allowed=allowed, scale=scale)
    assert_close(output, expected, 1e-4)


def test_large_queries_in_float16(kernel: str) -> None:
    query, key, value = (normal(2, 9, 2, 4, seed=i, dtype="float16") for i in range(3))
    query *= 10000
    expected, _ = attention(query, key, value)
    output = dot_product_attention(query, key, value, kernel=kernel)
    assert_close(keras.ops.cast(output, "float32"), expected, 0.05)


@pytest.mark.parametrize("sizes", [(0, 3, 3), (2, 0, 3), (2, 3, 0)])
def test_empty(kernel: str, sizes: tuple[int, int, int]) -> None:
    batch, length, total = sizes
    query = keras.ops.ones((batch, length, 4, 2))
    key = keras.ops.ones((batch, total, 2, 2))
    output = dot_product_attention(
        query, key, key, mask=masks.causal(), bias=np.zeros((1, 4, 1, 1)), kernel=kernel
    )
    assert_equal(array(output), np.zeros((batch, length, 4, 2)))
