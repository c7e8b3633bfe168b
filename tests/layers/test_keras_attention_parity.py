"""`MultiHeadAttention` against `keras.layers.MultiHeadAttention`, weights copied."""

import keras
import numpy as np
import pytest
from tensors import array, assert_close, fill_weights, lengths_mask, normal

from keras_attn import layers

QUERY, VALUE, KEY = normal(2, 5, 17), normal(2, 7, 13, seed=1), normal(2, 7, 11, seed=2)
DENSE = np.random.default_rng(3).random((2, 5, 7)) < 0.5
DENSE[..., 0] = True


def pair(**kwargs):
    theirs = keras.layers.MultiHeadAttention(
        num_heads=3, key_dim=5, value_dim=7, **kwargs
    )
    ours = layers.MultiHeadAttention(num_heads=3, key_dim=5, value_dim=7, **kwargs)
    theirs.build(QUERY.shape, VALUE.shape, KEY.shape)
    ours.build(QUERY.shape, VALUE.shape, KEY.shape)
    fill_weights(theirs)
    ours.set_weights(theirs.get_weights())
    return ours, theirs


@pytest.mark.parametrize(
    "masks",
    [
        {},
        {"attention_mask": DENSE},
        {"use_causal_mask": True},
        {"attention_mask": DENSE, "use_causal_mask": True},
    ],
)
@pytest.mark.parametrize(
    "arguments", [{}, {"use_bias": False}, {"output_shape": 19}, {"dropout": 0.3}]
)
def test_same_outputs(arguments, masks):
    ours, theirs = pair(**arguments)
    expected = theirs(QUERY, VALUE, KEY, **masks)
    assert_close(ours(QUERY, VALUE, KEY, **masks), expected)
    expected, weights = theirs(QUERY, VALUE, KEY, **masks, return_attention_scores=True)
    output, scores = ours(QUERY, VALUE, KEY, **masks, return_attention_scores=True)
    assert_close(output, expected)
    assert_close(scores, weights)


def test_same_weights_in_the_same_order():
    ours, theirs = pair()
    assert [w.shape for w in ours.weights] == [w.shape for w in theirs.weights]
    names = [w.path.split("/")[-2:] for w in ours.weights]
    assert names == [w.path.split("/")[-2:] for w in theirs.weights]
    fill_weights(ours, seed=5)
    theirs.set_weights(ours.get_weights())
    assert_close(ours(QUERY, VALUE, KEY), theirs(QUERY, VALUE, KEY))


def test_padding_mask_is_their_value_mask():
    ours, theirs = pair()
    keep = lengths_mask([7, 3], 7)
    expected = theirs(QUERY, VALUE, KEY, value_mask=keep)
    assert_close(ours(QUERY, VALUE, KEY, padding_mask=keep), expected)


def test_implicit_mask_of_the_value():
    embedding = keras.layers.Embedding(9, 13, mask_zero=True)
    ids = np.array([[1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 0, 0, 0, 0]])
    ours, theirs = pair()
    expected = theirs(QUERY, embedding(ids), KEY)
    assert_close(ours(QUERY, embedding(ids), KEY), expected)
    unmasked = array(theirs(QUERY, array(embedding(ids)), KEY))
    assert np.abs(unmasked - array(expected)).max() > 1e-3


def test_initial_weights_have_the_same_spread():
    ours = layers.MultiHeadAttention(8)
    theirs = keras.layers.MultiHeadAttention(8, 16)
    for layer in (ours, theirs):
        layer.build((None, None, 128), (None, None, 128))
    for mine, other in zip(ours.get_weights(), theirs.get_weights()):
        assert abs(mine.std() - other.std()) <= 0.05 * other.std()
