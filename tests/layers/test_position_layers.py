"""The two layers that add positions: values, starts, lengths, masks, resizing."""

import keras
import numpy as np
import pytest
from tensors import array, assert_close, assert_equal, fill_weights, normal

from keras_attn import layers
from keras_attn.ops import sinusoids

LENGTH, WIDTH, ROOM = 5, 7, 11


def sines(**kwargs):
    return layers.SinusoidalPositionEmbedding(**kwargs)


def learned(**kwargs):
    layer = layers.PositionEmbedding(ROOM, **kwargs)
    layer.build((None, None, WIDTH))
    return fill_weights(layer)


both = pytest.mark.parametrize("make", [sines, learned])


def table(layer):
    """The vectors of all positions, `(ROOM, WIDTH)`."""
    if isinstance(layer, layers.PositionEmbedding):
        return array(layer.position_embeddings)
    return array(sinusoids(keras.ops.arange(ROOM), WIDTH))


@both
@pytest.mark.parametrize("leading", [(2,), (2, 3), ()])
def test_adds_the_vector_of_each_position(make, leading):
    layer = make()
    x = normal(*leading, LENGTH, WIDTH)
    expected = x + table(layer)[:LENGTH]
    assert_close(layer(x), expected, 1e-6)


@pytest.mark.every_backend
@both
def test_start_index(make):
    layer = make()
    x = normal(2, LENGTH, WIDTH)
    expected = x + table(layer)[3 : 3 + LENGTH]
    as_tensor = keras.ops.convert_to_tensor(3, dtype="int32")
    for start in (3, np.int64(3), as_tensor):
        assert_close(layer(x, start_index=start), expected, 1e-6)
    whole = array(layer(x))
    for i in range(LENGTH):
        one = layer(x[:, i : i + 1], start_index=keras.ops.convert_to_tensor(i))
        assert_close(one, whole[:, i : i + 1], 1e-6)


@both
def test_start_index_as_an_input_of_a_model(make):
    layer = make()
    inputs = {
        "start": keras.Input(batch_shape=(), dtype="int32", name="start"),
        "x": keras.Input((None, WIDTH), name="x"),
    }
    model = keras.Model(inputs, layer(inputs["x"], start_index=inputs["start"]))
    for start, length in ((0, 1), (4, 1), (2, LENGTH)):
        x = normal(2, length, WIDTH, seed=start)
        given = {"start": keras.ops.convert_to_tensor(start, dtype="int32"), "x": x}
        given["x"] = keras.ops.convert_to_tensor(x)
        assert_close(model(given), x + table(layer)[start : start + length], 1e-6)


@both
def test_positions_given_one_by_one(make):
    layer = make()
    x = normal(2, LENGTH, WIDTH)
    rows = np.array([4, 0, 0, 9, 2])
    assert_close(layer(x, positions=rows), x + table(layer)[rows], 1e-6)
    each = np.stack([rows, rows[::-1]])
    assert_close(layer(x, positions=each), x + table(layer)[each], 1e-6)


@both
def test_the_implicit_mask_passes(make):
    embedding = keras.layers.Embedding(9, WIDTH, mask_zero=True)
    ids = np.array([[1, 2, 0, 0]])
    attention = layers.MultiHeadSelfAttention(1)
    layer = make()
    implicit = attention(layer(embedding(ids)))
    explicit = attention(layer(array(embedding(ids))), padding_mask=ids != 0)
    assert_equal(implicit, explicit)


