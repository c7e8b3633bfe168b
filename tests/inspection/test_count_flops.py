"""FLOPs by part, compared with the matrix products in a TensorFlow graph; counts of
configurations, compared with built models."""

import inspect
import math
from collections.abc import Callable
from typing import Any

import keras
import pytest

from keras_attn import layers, models
from keras_attn.inspection import count_parameters
from keras_attn.inspection.count_from_config import _ARGUMENTS

GPT3 = dict(
    vocabulary_size=50257,
    num_layers=96,
    hidden_dim=12288,
    intermediate_dim=49152,
    num_heads=96,
    max_length=2048,
)
LANGUAGE = [
    {},
    {"tie_weights": False, "normalize_first": False},
    {"max_length": 11, "num_layers": 3, "dropout": 0, "activation": "relu"},
]
TRANSLATION = [
    {},
    {"normalize_first": True, "num_layers": (1, 3)},
    {"target_vocabulary_size": 13, "num_layers": [2, 1]},
    {"share_embeddings": False, "num_heads": 1},
    {"share_embeddings": False, "target_vocabulary_size": 13, "normalize_first": True},
]
CONFIGURATIONS = [
    {"num_layers": 2, "hidden_dim": 10, "intermediate_dim": 14, "num_heads": 5}
    | {key: 17}
    | setting
    for key, settings in (
        ("vocabulary_size", LANGUAGE),
        ("source_vocabulary_size", TRANSLATION),
    )
    for setting in settings
]


def build(config: dict[str, Any]) -> keras.Model:
    if "vocabulary_size" in config:
        return models.causal_language_model(**config)
    return models.transformer_translator(**config)


def count_products(function: Callable[..., Any], *inputs: Any) -> int:
    """Count the multiplications and additions of the matrix products in a function."""
    import tensorflow as tf

    graph = tf.function(function).get_concrete_function(*inputs).graph
    total = 0
    for operation in graph.get_operations():
        if operation.type in ("MatMul", "BatchMatMulV2"):
            left = operation.inputs[0].shape
            swapped = any(
                operation.get_attr(name)
                for name in ("transpose_a", "adj_x")
                if name in operation.node_def.attr
            )
            inner = left[-2 if swapped else -1]
            total += 2 * math.prod(operation.outputs[0].shape) * inner
    return total


@pytest.mark.parametrize("config", CONFIGURATIONS)
def test_counts_of_a_configuration_equal_the_built_model(
    config: dict[str, Any],
) -> None:
    model = build(config)
    assert count_parameters(config) == count_parameters(model)
    assert count_parameters(config, length=7) == count_parameters(model, length=7)
    assert count_parameters(config)["total"] == model.count_params()


@pytest.mark.parametrize("config", CONFIGURATIONS)
def test_all_products_of_the_traced_model_are_counted(config: dict[str, Any]) -> None:
    tf = pytest.importorskip("tensorflow")
    if keras.backend.backend() != "tensorflow":
        pytest.skip("reads a TensorFlow graph")
    model, length = build(config), 7
    ids = tf.TensorSpec((1, length), "int32")
    inputs = dict.fromkeys(("source", "target"), ids)
    inputs = ids if "vocabulary_size" in config else inputs
    flops = count_parameters(model, length=length)["flops"]
    matrices = flops["total"] - flops["normalization"]
    assert matrices * length == count_products(model, inputs)


def test_defaults_equal_those_of_the_model_functions() -> None:
    for function, key in (
        (models.causal_language_model, "vocabulary_size"),
        (models.transformer_translator, "source_vocabulary_size"),
    ):
        signature = inspect.signature(function).parameters
        assert next(iter(signature)) == key
        assert _ARGUMENTS[key] == {
            name: argument.default
            for name, argument in signature.items()
            if name != key
        }


def test_counts_of_gpt3_equal_the_paper() -> None:
    """Brown et al. 2020: 175.0 billion parameters in table 2.1; in table D.1 174,600
    million, and 3.14e23 operations for 300 billion tokens, a third of them in the
    forward pass."""
    counts = count_parameters(GPT3)
    assert counts["total"] == pytest.approx(175.0e9, rel=0.01)
    assert counts["total"] == pytest.approx(174_600e6, rel=1e-4)
    assert counts["flops"]["total"] == pytest.approx(3.14e23 / 300e9 / 3, rel=0.01)
    blocks = counts["feed_forward"] + counts["attention"] + counts["normalization"]
    assert counts["feed_forward"] / blocks == pytest.approx(2 / 3, rel=1e-3)
    in_flops = counts["flops"]["feed_forward"] / counts["flops"]["attention"]
    assert in_flops == pytest.approx(2, rel=1e-9)


