"""Parameters by part; the translation models' own counts are in `tests/models`."""

import keras

from keras_attn import layers
from keras_attn.inspection import count_parameters


def test_parts_sum_to_the_total(translator):
    counts = count_parameters(translator)
    assert counts.keys() == {
        "embedding",
        "attention",
        "feed_forward",
        "normalization",
        "other",
        "total",
    }
    assert sum(counts.values()) - counts["total"] == counts["total"]
    assert counts["total"] == translator.count_params()
    assert min(value for name, value in counts.items() if name != "other") > 0


def test_a_model_of_other_layers():
    x = inputs = keras.Input((5, 8))
    x = keras.layers.MultiHeadAttention(2, 4)(x, x)
    x = keras.layers.LayerNormalization()(x)
    x = layers.FeedForward(6)(x)
    dense = keras.layers.Dense(8)
    counts = count_parameters(keras.Model(inputs, dense(dense(x))))
    assert counts == {
        "embedding": 0,
        "attention": 4 * 72,
        "feed_forward": 2 * 48 + 6 + 8,
        "normalization": 16,
        "other": 72,
        "total": 4 * 72 + 110 + 16 + 72,
    }


def test_a_layer_alone():
    layer = layers.TransformerEncoder(12, 2)
    layer.build((None, None, 8))
    counts = count_parameters(layer)
    assert counts["attention"] == 4 * 72
    assert counts["feed_forward"] == 2 * 96 + 12 + 8
    assert counts["normalization"] == 32
    assert counts["total"] == layer.count_params()


def test_what_is_not_trained_counts_as_well():
    embedding = keras.layers.Embedding(5, 4, trainable=False)
    model = keras.Sequential([keras.Input((3,), dtype="int32"), embedding])
    assert count_parameters(model)["embedding"] == 20
