"""Heads, windows, segments and position objects of the attention layers."""

import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
from tensors import array, assert_close, assert_equal, fill_weights, normal

from keras_attn import layers, ops
from keras_attn.ops.position import bias as biases

BATCH, LENGTH, WIDTH, HEADS = 2, 11, 12, 6
X = normal(BATCH, LENGTH, WIDTH)
PLACE = np.arange(LENGTH)
CAUSAL = PLACE[:, None] >= PLACE


def made(seed=0, layer_class=layers.MultiHeadSelfAttention, **options):
    layer = layer_class(HEADS, **{"key_dim": 4, **options})
    layer.build(X.shape)
    return fill_weights(layer, seed)


def normalized(x, gain):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * gain


def rotated(x):
    """Halves of a head as real and imaginary parts, turned."""
    half = x.shape[-1] // 2
    angles = PLACE[:, None] * 10000.0 ** (-np.arange(half) / half)
    turned = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angles)[:, None]
    return np.concatenate([turned.real, turned.imag], axis=-1)


def expected_of(layer, allowed=True, bias=0.0):
    """Output and weights in float64, with keys repeated for the heads that share one.

    The layer says what it is made of: the mathematics is here.
    """
    weights = {
        "/".join(weight.path.split("/")[-2:]): array(weight).astype("float64")
        for weight in layer.weights
    }
    x = X.astype("float64")

    def projected(name):
        kernel = weights[f"{name}/kernel"]
        return np.tensordot(x, kernel, axes=1) + weights.get(f"{name}/bias", 0.0)

    query, key, value = map(projected, ("query", "key", "value"))
    if layer.qk_norm is not None:
        query = normalized(query, weights["query_norm/scale"])
        key = normalized(key, weights["key_norm/scale"])
    if layer.position is not None:
        query, key = rotated(query), rotated(key)
    key, value = (np.repeat(z, HEADS // z.shape[2], axis=2) for z in (key, value))
    scale = query.shape[-1] ** -0.5 if layer.scale is None else layer.scale
    scores = np.einsum("btnh,bsnh->bnts", query, key) * scale
    if layer.logit_soft_cap is not None:
        scores = layer.logit_soft_cap * np.tanh(scores / layer.logit_soft_cap)
    exponentials = np.where(allowed, np.exp(scores + bias), 0.0)
    totals = exponentials.sum(-1, keepdims=True)
    if layer.use_sinks:
        totals = totals + np.exp(array(layer.sinks).astype("float64"))[:, None, None]
    shares = exponentials / totals
    attended = np.einsum("bnts,bsnv->btnv", shares, value)
    if layer.use_gate:
        attended /= 1 + np.exp(-projected("gate"))
    output = np.tensordot(attended, weights["attention_output/kernel"], axes=2)
    return output + weights.get("attention_output/bias", 0.0), shares


HEAD_OPTIONS = {
    "grouped": {"num_key_value_heads": 2},
    "grouped by two": {"num_key_value_heads": 3, "value_dim": 5},
    "multi-query": {"num_key_value_heads": 1},
    "query-key normalization": {"qk_norm": "rms_norm"},
    "query-key normalization, rotated": {
        "qk_norm": "rms_norm",
        "position": lambda: layers.RotaryPositionEmbedding(),
    },
    "soft cap": {"logit_soft_cap": 0.7},
    "scale": {"scale": 1.3},
    "sinks": {"use_sinks": True},
    "output gate": {"use_gate": True, "value_dim": 5},
    "no bias of the output": {"use_output_bias": False},
    "bias of the output alone": {"use_bias": False, "use_output_bias": True},
    "all together": {
        "num_key_value_heads": 2,
        "value_dim": 5,
        "qk_norm": "rms_norm",
        "position": lambda: layers.RotaryPositionEmbedding(),
        "logit_soft_cap": 0.7,
        "scale": 1.3,
        "use_sinks": True,
        "use_gate": True,
    },
}


@pytest.mark.every_backend
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", HEAD_OPTIONS)
def test_heads(name, causal):
    options = HEAD_OPTIONS[name]
    layer = made(**{k: v() if callable(v) else v for k, v in options.items()})
    output, shares = expected_of(layer, CAUSAL if causal else True)
    found, weights = layer(X, use_causal_mask=causal, return_attention_scores=True)
    assert_close(found, output)
    assert_close(weights, shares)
    assert_close(layer(X, use_causal_mask=causal), output)


def test_shapes_of_grouped_heads():
    """There are fewer kernels, and a smaller cache."""
    layer = made(num_key_value_heads=2, value_dim=5)
    shapes = {
        w.path.split("/")[-2]: w.shape for w in layer.weights if "kernel" in w.path
    }
    assert shapes == {
        "query": (WIDTH, HEADS, 4),
        "key": (WIDTH, 2, 4),
        "value": (WIDTH, 2, 5),
        "attention_output": (HEADS, 5, WIDTH),
    }
    spec = layer.cache_spec(3, 7, ())
    assert spec["key"].shape == (3 * 2, 7, 4)
    assert spec["value"].shape == (3 * 2, 7, 5)


@pytest.mark.parametrize(("inputs", "output"), [(True, False), (False, True)])
def test_which_projections_have_biases(inputs, output):
    layer = made(use_bias=inputs, use_output_bias=output)
    biased = {w.path.split("/")[-2] for w in layer.weights if w.path.endswith("bias")}
    assert biased == ({"query", "key", "value"} if inputs else {"attention_output"})


def test_weights_with_sinks_sum_to_less_than_one():
    _, weights = made(use_sinks=True)(X, return_attention_scores=True)
    total = array(weights).sum(-1)
    assert (total < 1).all() and (total > 0).all()


# Positions


def test_alibi_slopes():
    """Those of the paper and, for twelve heads, of its authors' code."""
    eight = [2.0**-n for n in range(1, 9)]
    assert biases.alibi_slopes(8) == eight
    more = [2.0**-n for n in (0.5, 1.5, 2.5, 3.5)]
    np.testing.assert_allclose(biases.alibi_slopes(12), eight + more)
    assert biases.alibi_slopes(1) == [2.0**-8]


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "far"), [(32, 128), (8, 20), (6, 50)])
def test_relative_buckets(bidirectional, buckets, far):
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from transformers.models.t5.modeling_t5 import T5Attention

    distances = np.arange(-300, 301)
    expected = T5Attention._relative_position_bucket(
        torch.from_numpy(distances), bidirectional, buckets, far
    )
    found = biases.relative_bucket(
        keras.ops.convert_to_tensor(distances, "int32"), buckets, far, bidirectional
    )
    assert_equal(found, expected.numpy())