def test_a_too_long_input_is_refused():
    message = "vectors for 11 positions.*Received: 12 tokens from start_index=0"
    with pytest.raises(ValueError, match=message):
        learned()(normal(1, ROOM + 1, WIDTH))
    with pytest.raises(ValueError, match=message):
        learned()(keras.Input((ROOM + 1, WIDTH)))
    with pytest.raises(ValueError, match="5 tokens from start_index=7"):
        learned()(normal(1, LENGTH, WIDTH), start_index=7)
    learned()(normal(1, LENGTH, WIDTH), start_index=6)
    model = keras.Sequential([keras.Input((None, WIDTH)), learned()])
    with pytest.raises(ValueError, match="vectors for 11 positions"):
        model.predict(normal(1, ROOM + 1, WIDTH), verbose=0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: layers.PositionEmbedding(0), "positive int.*sequence_length=0"),
        (lambda: layers.PositionEmbedding(None), "sequence_length=None"),
        (lambda: sines(max_wavelength=0), "positive.*max_wavelength=0"),
    ],
)
def test_bad_arguments_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_learned_positions_train_only_where_they_are_used():
    layer = layers.PositionEmbedding(ROOM)
    model = keras.Sequential([keras.Input((None, WIDTH)), layer])
    model.compile(keras.optimizers.SGD(1.0), "mse", jit_compile=False)
    before = array(layer.position_embeddings)
    model.train_on_batch(normal(2, LENGTH, WIDTH), normal(2, LENGTH, WIDTH, seed=1))
    moved = np.abs(array(layer.position_embeddings) - before).max(-1) > 0
    assert_equal(moved, np.arange(ROOM) < LENGTH)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_far_sines_in_half_precision(policy):
    """Angles are computed in float32: neighbours past 5,000 stay apart."""
    x = np.zeros((1, 40, 8), "float32")
    expected = array(sines()(x, start_index=5000))
    found = array(keras.ops.cast(sines(dtype=policy)(x, start_index=5000), "float32"))
    assert_close(found, expected, 5e-3)
    assert np.abs(np.diff(found[0], axis=0)).max(-1).min() > 0.4


@pytest.mark.every_backend
def test_resize_extends_and_cuts():
    layer = learned(initializer="ones", name="places")
    old = table(layer)
    longer = layer.resize(ROOM + 3)
    assert (longer.name, longer.sequence_length) == ("places", ROOM + 3)
    assert_equal(longer.position_embeddings[:ROOM], old)
    assert_equal(longer.position_embeddings[ROOM:], np.ones((3, WIDTH)))
    assert_equal(layer.resize(4).position_embeddings, old[:4])
    assert_equal(table(layer), old)
    x = normal(2, ROOM + 3, WIDTH)
    assert_close(longer(x), x + array(longer.position_embeddings), 1e-6)
    with pytest.raises(ValueError, match="vectors for 4 positions"):
        layer.resize(4)(x)


@pytest.mark.parametrize("length", [ROOM, 1, 4, 14, 40])
def test_resize_interpolates_as_pytorch_does(length):
    torch = pytest.importorskip("torch")
    layer = learned(dtype="mixed_bfloat16", trainable=False)
    old = torch.tensor(table(layer)).T[None]
    expected = torch.nn.functional.interpolate(old, size=length, mode="linear")
    resized = layer.resize(length, method="interpolate")
    assert_close(resized.position_embeddings, expected[0].T.numpy(), 1e-5)
    assert resized.dtype_policy.name == "mixed_bfloat16" and not resized.trainable


def test_resize_within_a_model():
    inputs = keras.Input((None, WIDTH))
    model = keras.Model(inputs, keras.layers.Dense(3)(learned(name="places")(inputs)))

    def clone(layer):
        if layer.name == "places":
            return layer.resize(20)
        return type(layer).from_config(layer.get_config())

    longer = keras.models.clone_model(model, clone_function=clone)
    longer.layers[-1].set_weights(model.layers[-1].get_weights())
    x = normal(2, 20, WIDTH)
    assert_close(longer(x[:, :ROOM]), model(x[:, :ROOM]), 1e-6)
    assert longer(x).shape == (2, 20, 3)


def test_resizes_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="before it is built"):
        layers.PositionEmbedding(ROOM).resize(12)
    with pytest.raises(ValueError, match="'extend' or 'interpolate'.*method='bicubic'"):
        learned().resize(12, method="bicubic")
    with pytest.raises(ValueError, match="positive int.*sequence_length=0"):
        learned().resize(0)
