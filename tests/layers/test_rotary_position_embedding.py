"""The rotary layer: starts, positions, masks, arguments, KerasHub's layer."""

import keras
import numpy as np
import pytest
from tensors import array, assert_close, assert_equal, normal

from keras_attn import layers
from keras_attn.ops.position import rotary

BATCH, LENGTH, HEADS, WIDTH = 2, 5, 3, 8
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256}


def make(**kwargs):
    return layers.RotaryPositionEmbedding(**kwargs)


def tensor(value, dtype="int32"):
    return keras.ops.convert_to_tensor(value, dtype=dtype)


every_kind = pytest.mark.parametrize(
    "arguments",
    [
        {},
        pytest.param(
            {"rotary_dim": 6, "interleaved": True, "max_wavelength": 50},
            marks=pytest.mark.every_backend,
        ),
        {"interleaved": True, "scaling": YARN},
    ],
)


@every_kind
def test_a_call_is_the_function(arguments):
    x = normal(BATCH, LENGTH, HEADS, WIDTH)
    layer = make(**arguments)
    frequencies, factor = rotary.rotary_frequencies(
        layer.rotary_dim or WIDTH, layer.max_wavelength, layer.scaling
    )
    expected = rotary.rotate(
        tensor(x, "float32"),
        tensor(np.arange(LENGTH)),
        frequencies,
        layer.interleaved,
        factor,
    )
    assert_equal(layer(x), expected)
    assert_equal(layer.rotate(tensor(x, "float32")), expected)
    assert layer.weights == []


@every_kind
def test_start_index_and_positions(arguments):
    layer = make(**arguments)
    x = normal(BATCH, 4 + LENGTH, HEADS, WIDTH)
    whole = array(layer(x))
    for start in 4, np.int64(4), tensor(4):
        assert_close(layer(x[:, 4:], start_index=start), whole[:, 4:], 1e-6)
    for i in range(3):
        one = layer(x[:, i : i + 1], start_index=tensor(i))
        assert_close(one, whole[:, i : i + 1], 1e-6)
    rows = np.array([8, 0, 3])
    assert_close(layer(x[:, rows], positions=rows), whole[:, rows], 1e-6)
    each = np.stack([rows, rows[::-1]])
    shuffled = np.take_along_axis(x, each[:, :, None, None], axis=1)
    expected = np.take_along_axis(whole, each[:, :, None, None], axis=1)
    assert_close(layer(shuffled, positions=each), expected, 1e-6)


def test_start_index_as_an_input_of_a_model():
    layer = make()
    inputs = {
        "start": keras.Input(batch_shape=(), dtype="int32", name="start"),
        "x": keras.Input((None, HEADS, WIDTH), name="x"),
    }
    outputs = layer(inputs["x"], start_index=inputs["start"])
    assert outputs.shape == (None, None, HEADS, WIDTH)
    model = keras.Model(inputs, outputs)
    whole = normal(BATCH, 9, HEADS, WIDTH)
    expected = array(layer(whole))
    for start, stop in ((0, 1), (4, 5), (2, 9)):
        given = {"start": tensor(start), "x": tensor(whole[:, start:stop], "float32")}
        assert_close(model(given), expected[:, start:stop], 1e-6)


@every_kind
def test_scores_depend_on_the_distance_alone(arguments):
    layer = make(**arguments)
    query, key = normal(1, LENGTH, 1, WIDTH), normal(1, LENGTH, 1, WIDTH, seed=1)

    def scores(query_start, key_start):
        rows = array(layer(query, start_index=query_start))[0, :, 0]
        return rows @ array(layer(key, start_index=key_start))[0, :, 0].T

    near = scores(7, 3)
    assert_close(scores(60_007, 60_003), near, 2e-3)
    assert np.abs(scores(7, 4) - near).max() > 0.1


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_far_positions_in_half_precision(policy):
    x = np.eye(1, WIDTH, dtype="float32")[None, None] * np.ones((1, 30, 1, 1))
    full, half = make(), make(dtype=policy)
    expected = array(full(x, start_index=100_000))
    found = half(x, start_index=100_000)
    assert keras.backend.standardize_dtype(found.dtype) == policy[len("mixed_") :]
    # Only the result is rounded.
    assert_equal(found, keras.ops.cast(tensor(expected, "float32"), found.dtype))
    assert_close(expected[0, :, 0, 0], np.cos(100_000.0 + np.arange(30)), 2e-4)


def test_features_beyond_the_rotary_ones_stay_bit_by_bit():
    x = normal(BATCH, LENGTH, HEADS, WIDTH)
    for dtype in "float32", "float16":
        given = tensor(x, dtype)
        found = make(rotary_dim=6, dtype=dtype)(given, start_index=3)
        assert_equal(found[..., 6:], given[..., 6:])
        assert np.abs(array(found)[..., :6] - array(given)[..., :6]).min() > 0


def test_the_implicit_mask_passes():
    mask = np.array([[True, True, False, False]])
    x = tensor(normal(1, 4, HEADS, WIDTH), "float32")
    assert_equal(make().compute_mask(x, mask), mask)
    make()(keras.layers.Masking()(x))  # Keras warns where a mask ends.


@pytest.mark.parametrize("scaling", [{"type": "linear", "factor": 2}, None, YARN])
def test_config_round_trip(scaling):
    layer = make(rotary_dim=6, interleaved=True, scaling=scaling)
    copy = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(layer)
    )
    assert copy.get_config() == layer.get_config()
    x = normal(BATCH, LENGTH, HEADS, WIDTH)
    assert_equal(copy(x), layer(x))
    if scaling:
        assert copy.scaling["factor"] == scaling["factor"]
        layer.get_config()["scaling"]["factor"] = 77
        assert layer.scaling["factor"] == scaling["factor"]


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"rope_type": "linear", "scaling_factor": 3.0},
        {
            "rope_type": "yarn",
            "scaling_factor": 4.0,
            "original_max_position_embeddings": 256,
        },
    ],
)
def test_keras_hub(arguments):
    hub = pytest.importorskip("keras_hub").layers
    other = hub.RotaryEmbedding(max_wavelength=5000, **arguments)
    scaling = None
    if arguments:
        scaling = {**arguments, "factor": arguments["scaling_factor"]}
        del scaling["scaling_factor"]
    layer = make(max_wavelength=5000, scaling=scaling)
    x = normal(BATCH, LENGTH, HEADS, 32)
    assert_close(layer(x), other(x), 1e-5)
    assert_close(layer(x, start_index=60), other(x, start_index=60), 5e-5)
    positions = np.array([[0, 1, 2, 3, 4], [9, 70, 3, 100, 0]])
    assert_close(layer(x, positions=positions), other(x, positions=positions), 5e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(max_wavelength=1), "above 1.*max_wavelength=1"),
        (dict(max_wavelength="long"), "max_wavelength='long'"),
        (dict(rotary_dim=5), "even.*dim=5"),
        (dict(rotary_dim=0), "positive int or None.*rotary_dim=0"),
        (dict(interleaved="neox"), "must be a bool.*interleaved='neox'"),
        (dict(scaling={"rope_type": "ntk"}), "must have the keys.*'factor'"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        make(**arguments)


def test_heads_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="even.*dim=7"):
        make()(normal(1, 2, 3, 7))
    with pytest.raises(ValueError, match="rotates 6 features.*size 4"):
        make(rotary_dim=6)(keras.Input((None, 3, 4)))
    with pytest.raises(ValueError, match=r"\(batch, length, heads, head size\)"):
        make()(normal(1, 2, 8))
    with pytest.raises(ValueError, match="known head size"):
        make()(keras.Input((None, 3, None)))