def alibi_values():
    slopes = np.array(biases.alibi_slopes(HEADS))
    return -slopes[:, None, None] * np.abs(PLACE[:, None] - PLACE)


def relative_values(position):
    """A bucket for each distance up to 3, one for the rest, on both sides."""
    distance = PLACE - PLACE[:, None]
    bucket = np.minimum(np.abs(distance), 3) + 4 * (distance > 0)
    return array(position.table).astype("float64")[bucket].transpose(2, 0, 1)


def relative():
    # Of four buckets a side two are exact; 3 is the first of the last one.
    return layers.RelativePositionBias(num_buckets=8, max_distance=3)


@pytest.mark.every_backend
@pytest.mark.parametrize("kind", ["ALiBi", "relative"])
def test_biases_within_attention(kind):
    position = layers.AlibiPositionBias() if kind == "ALiBi" else relative()
    layer = made(position=position, num_key_value_heads=2)
    values = alibi_values() if kind == "ALiBi" else relative_values(position)
    layer._position.argument = None  # the reference would rotate
    output, _ = expected_of(layer, CAUSAL, values)
    assert_close(layer(X, use_causal_mask=True), output)


@pytest.mark.parametrize("as_tensor", [False, True])
@pytest.mark.parametrize("make", [layers.AlibiPositionBias, relative])
def test_start_index_of_biases(make, as_tensor):
    layer, scores = make(), normal(BATCH, HEADS, LENGTH, LENGTH)
    layer.build(scores.shape)
    fill_weights(layer)
    start = keras.ops.convert_to_tensor(4, "int32") if as_tensor else 4
    found = layer(scores[:, :, 4:9], start_index=start)
    assert_close(found, array(layer(scores))[:, :, 4:9])
    assert np.abs(array(found) - scores[:, :, 4:9]).max() > 0.1


def test_a_rotation_and_a_bias_together():
    both = made(position=[layers.RotaryPositionEmbedding(), layers.AlibiPositionBias()])
    output, _ = expected_of(both, True, alibi_values())
    assert_close(both(X), output)


# Windows


