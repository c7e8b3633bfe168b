"""Outputs and gradients of the attention kernels, compared for many features."""

# Unpacked sequences, results of several types and invalid arguments.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false
# pyright: reportCallIssue=false

import itertools
from collections.abc import Callable
from typing import Any

import hypothesis
import keras
import numpy as np
import pytest
from hypothesis import strategies
from numpy_attention import attention
from tensors import array, assert_close, gradients, normal

from keras_attn.ops import attention_kernel, masks
from keras_attn.ops import dot_product_attention as attend
from keras_attn.ops.attention.blockwise import attention as blockwise
from keras_attn.ops.position import bias as biases

B, T, S, N, H, V = 2, 19, 29, 6, 5, 7


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set block sizes that do not divide any length of these tests."""
    monkeypatch.setattr(blockwise, "_block_sizes", lambda *_: (8, 16))


def keep(*shape: int, share: float = 0.6, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random(shape) < share


def packed(seed: int = 0) -> np.ndarray:
    return np.sort(np.random.default_rng(seed).integers(0, 4, (B, S)), axis=1)


def without_keys_for_first(mask: np.ndarray) -> np.ndarray:
    mask[0] = False
    return mask


# Name -> number of queries, mask of these queries and S keys.
MASKS = {
    "none": (T, lambda: None),
    "causal": (S, masks.causal),
    "causal, positive offset": (T, lambda: masks.causal(3)),
    "causal, queries without keys": (T, lambda: masks.causal(-9)),
    "padding": (T, lambda: masks.padding(without_keys_for_first(keep(B, S)))),
    "window": (S, lambda: masks.causal() & masks.window(7)),
    "symmetric window with globals": (S, lambda: masks.window(5, num_global=3)),
    "segments": (S, lambda: masks.causal() & masks.segments(packed())),
    "dense": (T, lambda: masks.dense(keep(B, N, T, S))),
}

# Name -> number of key heads, bias, soft cap, whether to use sinks.
FEATURES = {
    "plain": (N, None, None, False),
    "grouped, dense bias, cap, sinks": (2, "dense", 2.0, True),
    "grouped, relative bias": (3, "relative", None, False),
    "multi-query, ALiBi, sinks": (1, "alibi", None, True),
    "bias of keys, cap": (N, "of keys", 1.0, False),
}


def make_function(mask: Any, features: Any, **options: Any) -> Callable[..., Any]:
    """Return attention as a function of the tensors that have a gradient."""
    _, bias, logit_soft_cap, has_sinks = features

    def function(query: Any, key: Any, value: Any, *others: Any) -> Any:
        remaining = list(others)
        bias_argument = None
        if bias in ("dense", "of keys"):
            bias_argument = remaining.pop(0)
        elif bias == "relative":
            bias_argument = biases.relative(remaining.pop(0), max_distance=20)
        elif bias == "alibi":
            bias_argument = biases.alibi(biases.alibi_slopes(N))
        sinks = remaining.pop(0) if has_sinks else None
        return attend(
            query,
            key,
            value,
            mask=mask,
            bias=bias_argument,
            logit_soft_cap=logit_soft_cap,
            sinks=sinks,
            **options,
        )

    return function


def random_arrays(length: int, features: Any, total: int = S) -> list[np.ndarray]:
    kv_heads, bias, _, has_sinks = features
    arrays = [
        normal(B, length, N, H),
        normal(B, total, kv_heads, H, seed=1),
        normal(B, total, kv_heads, V, seed=2),
    ]
    shapes = {"dense": (1, N, length, total), "of keys": (B, 1, 1, total)}
    if bias in shapes:
        arrays.append(normal(*shapes[bias], seed=3))
    elif bias == "relative":
        arrays.append(normal(8, N, seed=3))
    if has_sinks:
        arrays.append(normal(N, seed=4))
    return arrays


def compare(
    mask: Any, features: Any, arrays: list[np.ndarray], tolerance: float = 1e-5
) -> None:
    """Compare outputs of the full and the blockwise kernel, and their gradients.

    The gradients are those of a sum with random factors.
    """
    signs = normal(*arrays[0].shape[:3], arrays[2].shape[-1], seed=5)
    outputs, all_gradients = [], []
    for kernel in "full", "blockwise":
        function = make_function(mask, features, kernel=kernel)
        outputs.append(array(function(*map(keras.ops.convert_to_tensor, arrays))))
        all_gradients.append(
            gradients(
                lambda *a, f=function: f(*a) * keras.ops.convert_to_tensor(signs),
                *arrays,
            )
        )
    assert_close(outputs[1], outputs[0], tolerance)
    for full, blockwise_ in zip(*all_gradients):
        assert np.isfinite(blockwise_).all()
        assert_close(blockwise_, full, 10 * tolerance)


@pytest.mark.parametrize(
    ("mask", "features"),
    [
        pytest.param(*case, marks=mark)
        for *case, mark in (
            ("causal", "grouped, dense bias, cap, sinks", pytest.mark.every_backend),
            ("padding", "multi-query, ALiBi, sinks", pytest.mark.on_pytorch),
            (
                "symmetric window with globals",
                "grouped, relative bias",
                pytest.mark.on_pytorch,
            ),
            ("segments", "plain", pytest.mark.every_backend),
        )
    ],
)
def test_blockwise_equals_full(mask: str, features: str) -> None:
    length, mask = MASKS[mask]
    compare(mask(), FEATURES[features], random_arrays(length, FEATURES[features]))


@pytest.mark.parametrize(
    ("mask", "features"), list(zip(MASKS, itertools.cycle(FEATURES)))
)
def test_blockwise_equals_full_for_every_mask(mask: str, features: str) -> None:
    length, mask = MASKS[mask]
    compare(mask(), FEATURES[features], random_arrays(length, FEATURES[features]))


@pytest.mark.slow
@hypothesis.settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
@hypothesis.given(
    strategies.integers(1, 40),
    strategies.integers(1, 40),
    strategies.lists(strategies.sampled_from(["causal", "window", "pad"]), max_size=3),
    strategies.sampled_from(sorted(FEATURES)),
    strategies.integers(0, 99),
)
def test_blockwise_equals_full_for_any_lengths(
    length: int, total: int, kinds: list[str], features: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    makers = {
        "causal": lambda: masks.causal(int(rng.integers(-5, 6))),
        "window": lambda: masks.window(
            int(rng.integers(1, 30)), num_global=int(rng.integers(0, 4))
        ),
        "pad": lambda: masks.padding(rng.random((B, total)) < 0.8),
    }
    mask = masks.join(*(makers[kind]() for kind in kinds))
    arrays = random_arrays(length, FEATURES[features], total)
    compare(mask, FEATURES[features], arrays)


@pytest.mark.every_backend
@pytest.mark.parametrize("kernel", ["full", "blockwise", "fused"])
def test_every_kernel_equals_the_reference(kernel: str) -> None:
    query, key, value = random_arrays(T, (2, None, None, False))
    allowed = without_keys_for_first(keep(B, S))
    bias = normal(B, N, T, S, seed=3)
    if keras.backend.backend() == "jax":
        value = value[..., :H]  # JAX: no fused kernel for different head sizes
    result = attend(
        query, key, value, mask=masks.padding(allowed), bias=bias, kernel=kernel
    )
    repeated = [np.repeat(x, N // 2, axis=2) for x in (key, value)]
    expected, _ = attention(
        query, *repeated, allowed=allowed[:, None, None], bias=bias.astype("float64")
    )
    assert_close(result, expected)


def test_soft_cap_and_sinks_match_their_formulas() -> None:
    query, key, value = random_arrays(T, (N, None, None, False))
    sinks = normal(N, seed=4)
    result = attend(
        query, key, value, logit_soft_cap=0.5, sinks=sinks, kernel="blockwise"
    )
    scores = np.einsum("btnh,bsnh->bnts", query, key) / np.sqrt(H)
    exponentials = np.exp(0.5 * np.tanh(scores / 0.5))
    total = exponentials.sum(-1) + np.exp(sinks)[:, None]
    expected = np.einsum("bnts,bsnv->btnv", exponentials / total[..., None], value)
    assert_close(result, expected)


@pytest.mark.every_backend
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_is_near_float32(dtype: str) -> None:
    query, key, value = random_arrays(T, (3, None, None, False))
    expected = attend(query, key, value, kernel="full")
    half = [keras.ops.cast(x, dtype) for x in (query, key, value)]
    result = attend(*half, kernel="blockwise")
    assert keras.backend.standardize_dtype(result.dtype) == dtype
    tolerance = {"bfloat16": 4e-2, "float16": 5e-3}[dtype]
    assert_close(keras.ops.cast(result, "float32"), expected, tolerance)


@pytest.mark.every_backend
def test_dropout_rate_and_same_mask_in_the_gradient() -> None:
    query, key = normal(1, 64, 1, 4), normal(1, 96, 1, 4, seed=1)
    value = np.eye(96, dtype="float32")[None, :, None]  # outputs are the weights

    def function(query: Any, key: Any, value: Any) -> Any:
        return attend(query, key, value, dropout=0.3, seed=7, kernel="blockwise")

    weights = array(attend(query, key, value, kernel="full"))
    dropped = array(function(*map(keras.ops.convert_to_tensor, (query, key, value))))
    keep = dropped != 0
    # 6144 draws: the share is within 5 standard deviations, 0.03.
    assert abs(keep.mean() - 0.7) < 0.03
    assert (
        keep.mean(axis=(0, 2, 3)).min() > 0.4 and keep.mean(axis=(0, 1, 2)).min() > 0.4
    )
    np.testing.assert_allclose(dropped[keep], (weights / 0.7)[keep], rtol=1e-5)
    # The gradient of the value is the sum of the weights after dropout.
    *_, value_gradient = gradients(function, query, key, value)
    assert_close(value_gradient[0, :, 0, 0], dropped[0, :, 0].sum(axis=0))


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_unknown_lengths(jit_compile: bool) -> None:
    if keras.backend.backend() != "tensorflow":
        pytest.skip("tests tf.function")
    import tensorflow as tf

    ids = packed()[:, :S]

    def function(query: Any, key: Any, value: Any, ids: Any) -> Any:
        mask = masks.causal() & masks.window(9) & masks.segments(ids)
        return attend(query, key, value, mask=mask, kernel="blockwise")

    spec = [tf.TensorSpec([None, None, N, x]) for x in (H, H, V)]
    compiled = tf.function(
        function,
        input_signature=[*spec, tf.TensorSpec([None, None], tf.int64)],
        jit_compile=jit_compile,
    )
    arrays = random_arrays(S, (N, None, None, False))
    mask = masks.causal() & masks.window(9) & masks.segments(ids)
    assert_close(compiled(*arrays, ids), attend(*arrays, mask=mask, kernel="full"))


class TestChoice:
    """The choice of the kernel, observed by recording calls."""

    @pytest.fixture
    def called(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        from keras_attn.ops.attention import dot_product as module

        calls = []
        for name in "blockwise_attention", "_fused", "softmax_weights":
            real = getattr(module, name)
            monkeypatch.setattr(
                module,
                name,
                lambda *a, real=real, name=name, **k: (
                    calls.append(name),
                    real(*a, **k),
                )[1],
            )
        return calls

    def test_context_and_argument(self, called: list[str]) -> None:
        x = normal(1, 5, 1, 4)
        with attention_kernel("blockwise"):
            attend(x, x, x)
            attend(x, x, x, kernel="full")
        attend(x, x, x, kernel="full")
        assert called == ["blockwise_attention", "softmax_weights", "softmax_weights"]

    def test_long_sequences_use_the_blockwise_kernel(
        self, called: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(blockwise, "_block_sizes", lambda *_: (512, 512))
        if keras.backend.backend() != "tensorflow":
            pytest.skip("other backends have a fused kernel")
        x, short = normal(1, 1024, 1, 4), normal(1, 1000, 1, 4)
        attend(x, x, x)
        attend(short, x, x)
        attend(x, x, x, return_weights=True)
        assert called == ["blockwise_attention", "softmax_weights", "softmax_weights"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"return_weights": True}, "blockwise kernel does not support return_weights"),
        (
            {"key_positions": np.arange(2)},
            "blockwise kernel does not support key_positions",
        ),
    ],
)
def test_unsupported_features_of_the_blockwise_kernel(
    arguments: dict[str, Any], message: str
) -> None:
    x = keras.ops.ones((1, 2, 1, 2))
    with pytest.raises(ValueError, match=message):
        attend(x, x, x, kernel="blockwise", **arguments)


def test_number_of_heads_must_be_divisible() -> None:
    x, keys = keras.ops.ones((1, 2, 4, 2)), keras.ops.ones((1, 2, 3, 2))
    with pytest.raises(
        ValueError, match="multiple of the number of key heads.*num_key_value_heads=3"
    ):
        attend(x, keys, keys)


def test_unknown_kernel_in_a_context() -> None:
    with (
        pytest.raises(ValueError, match="`kernel` must be one of.*'flash'"),
        attention_kernel("flash"),
    ):
        pass
