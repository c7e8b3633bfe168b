"""Linear attention, in chunks and step by step, against its weights in NumPy."""

import functools

import hypothesis
import keras
import numpy as np
import pytest
from backend_marks import on_every_backend
from hypothesis import strategies
from keras import ops
from tensors import array, assert_close, assert_equal, gradients, lengths_mask, normal

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


def reference(query, key, value, allowed, feature_map):
    """The output and the weights by the whole `(B, N, T, S)` matrix, in float64."""
    query, key, value = (np.asarray(x, "float64") for x in (query, key, value))
    features = FEATURE_MAPS[feature_map]
    weights = np.einsum("btnh,bsnh->bnts", features(query), features(key)) * allowed
    totals = weights.sum(-1, keepdims=True)
    weights = np.divide(weights, totals, out=np.zeros_like(weights), where=totals > 0)
    return np.einsum("bnts,bsnv->btnv", weights, value), weights


def arrays(length, total=None, batch=2):
    total = total or length
    shapes = (length, KEY), (total, KEY), (total, VALUE)
    return [
        normal(batch, positions, HEADS, size, seed=seed)
        for seed, (positions, size) in enumerate(shapes)
    ]


def tensors(values):
    return [ops.convert_to_tensor(value) for value in values]


def allowed_by(length, total=None, keep=None, causal=False):
    allowed = np.ones((1, 1, length, total or length), bool)
    if causal:
        allowed = allowed & np.tri(length, dtype=bool)
    return allowed if keep is None else allowed & keep[:, None, None]


@pytest.fixture
def chunks_of(monkeypatch):
    return lambda size: monkeypatch.setattr(linear, "CHUNK", size)


