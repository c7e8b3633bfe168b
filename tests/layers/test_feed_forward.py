"""The feed-forward network against two matrix products in NumPy."""

import numpy as np
import pytest
from tensors import array, assert_close, fill_weights, normal

from keras_attn import layers

ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "silu": lambda x: x / (1 + np.exp(-x)),
}


@pytest.mark.parametrize("shape", [(2, 7), (2, 3, 7), (2, 3, 5, 7)])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_against_numpy(activation, shape):
    layer = layers.FeedForward(11, output_dim=13, activation=activation)
    x = normal(*shape)
    layer.build(shape)
    w1, b1, w2, b2 = fill_weights(layer).get_weights()
    expected = ACTIVATIONS[activation](x.astype("float64") @ w1 + b1) @ w2 + b2
    assert_close(layer(x), expected)


def test_dropout_falls_between_the_two():
    layer = layers.FeedForward(1, activation=None, dropout=0.5, use_bias=False)
    x = np.ones((500, 1), "float32")
    layer.build(x.shape)
    for weight in layer.weights:
        weight.assign(np.ones(weight.shape))
    assert set(np.unique(array(layer(x, training=True)))) == {0.0, 2.0}
    assert_close(layer(x), x)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"intermediate_dim": 0}, "`intermediate_dim` must be a positive int.*=0"),
        ({"intermediate_dim": 3, "output_dim": -1}, "`output_dim`.*or None.*=-1"),
        ({"intermediate_dim": 3, "dropout": 1}, "`dropout` must be a number.*=1"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        layers.FeedForward(**arguments)