@pytest.mark.every_backend
@pytest.mark.parametrize("kernel", ["full", "blockwise"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("window", "num_global"), [(1, 0), (3, 0), (3, 2), (LENGTH, 0), (4, LENGTH)]
)
def test_a_window_is_a_dense_mask(window, num_global, causal, kernel):
    options = {"position": layers.RotaryPositionEmbedding(), "num_key_value_heads": 2}
    layer = made(
        sliding_window=window,
        num_global_tokens=num_global,
        attention_kernel=kernel,
        **options,
    )
    allowed = np.zeros((LENGTH, LENGTH), bool)
    for i, j in np.ndindex(LENGTH, LENGTH):
        near = j in range(i - window + 1, i + window)
        allowed[i, j] = near or i < num_global or j < num_global
    if causal:
        allowed &= CAUSAL
    found = layer(X, use_causal_mask=causal)
    assert_close(found, expected_of(layer, allowed)[0])


# Segments

SEGMENTS = np.array([[5, 5, 5, 5, 2, 2, 2, 2, 2, 9, 9], [1] * 3 + [2] * 8], "int32")
POSITIONS = {
    "none": lambda: None,
    "rotary": layers.RotaryPositionEmbedding,
    "ALiBi": layers.AlibiPositionBias,
    "relative": relative,
}


@pytest.mark.on_pytorch
@pytest.mark.parametrize("kernel", ["full", "blockwise"])
@pytest.mark.parametrize("causal", [False, True])
def test_segments_are_a_dense_mask(causal, kernel):
    mixed = np.random.default_rng(0).integers(0, 3, SEGMENTS.shape)  # not in order
    layer = made(attention_kernel=kernel, num_key_value_heads=2)
    for segments in SEGMENTS, mixed:
        same = segments[:, :, None] == segments[:, None]
        expected = layer(X, attention_mask=same, use_causal_mask=causal)
        assert_close(layer(X, segment_ids=segments, use_causal_mask=causal), expected)
    assert np.abs(array(layer(X, use_causal_mask=causal) - expected)).max() > 0.01


@pytest.mark.parametrize("kernel", ["full", "blockwise"])
@pytest.mark.parametrize("name", POSITIONS)
@pytest.mark.parametrize("window", [None, 3])
def test_packed_sequences_are_as_by_themselves(name, window, kernel):
    layer = made(
        position=POSITIONS[name](), sliding_window=window, attention_kernel=kernel
    )
    found = array(layer(X, segment_ids=SEGMENTS, use_causal_mask=True))
    for row, ids in enumerate(SEGMENTS):
        for segment in np.unique(ids):
            alone = X[row : row + 1, ids == segment]
            expected = layer(alone, use_causal_mask=True)
            assert_close(found[row : row + 1, ids == segment], expected)


@pytest.mark.parametrize(
    "block_class", [layers.TransformerEncoder, layers.TransformerDecoder]
)
def test_segments_of_a_block(block_class):
    """With learned positions, which start again for each sequence."""
    attention = made(position=layers.RotaryPositionEmbedding())
    block = block_class(7, HEADS, attention=attention)
    learned = layers.PositionEmbedding(LENGTH)
    fill_weights(learned(X) is not None and learned)
    block.build(X.shape)
    fill_weights(block)
    x = learned(X, positions=ops.segment_positions(SEGMENTS))
    found = array(block(x, segment_ids=SEGMENTS))
    for row, ids in enumerate(SEGMENTS):
        for segment in np.unique(ids):
            expected = block(learned(X[row : row + 1, ids == segment]))
            assert_close(found[row : row + 1, ids == segment], expected)


@pytest.mark.every_backend
def test_segment_positions():
    rng = np.random.default_rng(0)
    segments = np.repeat(rng.integers(0, 3, (4, 8)), rng.integers(1, 5, 8), axis=1)
    expected = np.zeros_like(segments)
    for row, place in np.ndindex(segments.shape):
        if place and segments[row, place] == segments[row, place - 1]:
            expected[row, place] = expected[row, place - 1] + 1
    assert_equal(ops.segment_positions(segments), expected)
    assert_equal(ops.segment_positions(segments[:, :1]), 0)


# One object in two layers


def sharing_model(in_blocks):
    position = relative()
    inputs = x = keras.Input((None, WIDTH), name="x")
    for _ in "ab":
        attention = layers.MultiHeadSelfAttention(HEADS, position=position)
        if in_blocks:
            x = layers.TransformerDecoder(7, HEADS, attention=attention)(x)
        else:
            x = attention(x)
    return fill_weights(keras.Model({"x": inputs}, x))


def tables(model):
    return [weight for weight in model.weights if weight.path.endswith("table")]


@pytest.mark.slow
@pytest.mark.subprocess
@pytest.mark.parametrize("in_blocks", [False, True])
def test_a_shared_table_stays_shared_in_a_file(in_blocks, tmp_path):
    model = sharing_model(in_blocks)
    assert len(tables(model)) == 1
    before = array(model({"x": X}))
    model.save(tmp_path / "shared.keras")
    np.savez(tmp_path / "shared.npz", x=X)
    script = pathlib.Path(__file__).with_name("load_saved_layers.py")
    root = pathlib.Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    subprocess.run([sys.executable, script, tmp_path], check=True, env=environment)
    np.testing.assert_allclose(np.load(tmp_path / "shared.npy"), before, atol=1e-6)
    loaded = keras.saving.load_model(tmp_path / "shared.keras")
    assert len(tables(loaded)) == 1
    assert len(loaded.weights) == len(model.weights)
    tables(loaded)[0].assign(tables(model)[0] + normal(8, HEADS, seed=1))
    tables(model)[0].assign(tables(loaded)[0])
    assert_close(loaded({"x": X}), model({"x": X}), 1e-6)


# Bad input

ROTARY, ALIBI = layers.RotaryPositionEmbedding, layers.AlibiPositionBias


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sliding_window": 0}, "`size` of a window.*at least 1. Received: size=0"),
        ({"sliding_window": -3}, "`size` of a window.*Received: size=-3"),
        (
            {"sliding_window": 2.0},
            "`size` of a window must be an int.*Received: size=2.0",
        ),
        (
            {"sliding_window": True},
            "`size` of a window must be an int.*Received: size=True",
        ),
        (
            {"sliding_window": "3"},
            "`size` of a window must be an int.*Received: size='3'",
        ),
        ({"sliding_window": 3, "num_global_tokens": -1}, "at least 0.*num_global=-1"),
        ({"sliding_window": 3, "num_global_tokens": 1.5}, "at least 0.*num_global=1.5"),
        ({"num_global_tokens": 2}, "requires `sliding_window`.*num_global_tokens=2"),
        (
            {"num_key_value_heads": 4},
            "multiple of `num_key_value_heads`.*num_key_value_heads=4",
        ),
        (
            {"num_key_value_heads": 12},
            "multiple of `num_key_value_heads`.*num_key_value_heads=12",
        ),
        ({"num_key_value_heads": 0}, "`num_key_value_heads` must be a positive int"),
        ({"num_key_value_heads": 2.0}, "`num_key_value_heads` must be a positive int"),
        ({"position": "rotary"}, "`position` must be.*Received: position='rotary'"),
        ({"position": layers.PositionEmbedding(9)}, "`position` must be a Rotary"),
        ({"position": [ROTARY(), ROTARY()]}, "one rotation and one bias"),
        ({"position": [ALIBI(), relative()]}, "one rotation and one bias"),
        ({"logit_soft_cap": 0.0}, "`logit_soft_cap` must be a number above 0"),
        ({"logit_soft_cap": "30"}, "`logit_soft_cap` must be a number above 0"),
        ({"scale": -1.0}, "`scale` must be a number above 0"),
        ({"qk_norm": "l2"}, "`qk_norm` must be one of"),
        ({"use_sinks": "yes"}, "`use_sinks` must be a bool"),
        ({"use_gate": None}, "`use_gate` must be a bool"),
    ],
)
def test_bad_options_are_refused(options, message):
    for layer_class in layers.MultiHeadSelfAttention, layers.MultiHeadAttention:
        with pytest.raises(ValueError, match=message):
            layer_class(HEADS, **options)