@pytest.mark.on_pytorch
@pytest.mark.parametrize("feature_map", FEATURE_MAPS)
@pytest.mark.parametrize(("length", "chunk"), [(1, 4), (13, 4), (12, 4), (13, 128)])
def test_causal_is_the_matrix_form(chunks_of, length, chunk, feature_map):
    chunks_of(chunk)
    given, keep = arrays(length), lengths_mask([length, length // 2], length)
    keep[0, 0] = length == 1
    for padding_mask in (None, keep):
        how = {
            "padding_mask": padding_mask,
            "causal": True,
            "feature_map": feature_map,
        }
        allowed = allowed_by(length, keep=padding_mask, causal=True)
        output, weights = reference(*given, allowed, feature_map)
        assert_close(linear_attention(*tensors(given), **how), output)
        assert_close(linear_attention_weights(*tensors(given[:2]), **how), weights)


@pytest.mark.on_pytorch
@pytest.mark.parametrize("feature_map", FEATURE_MAPS)
@pytest.mark.parametrize(("length", "total"), [(1, 1), (11, 13), (13, 1)])
def test_not_causal_is_the_matrix_form(length, total, feature_map):
    given, keep = arrays(length, total), lengths_mask([total, total // 2], total)
    for padding_mask in (None, keep, keep.astype("int32")):
        how = {"padding_mask": padding_mask, "feature_map": feature_map}
        allowed = allowed_by(length, total, None if padding_mask is None else keep)
        output, weights = reference(*given, allowed, feature_map)
        assert_close(linear_attention(*tensors(given), **how), output)
        assert_close(linear_attention_weights(*tensors(given[:2]), **how), weights)


def test_elu_keeps_its_digits_where_it_is_small():
    """Of `elu(x) + 1` in float32 there would be one in a hundred left."""
    key = np.linspace(-14, -12, 5, dtype="float32").reshape(1, 5, 1, 1)
    value = normal(1, 5, 1, 2)
    found = linear_attention(*tensors([key, key, value]))
    assert_close(found, reference(key, key, value, 1.0, "elu")[0], 1e-5)


@strategies.composite
def runs(draw):
    """A length, cut into runs; and the size of a chunk."""
    sizes = draw(strategies.lists(strategies.integers(1, 9), min_size=1, max_size=5))
    return sizes, draw(strategies.sampled_from([1, 3, 4, 128]))


@hypothesis.settings(max_examples=30, deadline=None, derandomize=True, database=None)
@hypothesis.given(runs(), strategies.integers(0, 99), strategies.booleans())
def test_parallel_is_recurrent(run, seed, padded):
    sizes, chunk = run
    length = sum(sizes)
    given = arrays(length)
    keep = np.random.default_rng(seed).random((2, length)) < 0.7 if padded else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linear, "CHUNK", chunk)
        expected = linear_attention(*tensors(given), padding_mask=keep, causal=True)
        found, after = in_runs(given, sizes, keep)
    assert_close(found, expected)
    phi = FEATURE_MAPS["elu"](given[1].astype("float64"))
    if padded:
        phi = phi * keep[:, :, None, None]
    assert_close(after[0], np.einsum("btnh,btnv->bnhv", phi, given[2]))
    assert_close(after[1], phi.sum(1))


def in_runs(given, sizes, keep=None):
    """Outputs of one step after another, joined, and the last sums."""
    batch = len(given[0])
    sums = ops.zeros((batch, HEADS, KEY, VALUE)), ops.zeros((batch, HEADS, KEY))
    outputs, start = [], 0
    for size in sizes:
        span = slice(start, start + size)
        output, *sums = linear_attention_step(
            *sums,
            *tensors(x[:, span] for x in given),
            padding_mask=None if keep is None else keep[:, span],
        )
        outputs.append(array(output))
        start += size
    return np.concatenate(outputs, axis=1), sums


@pytest.mark.every_backend
def test_token_by_token(chunks_of):
    chunks_of(4)
    given, keep = arrays(13), lengths_mask([13, 5], 13)
    expected = linear_attention(*tensors(given), padding_mask=keep, causal=True)
    assert_close(in_runs(given, [1] * 13, keep)[0], expected)
    assert_close(in_runs(given, [6, 1, 6], keep)[0], expected)


@pytest.mark.parametrize("causal", on_every_backend([False, True], (True,)))
def test_gradients_are_those_of_the_matrix_form(chunks_of, causal):
    """Of the matrix form in PyTorch, which shares no code with ours."""
    torch = pytest.importorskip("torch")
    chunks_of(4)
    given, keep = arrays(11), lengths_mask([11, 6], 11)
    found = gradients(
        lambda *x: linear_attention(*x, padding_mask=keep, causal=causal) ** 2, *given
    )
    leaves = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in given]
    query, key = (torch.nn.functional.elu(x) + 1 for x in leaves[:2])
    weights = torch.einsum("btnh,bsnh->bnts", query, key)
    weights = weights * torch.tensor(allowed_by(11, keep=keep, causal=causal))
    weights = weights / weights.sum(-1, keepdim=True)
    (torch.einsum("bnts,bsnv->btnv", weights, leaves[2]) ** 2).sum().backward()
    for gradient, leaf in zip(found, leaves):
        assert_close(gradient, leaf.grad.numpy())


@pytest.mark.parametrize("causal", on_every_backend([False, True], (True,)))
def test_nothing_to_attend_to(chunks_of, causal):
    chunks_of(4)
    given = arrays(11, batch=3)
    keep = lengths_mask([11, 0, 11], 11)
    keep[2, :5] = False  # More than a chunk of padding before the first key.
    given[0][0, 3] = -1e4  # No feature of this query is above zero.

    def attend(*x):
        return linear_attention(*x, padding_mask=keep, causal=causal)

    output = array(attend(*tensors(given)))
    empty = np.zeros((3, 11), bool)
    empty[1], empty[0, 3], empty[2, :5] = True, True, causal
    assert_equal(output[empty], 0.0)
    assert np.abs(output[~empty]).min() > 0
    for gradient in gradients(lambda *x: attend(*x) ** 2, *given):
        assert np.isfinite(gradient).all()
        assert_equal(gradient[1], 0.0)
        assert np.abs(gradient[0]).max() > 0


@pytest.mark.parametrize("scale", [1e-6, 1e4])
def test_extreme_numbers_stay_finite(scale):
    given = arrays(11)
    given = [given[0] * scale, given[1] * scale, given[2]]
    for function in (
        lambda *x: linear_attention(*x, causal=True),
        lambda *x: linear_attention(*x),
    ):
        assert np.isfinite(array(function(*tensors(given)))).all()
        for gradient in gradients(function, *given):
            assert np.isfinite(gradient).all()


@pytest.mark.parametrize("position", [3, 4, 12])
def test_the_future_does_not_reach_back(chunks_of, position):
    chunks_of(4)
    given = arrays(13)
    before = array(linear_attention(*tensors(given), causal=True))
    for x in given:
        x[:, position] += 10
    after = array(linear_attention(*tensors(given), causal=True))
    assert_equal(after[:, :position], before[:, :position])
    assert np.abs(after - before)[:, position:].max((2, 3)).min() > 1e-3


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="of TensorFlow")
@pytest.mark.parametrize("jit_compile", [False, True])
def test_unknown_sizes_in_a_graph(chunks_of, jit_compile):
    import tensorflow as tf

    chunks_of(4)
    specs = [tf.TensorSpec((None, None, HEADS, size)) for size in (KEY, KEY, VALUE)]
    mask = tf.TensorSpec((None, None), tf.bool)

    @tf.function(input_signature=[*specs, mask], jit_compile=jit_compile)
    def run(query, key, value, keep):
        given = [query, key, value]
        with tf.GradientTape() as tape:
            tape.watch(given)
            output = linear_attention(*given, padding_mask=keep, causal=True)
        return output, tape.gradient(output, given)

    for length in (1, 8, 13):
        given, keep = arrays(length), lengths_mask([length, length // 2], length)
        output, found = run(*given, keep)
        allowed = allowed_by(length, keep=keep, causal=True)
        assert_close(output, reference(*given, allowed, "elu")[0])
        expected = gradients(
            functools.partial(linear_attention, padding_mask=keep, causal=True), *given
        )
        for gradient, one in zip(found, expected):
            assert_close(gradient, one)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_are_of_full_precision(dtype):
    """Summed in half precision, 5,000 weights would be off by far more."""
    given = [ops.cast(x, dtype) for x in tensors(arrays(5000, batch=1))]
    exact = [ops.cast(x, "float32") for x in given]
    found = linear_attention(*given, causal=True)
    assert keras.backend.standardize_dtype(found.dtype) == dtype
    expected = linear_attention(*exact, causal=True)
    rounded = array(ops.cast(ops.cast(expected, dtype), "float32"))
    assert_equal(ops.cast(found, "float32"), rounded)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="of TensorFlow")
@pytest.mark.parametrize("with_gradients", [False, True])
def test_all_that_is_computed_grows_linearly(with_gradients):
    """Four times the length, four times the numbers in all tensors of the graph."""
    import tensorflow as tf

    def numbers(length):
        @tf.function
        def run(*given):
            with tf.GradientTape() as tape:
                tape.watch(given)
                output = linear_attention(*given, causal=True)
            return tape.gradient(output, given) if with_gradients else output

        graph = run.get_concrete_function(*tensors(arrays(length))).graph
        shapes = [t.shape for op in graph.get_operations() for t in op.outputs]
        assert all(shape.is_fully_defined() for shape in shapes)
        return sum(shape.num_elements() for shape in shapes)

    # Measured at multiples of a chunk; what does not grow makes the ratio smaller.
    assert 3.5 < numbers(8192) / numbers(2048) < 4
