"""Parameters by part; the counts of translation models are tested in `tests/models`."""

import keras
import pytest

from keras_attn import layers
from keras_attn.inspection import count_parameters


def parameters(layer: keras.layers.Layer) -> dict[str, int]:
    """Return the numbers of parameters; `test_count_flops` tests the operations."""
    counts = count_parameters(layer)
    assert counts.pop("flops").keys() == counts.keys()
    return counts


def test_parts_sum_to_the_total(translator: keras.Model) -> None:
    counts = parameters(translator)
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


def test_a_model_of_keras_layers() -> None:
    x = inputs = keras.Input((5, 8))
    x = keras.layers.MultiHeadAttention(2, 4)(x, x)
    x = keras.layers.LayerNormalization()(x)
    x = layers.FeedForward(6)(x)
    dense = keras.layers.Dense(8)
    counts = parameters(keras.Model(inputs, dense(dense(x))))
    assert counts == {
        "embedding": 0,
        "attention": 4 * 72,
        "feed_forward": 2 * 48 + 6 + 8,
        "normalization": 16,
        "other": 72,
        "total": 4 * 72 + 110 + 16 + 72,
    }


def test_the_class_determines_the_part_before_the_name() -> None:
    x = ids = keras.Input((5,), dtype="int32")
    x = layers.TokenEmbedding(7, 8, name="source_tokens")(x)
    x = layers.MultiHeadSelfAttention(2, name="mixer")(x)
    custom = keras.Sequential([keras.layers.Dense(3), keras.layers.Dense(8)])
    x = layers.TransformerEncoder(1, 2, feed_forward=custom, name="first")(x)
    nested = keras.Model(ids, layers.FeedForward(6, name="mlp")(x))
    counts = parameters(keras.Sequential([ids, nested]))
    assert counts == {
        "embedding": 7 * 8,
        "attention": 8 * 72,
        "feed_forward": (27 + 32) + (2 * 48 + 6 + 8),
        "normalization": 32,
        "other": 0,
        "total": 56 + 8 * 72 + 59 + 110 + 32,
    }


def test_the_name_determines_the_part_of_other_layers() -> None:
    keras_hub = pytest.importorskip("keras_hub")
    layer = keras_hub.layers.TransformerEncoder(12, 2)
    layer.build((None, None, 8))
    counts = count_parameters(layer)
    assert counts["attention"] == 4 * 72
    assert counts["feed_forward"] == 2 * 96 + 12 + 8
    assert counts["normalization"] == 32


def test_a_single_layer() -> None:
    layer = layers.TransformerEncoder(12, 2)
    layer.build((None, None, 8))
    counts = count_parameters(layer)
    assert counts["attention"] == 4 * 72
    assert counts["feed_forward"] == 2 * 96 + 12 + 8
    assert counts["normalization"] == 32
    assert counts["total"] == layer.count_params()


def test_frozen_weights_count() -> None:
    embedding = keras.layers.Embedding(5, 4, trainable=False)
    model = keras.Sequential([keras.Input((3,), dtype="int32"), embedding])
    assert count_parameters(model)["embedding"] == 20


def test_invalid_models_raise() -> None:
    for invalid in ([layers.FeedForward(3)], None, layers.FeedForward(3)):
        with pytest.raises(ValueError, match="Received: model_or_config="):
            count_parameters(invalid)