def built_for_four_heads():
    bias = layers.RelativePositionBias()
    bias.build((None, 4, None, None))
    return bias


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key_dim": 5, "position": ROTARY()}, "width 5|even"),
        ({"key_dim": 4, "position": ROTARY(rotary_dim=6)}, "rotates 6.*size 4"),
        (
            {"position": built_for_four_heads()},
            "weights for 4 heads. Received: attention with num_heads=6",
        ),
    ],
)
def test_positions_that_do_not_fit_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        made(**options)


@pytest.mark.parametrize("options", [{"position": ROTARY()}, {"sliding_window": 3}])
def test_a_context_has_no_positions(options):
    with pytest.raises(ValueError, match="within one"):
        layers.CrossAttention(HEADS, **options)
    layer = layers.MultiHeadAttention(HEADS, **options)
    layer.build(X.shape, X.shape)
    with pytest.raises(ValueError, match="within one"):
        layer.project_context({"value": keras.ops.convert_to_tensor(X)})


@pytest.mark.parametrize(
    ("segments", "message"),
    [
        (SEGMENTS[:, 1:], r"`segment_ids` must be as long.*shape \(2, 10\)"),
        (SEGMENTS[0], r"`segment_ids` must be of shape \(batch, keys\).*shape \(11,\)"),
        (SEGMENTS.astype("float32"), "`segment_ids` must be integers.*float32"),
        (SEGMENTS > 2, "`segment_ids` must be integers.*bool"),
    ],
)
def test_bad_segments_are_refused(segments, message):
    for layer in made(), layers.TransformerEncoder(7, HEADS):
        with pytest.raises(ValueError, match=message):
            layer(X, segment_ids=segments)
        given = keras.Input(segments.shape[1:], dtype=str(segments.dtype))
        if segments.ndim == 2:
            with pytest.raises(ValueError, match=message.split(".*")[0]):
                layer(keras.Input((LENGTH, WIDTH)), segment_ids=given)
