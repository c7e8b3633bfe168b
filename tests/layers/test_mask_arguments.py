"""Masks as Keras takes them: shapes, names, clones, and those that are refused."""

import keras
import numpy as np
import pytest
from tensors import array, assert_close, assert_equal, fill_weights, normal

from keras_attn import layers

BATCH, LENGTH, WIDTH, HEADS = 4, 3, 8, 2
X = normal(BATCH, LENGTH, WIDTH)
KEEP = np.ones((BATCH, LENGTH), bool)
KEEP[:, 2] = False


def general():
    return layers.MultiHeadAttention(HEADS, 4)


@pytest.mark.every_backend
def test_a_mask_of_queries_and_keys_is_for_all_batch_elements():
    layer = layers.MultiHeadSelfAttention(HEADS)
    layer.build(X.shape)
    fill_weights(layer)
    causal = np.tri(LENGTH, dtype=bool)
    found = layer(X, attention_mask=causal)
    assert_equal(found, layer(X, attention_mask=np.stack([causal] * BATCH)))
    assert_close(found, layer(X, use_causal_mask=True))


@pytest.mark.every_backend
@pytest.mark.parametrize("name", ["value_mask", "key_mask"])
def test_names_of_keras(name, tmp_path):
    inputs = keras.Input((None, WIDTH)), keras.Input((None,), dtype="bool")
    outputs = general()(inputs[0], inputs[0], **{name: inputs[1]})
    model = fill_weights(keras.Model(inputs, outputs))
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    layer = model.layers[-1]
    expected = layer(X, X, padding_mask=KEEP)
    assert np.abs(array(expected) - array(layer(X, X))).max() > 1e-3
    for each in (model, clone, loaded):
        assert_close(each([X, KEEP]), expected)


WRONG = {
    "batch": ("padding_mask", (2, LENGTH)),
    "length": ("padding_mask", (BATCH, LENGTH + 1)),
    "batch of a dense mask": ("attention_mask", (5, LENGTH, LENGTH)),
    "queries": ("attention_mask", (LENGTH + 1, LENGTH)),
    "heads": ("attention_mask", (BATCH, HEADS + 1, LENGTH, LENGTH)),
}


@pytest.mark.every_backend
@pytest.mark.parametrize("wrong", WRONG)
def test_masks_of_other_sizes_are_refused(wrong):
    name, shape = WRONG[wrong]
    layer = layers.MultiHeadSelfAttention(HEADS)
    with pytest.raises(ValueError, match=f"{name}.*Received"):
        layer(X, **{name: np.ones(shape, bool)})


@pytest.mark.parametrize("method", ["__call__", "compute_output_shape"])
def test_key_and_value_of_different_lengths(method):
    shapes = (2, 4, WIDTH), (2, 2, WIDTH), (2, 1, WIDTH)  # query, value, key
    arguments = shapes
    if method == "__call__":
        arguments = [np.zeros(shape, "float32") for shape in shapes]
    with pytest.raises(ValueError, match="Received"):
        getattr(general(), method)(*arguments)