def test_each_call_of_a_layer_counts() -> None:
    x = inputs = keras.Input((5, 8))
    dense = keras.layers.Dense(8)
    nested = keras.Sequential([keras.Input((5, 8)), dense, keras.layers.Dense(8)])
    flops = count_parameters(keras.Model(inputs, nested(nested(dense(x)))))["flops"]
    assert flops["other"] == flops["total"] == 2 * 64 * 5


def test_keras_layers() -> None:
    x = inputs = keras.Input((5, 8))
    x = keras.layers.MultiHeadAttention(2, 3, value_dim=5)(x, x)
    x = keras.layers.GroupQueryAttention(7, 4, 2)(x, x)
    x = keras.layers.LayerNormalization()(x)
    x = keras.layers.Conv1D(8, 3, padding="same")(x)
    x = keras.layers.GRU(6, return_sequences=True)(x)
    model = keras.Model(inputs, x)
    flops = count_parameters(model)["flops"]
    assert flops == {
        "embedding": 0,
        "attention": 2 * 8 * (2 * (3 + 3 + 5 + 5) + 7 * (4 + 2 + 2 + 4)),
        "feed_forward": 0,
        "normalization": 16,
        "other": 2 * (3 * 64 + 3 * 6 * (8 + 6)),
        "total": sum(v for k, v in flops.items() if k != "total"),
    }
    longer = count_parameters(model, length=10)["flops"]
    more = longer.pop("attention") - flops.pop("attention")
    assert more == 10 * (2 * 2 * (3 + 5) + 4 * 4 * 7)
    assert longer.pop("total") - flops.pop("total") == more
    assert longer == flops


def test_attention_without_heads() -> None:
    query, value = keras.Input((5, 8)), keras.Input((6, 4))
    for layer, projections, pair in (
        (layers.DotProductAttention("general"), 4 * 8, 2 * 8),
        (layers.AdditiveAttention(units=7), (8 + 4) * 7, 3 * 7),
    ):
        layer(query, value)
        counts = count_parameters(layer, length=10)
        assert counts["attention"] == counts["total"] == layer.count_params()
        assert counts["flops"]["attention"] == 2 * projections + 10 * (pair + 2 * 4)
        assert counts["flops"]["total"] == counts["flops"]["attention"]


def test_embedding_lookup_is_free() -> None:
    ids = keras.Input((5,), dtype="int32")
    embedding = layers.TokenEmbedding(7, 8, tie_weights=False)
    vectors = embedding(ids)
    assert count_parameters(keras.Model(ids, vectors))["flops"]["total"] == 0
    model = keras.Model(ids, embedding(vectors, reverse=True))
    assert count_parameters(model)["flops"]["embedding"] == 2 * 7 * 8


def test_frozen_weights_count() -> None:
    dense = keras.layers.Dense(8, trainable=False)
    dense.build((None, 3))
    assert count_parameters(dense)["flops"]["total"] == 2 * 3 * 8


SMALL = dict(vocabulary_size=17, num_layers=2, hidden_dim=8, num_heads=2)


@pytest.mark.parametrize(
    "update, received",
    [
        ({"width": 8}, "width=8"),
        ({"share_embeddings": True}, "share_embeddings=True"),
        ({"source_vocabulary_size": 9}, "config={.*}"),
        ({"hidden_dim": 8.5}, "hidden_dim=8.5"),
        ({"hidden_dim": 9}, "hidden_dim=9, num_heads=2"),
        ({"num_layers": (2, 2)}, r"num_layers=\(2, 2\)"),
        ({"num_layers": 0}, "num_layers=0"),
        ({"max_length": "many"}, "max_length='many'"),
        ({"tie_weights": 1}, "tie_weights=1"),
        ({"dropout": "0.1"}, "dropout='0.1'"),
        ({"activation": 3}, "activation=3"),
    ],
)
def test_invalid_configuration_raises(update: dict[str, Any], received: str) -> None:
    with pytest.raises(ValueError, match=f"Received: {received}$"):
        count_parameters({**SMALL, **update})


def test_other_invalid_configurations_raise() -> None:
    sizes = {"source_vocabulary_size": 9, "hidden_dim": 8, "num_heads": 2}
    with pytest.raises(ValueError, match="pair.*Received: num_layers=\\(1, 2, 3\\)$"):
        count_parameters({**sizes, "num_layers": (1, 2, 3)})
    with pytest.raises(ValueError, match="Received: config={}$"):
        count_parameters({})
    with pytest.raises(ValueError, match="Received: length=0$"):
        count_parameters(SMALL, length=0)
    with pytest.raises(ValueError, match="Received: length=9, max_length=8$"):
        count_parameters({**SMALL, "max_length": 8}, length=9)
