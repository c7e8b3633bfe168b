"""Token embedding: values, scale, padding, the way back, ids outside."""

import keras
import numpy as np
import pytest
from tensors import array, assert_close, assert_equal, fill_weights, normal

from keras_attn import layers
from keras_attn._keras_internals import implicit_mask

VOCABULARY, WIDTH = 11, 5
IDS = np.array([[1, 10, 0], [4, 0, 0]], "int32")


def embedding(**kwargs):
    layer = layers.TokenEmbedding(VOCABULARY, WIDTH, **kwargs)
    layer.build()
    return fill_weights(layer)


@pytest.mark.every_backend
@pytest.mark.parametrize("scale", [True, False])
def test_vectors_and_logits(scale):
    layer = embedding(scale=scale)
    [matrix] = map(array, layer.weights)
    factor = np.sqrt(WIDTH) if scale else 1
    assert_close(layer(IDS), matrix[IDS] * factor, 1e-6)
    x = normal(2, 3, WIDTH)
    assert_close(layer(x, reverse=True), x @ matrix.T)


def test_a_matrix_of_its_own_for_the_way_back():
    layer = embedding(tie_weights=False)
    _, back = map(array, layer.weights)
    assert back.shape == (WIDTH, VOCABULARY)
    x = normal(2, 3, WIDTH)
    assert_close(layer(x, reverse=True), x @ back)


@pytest.mark.parametrize("initializer", [None, "glorot_uniform"])
def test_both_matrices_have_different_initial_values(initializer):
    layer = layers.TokenEmbedding(
        VOCABULARY, WIDTH, tie_weights=False, embeddings_initializer=initializer
    )
    layer.build()
    vectors, logits = map(array, layer.weights)
    assert not np.intersect1d(vectors, logits).size


def test_padding_gives_the_implicit_mask():
    assert_equal(implicit_mask(embedding()(IDS)), IDS != 0)
    assert_equal(implicit_mask(embedding(padding_id=4)(IDS)), IDS != 4)
    assert implicit_mask(embedding(padding_id=None)(IDS)) is None
    symbol = embedding()(keras.Input((None,), dtype="int32"))
    assert implicit_mask(symbol).shape == (None, None)


def test_the_mask_passes_through_the_projection_back():
    layer = embedding()
    assert_equal(implicit_mask(layer(layer(IDS), reverse=True)), IDS != 0)


@pytest.mark.every_backend
@pytest.mark.parametrize("bad", [-1, VOCABULARY, 10**6])
def test_ids_outside_are_refused(bad):
    ids = IDS.copy()
    ids[1, 1] = bad
    message = rf"must be in \[0, {VOCABULARY}\)\. Received: id={bad}\b"
    with pytest.raises(ValueError, match=message):
        embedding(name="target")(ids)


def test_an_empty_batch_has_no_bad_ids():
    assert embedding()(np.zeros((0, 3), "int32")).shape == (0, 3, WIDTH)


@pytest.mark.parametrize("name", ["vocabulary_size", "hidden_dim"])
@pytest.mark.parametrize("bad", [0, -3, 2.0, None, True])
def test_bad_sizes_are_refused(name, bad):
    sizes = {"vocabulary_size": 3, "hidden_dim": 3, name: bad}
    with pytest.raises(ValueError, match=f"`{name}` must be a positive int.*{bad}"):
        layers.TokenEmbedding(**sizes)


def test_initial_logits_are_near_unit_size():
    layer = layers.TokenEmbedding(997, 64)
    logits = array(layer(normal(50, 64), reverse=True))
    assert 0.9 < logits.std() < 1.1


@pytest.mark.filterwarnings("ignore:Layer InputLayer does not have a `quantize`")
@pytest.mark.parametrize("tie_weights", [True, False])
def test_scale_survives_int8_quantization(tmp_path, tie_weights):
    layer = embedding(scale=True, tie_weights=tie_weights)
    inputs = keras.Input((None,), dtype="int32")
    vectors = layer(inputs)
    model = keras.Model(inputs, [vectors, layer(vectors, reverse=True)])
    before = [array(output) for output in model(IDS)]
    model.quantize("int8")
    for found, expected in zip(model(IDS), before):
        assert np.abs(array(found) - expected).max() < 0.05 * np.abs(expected).max()
    assert layer.quantization_mode == "int8"
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    for found, expected in zip(loaded(IDS), model(IDS)):
        assert_close(found, expected, 1e-6)


def test_fractions_are_no_ids():
    with pytest.raises(ValueError, match="expects integers.*dtype='int32'.*float32"):
        layers.TokenEmbedding(5, 4)(np.array([[1.5, 2.0]], "float32"))


@pytest.mark.parametrize("padding_id", [0, 2, None])
def test_ids_of_a_float_dtype_keep_their_mask(padding_id):
    """As Keras's placeholders have it, and the ids that it then casts."""
    embedding = layers.TokenEmbedding(5, 4, padding_id=padding_id)
    ids = np.array([[1, 2, 0], [4, 0, 3]])
    expected = embedding(ids)
    model = keras.Model(
        inputs := keras.Input((None,), dtype="float32"), embedding(inputs)
    )
    for outputs in embedding(ids.astype("float32")), model(ids.astype("float32")):
        assert_equal(outputs, expected)
        mask = implicit_mask(outputs)
        if padding_id is None:
            assert mask is None
        else:
            assert_equal(mask, ids != padding_id)


def test_a_subclassed_model_comes_back_with_its_weights(tmp_path):
    ids = np.array([[1, 2, 0], [4, 0, 3]])
    model = Subclassed()
    expected = model.predict(ids, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert_equal(loaded.predict(ids, verbose=0), expected)


@keras.saving.register_keras_serializable("tests")
class Subclassed(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.embedding = layers.TokenEmbedding(5, 4)
        self.block = layers.TransformerEncoder(8, 2)

    def call(self, ids):
        return self.block(self.embedding(ids))


@pytest.mark.parametrize("how", ["predict", "build", "fit"])
def test_a_sequential_model_without_an_input(how):
    ids = np.array([[3, 4, 1]], "int32")
    model = keras.Sequential(
        [layers.TokenEmbedding(5, 8), layers.TransformerEncoder(16, 2)]
    )
    if how == "predict":
        assert model.predict(ids, verbose=0).shape == (1, 3, 8)
    elif how == "build":
        model.build((None, 3))
        assert model.count_params() > 0
    else:
        model.compile("sgd", "mse")
        model.fit(ids, np.zeros((1, 3, 8)), verbose=0)
