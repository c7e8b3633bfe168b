"""`dot_product_attention` compared with NumPy, for random shapes and masks."""

# Unpacked sequences, results of several types and invalid arguments.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false
# pyright: reportCallIssue=false, reportOperatorIssue=false

from typing import Any

import hypothesis
import keras
import numpy as np
import pytest
from backend_marks import on_every_backend
from hypothesis import strategies
from numpy_attention import attention
from tensors import array, assert_close, assert_equal, gradients, lengths_mask, normal

from keras_attn.ops import dot_product_attention, masks

KERNELS = ["auto", "full", "fused"]
properties = hypothesis.settings(
    max_examples=40, deadline=None, derandomize=True, database=None
)


@strategies.composite
def calls(draw: strategies.DrawFn) -> tuple[dict[str, Any], Any, np.ndarray]:
    """Draw the arguments of a call, its mask, and the mask as a NumPy array."""
    size = strategies.sampled_from([1, 2, 3, 5, 7])
    batch, length, total, heads = (draw(size) for _ in range(4))
    key_dim, value_dim = draw(size), draw(size)
    rng = np.random.default_rng(draw(strategies.integers(0, 2**32 - 1)))

    def floats(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype("float32")

    arguments = {
        "query": floats(batch, length, heads, key_dim),
        "key": floats(batch, total, heads, key_dim),
        "value": floats(batch, total, heads, value_dim),
    }
    allowed = np.ones((batch, heads, length, total), bool)
    parts = []
    if draw(strategies.booleans()):
        offset = draw(strategies.integers(-2, 3))
        parts.append(masks.causal(offset))
        allowed = allowed & np.tri(length, total, offset, dtype=bool)
    if draw(strategies.booleans()):
        keep = lengths_mask(rng.integers(0, total + 1, batch), total)
        parts.append(masks.padding(keep))
        allowed = allowed & keep[:, None, None]
    if draw(strategies.booleans()):
        per_head = draw(strategies.booleans())
        shape = (batch, heads, length, total) if per_head else (batch, length, total)
        keep = rng.random(shape) < draw(strategies.sampled_from([0.2, 0.7]))
        parts.append(masks.dense(keep))
        allowed = allowed & (keep if per_head else keep[:, None])
    if draw(strategies.booleans()):
        shapes = [(1, heads, 1, total), (batch, 1, length, total), (1, 1, 1, 1)]
        arguments["bias"] = floats(*draw(strategies.sampled_from(shapes)))
    if draw(strategies.booleans()):
        arguments["scale"] = draw(strategies.sampled_from([0.3, 1.0, 2.0]))
    return arguments, masks.join(*parts), allowed


@properties
@hypothesis.given(calls())
def test_kernels_agree_with_numpy(call: Any) -> None:
    arguments, mask, allowed = call
    expected, expected_weights = attention(**arguments, allowed=allowed)
    tensors = {
        name: value if name == "scale" else keras.ops.convert_to_tensor(value)
        for name, value in arguments.items()
    }
    for kernel in KERNELS:
        output = dot_product_attention(**tensors, mask=mask, kernel=kernel)
        assert_close(output, expected)
        assert_equal(array(output)[~allowed.any(-1).swapaxes(1, 2)], 0.0)
    output, weights = dot_product_attention(**tensors, mask=mask, return_weights=True)
    assert_close(output, expected)
    assert_close(weights, expected_weights)
    assert_equal(array(weights)[~allowed], 0.0)


@properties
@hypothesis.given(calls())
def test_kernels_have_the_same_finite_gradients(call: Any) -> None:
    arguments, mask, _ = call
    names = [name for name in arguments if name != "scale"]
    scale = arguments.get("scale")

    def squared(kernel: str) -> list[np.ndarray]:
        def function(*tensors: Any) -> Any:
            arguments = dict(zip(names, tensors))
            output = dot_product_attention(
                **arguments, mask=mask, scale=scale, kernel=kernel
            )
            return keras.ops.square(output)

        return gradients(function, *(arguments[name] for name in names))

    for full, fused in zip(squared("full"), squared("fused")):
        assert np.isfinite(full).all() and np.isfinite(fused).all()
        assert_close(fused, full, 1e-4)


@pytest.mark.parametrize("kernel", KERNELS)
def test_gradients_against_finite_differences(kernel: str) -> None:
    arrays = [normal(1, 2, 2, 3, seed=seed) for seed in range(3)]
    allowed = np.tri(2, dtype=bool)
    result = gradients(
        lambda q, k, v: (
            dot_product_attention(q, k, v, mask=masks.causal(), kernel=kernel) ** 2
        ),
        *arrays,
    )
    step = 1e-5
    for i, gradient in enumerate(result):
        for index in np.ndindex(gradient.shape):
            totals = []
            for sign in (1, -1):
                moved = [a.astype("float64") for a in arrays]
                moved[i][index] += sign * step
                totals.append((attention(*moved, allowed=allowed)[0] ** 2).sum())
            slope = (totals[0] - totals[1]) / (2 * step)
            assert abs(slope - gradient[index]) < 1e-4 * max(1, abs(slope))


@pytest.mark.parametrize("kernel", on_every_backend(KERNELS, ("full", "fused")))
def test_queries_without_keys(kernel: str) -> None:
    query, value = normal(2, 3, 2, 5), normal(2, 7, 2, 5, seed=1)
    mask = masks.padding(lengths_mask([7, 0], 7)) & masks.causal(-1)

    def attend(query: Any, value: Any) -> Any:
        return dot_product_attention(query, value, value, mask=mask, kernel=kernel)

    output = array(attend(*map(keras.ops.convert_to_tensor, (query, value))))
    assert_equal(output[1], np.zeros((3, 2, 5)))
    assert_equal(output[0, 0], np.zeros((2, 5)))
    assert np.abs(output[0, 1:]).min() > 0
    for gradient in gradients(lambda q, v: attend(q, v) ** 2, query, value):
        assert np.isfinite(gradient).all()
        assert_equal(gradient[1], np.zeros_like(gradient[1]))
    assert_equal(gradients(lambda q, v: attend(q, v) ** 2, query, value)[0][0, 0], 0.0)


@pytest.mark.every_backend
def test_part_of_a_longer_sequence() -> None:
    """`query_start` shifts the positions of the queries, as in a decoding step."""
    x = keras.ops.convert_to_tensor(normal(2, 7, 3, 5))
    full = dot_product_attention(x, x, x, mask=masks.causal())
    for kernel in KERNELS:
        for start in (3, keras.ops.convert_to_tensor(3, dtype="int32")):
            part = dot_product_attention(
                x[:, 3:5], x, x, mask=masks.causal(), query_start=start, kernel=kernel
            )
            assert_close(part, full[:, 3:5], 1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision(dtype: str) -> None:
    arrays = [normal(2, 5, 3, 8, seed=seed) for seed in range(3)]
    expected, _ = attention(*arrays, allowed=np.tri(5, dtype=bool))
    tensors = [keras.ops.convert_to_tensor(array, dtype=dtype) for array in arrays]
    for kernel in KERNELS:
        output = dot_product_attention(*tensors, mask=masks.causal(), kernel=kernel)
        assert keras.backend.standardize_dtype(output.dtype) == dtype
        assert_close(keras.ops.cast(output, "float32"), expected, 0.03)


def test_softmax_is_in_float32() -> None:
    """Near 1024, float16 numbers are 1 apart: adding this bias would have no effect."""
    x = keras.ops.full((1, 2, 1, 4), 16, dtype="float16")
    bias = keras.ops.convert_to_tensor([[[[0.0, 0.4]]]], dtype="float32")
    _, weights = dot_product_attention(
        x, x, x, bias=bias, scale=1.0, return_weights=True
    )
    expected = np.exp([0.0, 0.4]) / np.exp([0.0, 0.4]).sum()
    assert_close(array(weights).astype("float32")[0, 0, 0], expected, 1e-3)


def test_half_precision_has_finite_gradients_for_queries_without_keys() -> None:
    """A large negative number is minus infinity in float16, and its softmax is NaN."""
    x = normal(2, 3, 2, 5).astype("float16")
    mask = masks.padding(lengths_mask([3, 0], 3))
    [gradient] = gradients(
        lambda x: dot_product_attention(x, x, x, mask=mask, kernel="full"), x
    )
    assert np.isfinite(gradient).all()
    assert np.abs(gradient[0]).max() > 0


def test_dropout_is_applied_to_the_weights_only() -> None:
    rng = keras.random.SeedGenerator(1)
    ones = keras.ops.ones((200, 2, 2, 3))
    output, weights = dot_product_attention(
        ones, ones, ones, dropout=0.5, seed=rng, return_weights=True
    )
    # Each output is a sum of two weights of 1/2, each dropped or doubled.
    assert set(np.unique(np.round(array(output), 5))) == {0.0, 1.0, 2.0}
    assert abs(array(output).mean() - 1) < 0.1
    assert_close(weights, np.full((200, 2, 2, 2), 0.5), 1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kernel": "flash"}, "`kernel` must be one of .*Received: kernel='flash'"),
        (
            {"kernel": "fused", "return_weights": True},
            "does not support return_weights",
        ),
        ({"kernel": "fused", "dropout": 0.1, "seed": 1}, "does not support dropout"),
    ],
)
def test_invalid_kernels(arguments: dict[str, Any], message: str) -> None:
    x = keras.ops.ones((1, 2, 1, 2))
    with pytest.raises(ValueError, match=message):
        dot_product_attention(x, x, x, **arguments)


@pytest.mark.every_backend
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("low", [-np.inf, np.finfo("float32").min, -1e31])
def test_a_bias_never_unmasks_a_key(kernel: str, low: float) -> None:
    """The only key that is not masked has a very low bias."""
    x = normal(1, 1, 2, 3)
    keys, values = normal(1, 5, 2, 3, seed=1), normal(1, 5, 2, 3, seed=2)
    bias = np.zeros((1, 1, 1, 5), "float32")
    bias[..., 0] = low
    allowed = masks.dense(np.arange(5)[None, None] == 0)
    result = dot_product_attention(
        x, keys, values, mask=allowed, bias=bias, kernel=kernel
    )
    assert_close(result, values[:, :1])
