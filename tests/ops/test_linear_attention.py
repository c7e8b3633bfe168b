"""Linear attention, in chunks and step by step, compared with NumPy."""

# Unpacked sequences, results of several types and invalid arguments.
# pyright: reportCallIssue=false

import functools
from collections.abc import Callable
from typing import Any

import hypothesis
import keras
import numpy as np
import pytest
from backend_marks import on_every_backend
from hypothesis import strategies
from keras import ops
from tensors import array, assert_close, assert_equal, gradients, lengths_mask, normal

from keras_attn._types import Tensor
from keras_attn.ops import (
    linear_attention,
    linear_attention_step,
    linear_attention_weights,
)
from keras_attn.ops.attention import linear

FEATURE_MAPS = {
    "elu": lambda x: np.where(x > 0, x + 1, np.exp(np.minimum(x, 0))),
    "relu": lambda x: np.maximum(x, 0) + 1e-3,
}
HEADS, KEY, VALUE = 3, 5, 7


def reference(
    query: Any, key: Any, value: Any, allowed: Any, feature_map: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return the output and the weights, `(B, N, T, S)`, in float64."""
    query, key, value = (np.asarray(x, "float64") for x in (query, key, value))
    features = FEATURE_MAPS[feature_map]
    weights = np.einsum("btnh,bsnh->bnts", features(query), features(key)) * allowed
    totals = weights.sum(-1, keepdims=True)
    weights = np.divide(weights, totals, out=np.zeros_like(weights), where=totals > 0)
    return np.einsum("bnts,bsnv->btnv", weights, value), weights


def arrays(length: int, total: int | None = None, batch: int = 2) -> list[np.ndarray]:
    total = total or length
    shapes = (length, KEY), (total, KEY), (total, VALUE)
    return [
        normal(batch, positions, HEADS, size, seed=seed)
        for seed, (positions, size) in enumerate(shapes)
    ]


def tensors(values: Any) -> list[Tensor]:
    return [ops.convert_to_tensor(value) for value in values]


def allowed_mask(
    length: int,
    total: int | None = None,
    keep: np.ndarray | None = None,
    causal: bool = False,
) -> np.ndarray:
    allowed = np.ones((1, 1, length, total or length), bool)
    if causal:
        allowed = allowed & np.tri(length, dtype=bool)
    return allowed if keep is None else allowed & keep[:, None, None]


@pytest.fixture
def set_chunk(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    return lambda size: monkeypatch.setattr(linear, "CHUNK", size)


@pytest.mark.on_pytorch
@pytest.mark.parametrize("feature_map", FEATURE_MAPS)
@pytest.mark.parametrize(("length", "chunk"), [(1, 4), (13, 4), (12, 4), (13, 128)])
def test_causal_equals_the_matrix_form(
    set_chunk: Callable[[int], None], length: int, chunk: int, feature_map: str
) -> None:
    set_chunk(chunk)
    inputs, keep = arrays(length), lengths_mask([length, length // 2], length)
    keep[0, 0] = length == 1
    for padding_mask in (None, keep):
        options = {
            "padding_mask": padding_mask,
            "causal": True,
            "feature_map": feature_map,
        }
        allowed = allowed_mask(length, keep=padding_mask, causal=True)
        output, weights = reference(*inputs, allowed, feature_map)
        assert_close(linear_attention(*tensors(inputs), **options), output)
        assert_close(linear_attention_weights(*tensors(inputs[:2]), **options), weights)


@pytest.mark.on_pytorch
@pytest.mark.parametrize("feature_map", FEATURE_MAPS)
@pytest.mark.parametrize(("length", "total"), [(1, 1), (11, 13), (13, 1)])
def test_bidirectional_equals_the_matrix_form(
    length: int, total: int, feature_map: str
) -> None:
    inputs, keep = arrays(length, total), lengths_mask([total, total // 2], total)
    for padding_mask in (None, keep, keep.astype("int32")):
        options = {"padding_mask": padding_mask, "feature_map": feature_map}
        allowed = allowed_mask(length, total, None if padding_mask is None else keep)
        output, weights = reference(*inputs, allowed, feature_map)
        assert_close(linear_attention(*tensors(inputs), **options), output)
        assert_close(linear_attention_weights(*tensors(inputs[:2]), **options), weights)


def test_small_elu_features_are_accurate() -> None:
    """`elu(x) + 1` in float32 would have an error of about one percent."""
    key = np.linspace(-14, -12, 5, dtype="float32").reshape(1, 5, 1, 1)
    value = normal(1, 5, 1, 2)
    result = linear_attention(*tensors([key, key, value]))
    assert_close(result, reference(key, key, value, 1.0, "elu")[0], 1e-5)


@strategies.composite
def steps(draw: strategies.DrawFn) -> tuple[list[int], int]:
    """Draw the lengths of consecutive steps, and the size of a chunk."""
    sizes = draw(strategies.lists(strategies.integers(1, 9), min_size=1, max_size=5))
    return sizes, draw(strategies.sampled_from([1, 3, 4, 128]))


@hypothesis.settings(max_examples=30, deadline=None, derandomize=True, database=None)
@hypothesis.given(steps(), strategies.integers(0, 99), strategies.booleans())
def test_parallel_equals_recurrent(
    run: tuple[list[int], int], seed: int, padded: bool
) -> None:
    sizes, chunk = run
    length = sum(sizes)
    inputs = arrays(length)
    keep = np.random.default_rng(seed).random((2, length)) < 0.7 if padded else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linear, "CHUNK", chunk)
        expected = linear_attention(*tensors(inputs), padding_mask=keep, causal=True)
        result, sums = in_steps(inputs, sizes, keep)
    assert_close(result, expected)
    phi = FEATURE_MAPS["elu"](inputs[1].astype("float64"))
    if keep is not None:
        phi = phi * keep[:, :, None, None]
    assert_close(sums[0], np.einsum("btnh,btnv->bnhv", phi, inputs[2]))
    assert_close(sums[1], phi.sum(1))


def in_steps(
    inputs: Any, sizes: list[int], keep: np.ndarray | None = None
) -> tuple[np.ndarray, Any]:
    """Return the concatenated outputs of several steps, and the last sums."""
    batch = len(inputs[0])
    sums = ops.zeros((batch, HEADS, KEY, VALUE)), ops.zeros((batch, HEADS, KEY))
    outputs, start = [], 0
    for size in sizes:
        span = slice(start, start + size)
        output, *sums = linear_attention_step(
            *sums,
            *tensors(x[:, span] for x in inputs),
            padding_mask=None if keep is None else keep[:, span],
        )
        outputs.append(array(output))
        start += size
    return np.concatenate(outputs, axis=1), sums


@pytest.mark.every_backend
def test_token_by_token(set_chunk: Callable[[int], None]) -> None:
    set_chunk(4)
    inputs, keep = arrays(13), lengths_mask([13, 5], 13)
    expected = linear_attention(*tensors(inputs), padding_mask=keep, causal=True)
    assert_close(in_steps(inputs, [1] * 13, keep)[0], expected)
    assert_close(in_steps(inputs, [6, 1, 6], keep)[0], expected)


@pytest.mark.parametrize("causal", on_every_backend([False, True], (True,)))
def test_gradients_equal_those_of_the_matrix_form(
    set_chunk: Callable[[int], None], causal: bool
) -> None:
    """Compare with the matrix form in PyTorch, an independent implementation."""
    torch = pytest.importorskip("torch")
    set_chunk(4)
    inputs, keep = arrays(11), lengths_mask([11, 6], 11)
    result = gradients(
        lambda *x: linear_attention(*x, padding_mask=keep, causal=causal) ** 2, *inputs
    )
    leaves = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in inputs]
    query, key = (torch.nn.functional.elu(x) + 1 for x in leaves[:2])
    weights = torch.einsum("btnh,bsnh->bnts", query, key)
    weights = weights * torch.tensor(allowed_mask(11, keep=keep, causal=causal))
    weights = weights / weights.sum(-1, keepdim=True)
    (torch.einsum("bnts,bsnv->btnv", weights, leaves[2]) ** 2).sum().backward()
    for gradient, leaf in zip(result, leaves):
        assert_close(gradient, leaf.grad.numpy())


@pytest.mark.parametrize("causal", on_every_backend([False, True], (True,)))
def test_queries_without_keys(set_chunk: Callable[[int], None], causal: bool) -> None:
    set_chunk(4)
    inputs = arrays(11, batch=3)
    keep = lengths_mask([11, 0, 11], 11)
    keep[2, :5] = False  # More padding than a chunk before the first key.
    inputs[0][0, 3] = -1e4  # All features of this query are zero.

    def attend(*x: Any) -> Any:
        return linear_attention(*x, padding_mask=keep, causal=causal)

    output = array(attend(*tensors(inputs)))
    has_no_key = np.zeros((3, 11), bool)
    has_no_key[1], has_no_key[0, 3], has_no_key[2, :5] = True, True, causal
    assert_equal(output[has_no_key], 0.0)
    assert np.abs(output[~has_no_key]).min() > 0
    for gradient in gradients(lambda *x: attend(*x) ** 2, *inputs):
        assert np.isfinite(gradient).all()
        assert_equal(gradient[1], 0.0)
        assert np.abs(gradient[0]).max() > 0


@pytest.mark.parametrize("scale", [1e-6, 1e4])
def test_extreme_numbers_stay_finite(scale: float) -> None:
    inputs = arrays(11)
    inputs = [inputs[0] * scale, inputs[1] * scale, inputs[2]]
    for function in (
        lambda *x: linear_attention(*x, causal=True),
        lambda *x: linear_attention(*x),
    ):
        assert np.isfinite(array(function(*tensors(inputs)))).all()
        for gradient in gradients(function, *inputs):
            assert np.isfinite(gradient).all()


@pytest.mark.parametrize("position", [3, 4, 12])
def test_causality(set_chunk: Callable[[int], None], position: int) -> None:
    set_chunk(4)
    inputs = arrays(13)
    before = array(linear_attention(*tensors(inputs), causal=True))
    for x in inputs:
        x[:, position] += 10
    after = array(linear_attention(*tensors(inputs), causal=True))
    assert_equal(after[:, :position], before[:, :position])
    assert np.abs(after - before)[:, position:].max((2, 3)).min() > 1e-3


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="tests tf.function")
@pytest.mark.parametrize("jit_compile", [False, True])
def test_unknown_sizes(set_chunk: Callable[[int], None], jit_compile: bool) -> None:
    import tensorflow as tf

    set_chunk(4)
    specs = [tf.TensorSpec((None, None, HEADS, size)) for size in (KEY, KEY, VALUE)]
    mask = tf.TensorSpec((None, None), tf.bool)

    @tf.function(input_signature=[*specs, mask], jit_compile=jit_compile)
    def run(query: Any, key: Any, value: Any, keep: np.ndarray | None) -> Any:
        inputs = [query, key, value]
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            output = linear_attention(*inputs, padding_mask=keep, causal=True)
        return output, tape.gradient(output, inputs)

    for length in (1, 8, 13):
        inputs, keep = arrays(length), lengths_mask([length, length // 2], length)
        output, result = run(*inputs, keep)
        allowed = allowed_mask(length, keep=keep, causal=True)
        assert_close(output, reference(*inputs, allowed, "elu")[0])
        expected = gradients(
            functools.partial(linear_attention, padding_mask=keep, causal=True), *inputs
        )
        for gradient, one in zip(result, expected):
            assert_close(gradient, one)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_are_float32(dtype: str) -> None:
    """Sums of 5,000 weights in half precision would have a larger error."""
    inputs = [ops.cast(x, dtype) for x in tensors(arrays(5000, batch=1))]
    exact = [ops.cast(x, "float32") for x in inputs]
    result = linear_attention(*inputs, causal=True)
    assert keras.backend.standardize_dtype(result.dtype) == dtype
    expected = linear_attention(*exact, causal=True)
    rounded = array(ops.cast(ops.cast(expected, dtype), "float32"))
    assert_equal(ops.cast(result, "float32"), rounded)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="tests tf.function")
@pytest.mark.parametrize("with_gradients", [False, True])
def test_computation_grows_linearly(with_gradients: bool) -> None:
    """Four times the length, four times the numbers in the tensors of the graph."""
    import tensorflow as tf

    def numbers(length: int) -> int:
        @tf.function
        def run(*inputs: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(inputs)
                output = linear_attention(*inputs, causal=True)
            return tape.gradient(output, inputs) if with_gradients else output

        graph = run.get_concrete_function(*tensors(arrays(length))).graph
        shapes = [t.shape for op in graph.get_operations() for t in op.outputs]
        assert all(shape.is_fully_defined() for shape in shapes)
        return sum(shape.num_elements() for shape in shapes)

    # Measured at multiples of a chunk; tensors of constant size reduce the ratio.
    assert 3.5 < numbers(8192) / numbers(2048) < 4
