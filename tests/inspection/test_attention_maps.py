"""Attention weights of models that were built without returning them."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from keras import ops
from tensors import array, fill_weights

from keras_attn import layers
from keras_attn.inspection import attention_maps


@pytest.fixture(scope="module")
def maps(
    translator: keras.Model, batch: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    return attention_maps(translator, batch)


def test_one_map_per_attention_layer(maps: dict[str, np.ndarray]) -> None:
    shapes = {name: weights.shape for name, weights in maps.items()}
    assert shapes == {
        "encoder_0": (2, 3, 7, 7),
        "decoder_0/self_attention": (2, 3, 5, 5),
        "decoder_0/cross_attention": (2, 3, 5, 7),
        "decoder_1/self_attention": (2, 3, 5, 5),
        "decoder_1/cross_attention": (2, 3, 5, 7),
    }
    assert all(isinstance(weights, np.ndarray) for weights in maps.values())
    assert all(weights.dtype == "float32" for weights in maps.values())


def test_rows_sum_to_one_over_real_keys(
    maps: dict[str, np.ndarray], batch: dict[str, np.ndarray]
) -> None:
    for name, weights in maps.items():
        keys = batch["target" if name.endswith("self_attention") else "source"] != 0
        assert weights.min() >= 0
        np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
        padded = np.broadcast_to(~keys[:, None, None, :], weights.shape)
        assert padded.any()
        assert not weights[padded].any()


def test_inputs_can_mix_lists_arrays_and_tensors(
    translator: keras.Model, maps: dict[str, np.ndarray], batch: dict[str, np.ndarray]
) -> None:
    mixed = {
        "source": batch["source"].tolist(),
        "target": ops.convert_to_tensor(batch["target"]),
    }
    for name, weights in attention_maps(translator, mixed).items():
        np.testing.assert_array_equal(weights, maps[name])


def test_nested_models_are_included(
    translator: keras.Model, maps: dict[str, np.ndarray], batch: dict[str, np.ndarray]
) -> None:
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in batch}
    nested = keras.Model(inputs, translator(inputs))
    nested_maps = attention_maps(nested, batch)
    assert nested_maps.keys() == maps.keys()
    for name, weights in nested_maps.items():
        np.testing.assert_allclose(weights, maps[name], atol=1e-6)


def test_decoders_are_causal(maps: dict[str, np.ndarray]) -> None:
    later = ~np.tri(5, dtype=bool)
    for i in range(2):
        assert not maps[f"decoder_{i}/self_attention"][..., later].any()
    assert maps["decoder_0/cross_attention"][:, :, 0, 1:4].all()
    assert maps["encoder_0"][1][..., ~np.tri(7, dtype=bool)].all()


def test_maps_equal_the_scores_of_the_layers(
    translator: keras.Model, maps: dict[str, np.ndarray], batch: dict[str, np.ndarray]
) -> None:
    """Each block is called on its inputs with explicit masks."""
    names = ["source_dropout", "target_dropout", "encoder_0", "decoder_0"]
    block_inputs = keras.Model(
        translator.input, {n: translator.get_layer(n).output for n in names}
    )(batch)
    source, target = batch["source"] != 0, batch["target"] != 0
    _, encoder = translator.get_layer("encoder_0")(
        array(block_inputs["source_dropout"]),
        padding_mask=source,
        return_attention_scores=True,
    )
    np.testing.assert_allclose(maps["encoder_0"], array(encoder), atol=1e-6)
    for i, before in enumerate(["target_dropout", "decoder_0"]):
        _, scores = translator.get_layer(f"decoder_{i}")(
            array(block_inputs[before]),
            array(block_inputs["encoder_0"]),
            decoder_padding_mask=target,
            encoder_padding_mask=source,
            return_attention_scores=True,
        )
        for part, expected in scores.items():
            weights = maps[f"decoder_{i}/{part}"]
            np.testing.assert_allclose(weights, array(expected), atol=1e-6)


def test_the_model_is_not_changed(
    translator: keras.Model, batch: dict[str, np.ndarray]
) -> None:
    before = array(translator(batch))
    attention_maps(translator, batch)
    np.testing.assert_array_equal(array(translator(batch)), before)
    assert not any(layer.name.endswith("_scores") for layer in translator.layers)


def ids(name: str = "ids") -> Any:
    return keras.Input((None,), dtype="int32", name=name)


def stacked_pair(make: Callable[[str], Callable[[Any], Any]]) -> keras.Model:
    """Build a model of an embedding and two attention layers with residual sums."""
    tokens = ids()
    x = keras.layers.Embedding(11, 8, mask_zero=True)(tokens)
    for name in ("first", "second"):
        x = keras.layers.Add()([x, make(name)(x)])
    return fill_weights(keras.Model(tokens, x))


@pytest.mark.every_backend
@pytest.mark.parametrize("kind", ["keras", "keras_attn"])
def test_stacked_attention_layers(kind: str) -> None:
    """The mask reaches the second layer through the layers between the two."""
    if kind == "keras":
        model = stacked_pair(
            lambda name: (
                lambda x: keras.layers.MultiHeadAttention(2, 4, name=name)(
                    x, x, use_causal_mask=True
                )
            )
        )
    else:
        model = stacked_pair(
            lambda name: (
                lambda x: layers.MultiHeadSelfAttention(2, name=name)(
                    x, use_causal_mask=True
                )
            )
        )
    tokens = np.array([[4, 5, 6, 0, 0], [1, 2, 3, 4, 5]], "int32")
    maps = attention_maps(model, tokens)
    assert list(maps) == ["first", "second"]
    x = model.layers[1](tokens)
    causal = np.tri(5, dtype=bool)[None]
    allowed = causal & (tokens != 0)[:, None, :]
    for name, weights in maps.items():
        x = array(x)
        layer = model.get_layer(name)
        arguments = [x, x] if kind == "keras" else [x]
        attended, expected = layer(
            *arguments, attention_mask=allowed, return_attention_scores=True
        )
        real = np.broadcast_to((tokens != 0)[:, None, :, None], weights.shape)
        np.testing.assert_allclose(weights[real], array(expected)[real], atol=1e-6)
        assert not weights[real & ~allowed[:, None]].any()
        x = x + array(attended)


def test_a_layer_called_twice_has_two_maps() -> None:
    query, context = keras.Input((5, 8), name="q"), keras.Input((7, 8), name="c")
    layer = layers.CrossAttention(2, name="cross")
    model = keras.Model([query, context], layer(layer(query, context), context))
    fill_weights(model)
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(3, n, 8)).astype("float32") for n in (5, 7)]
    maps = attention_maps(model, arrays)
    assert list(maps) == ["cross", "cross_1"]
    first, scores = layer(*arrays, return_attention_scores=True)
    np.testing.assert_allclose(maps["cross"], array(scores), atol=1e-6)
    _, scores = layer(first, arrays[1], return_attention_scores=True)
    np.testing.assert_allclose(maps["cross_1"], array(scores), atol=1e-6)


def test_inputs_have_the_structure_of_the_model() -> None:
    """A list follows the order of the model's inputs, not that of their names."""
    query, context = keras.Input((5, 8), name="z"), keras.Input((7, 6), name="a")
    model = keras.Model(
        [query, context], layers.CrossAttention(2, name="cross")(query, context)
    )
    arrays = {"z": np.ones((1, 5, 8)), "a": np.ones((1, 7, 6))}
    assert attention_maps(model, list(arrays.values()))["cross"].shape == (1, 2, 5, 7)
    assert attention_maps(model, arrays)["cross"].shape == (1, 2, 5, 7)


def test_dropout_is_off() -> None:
    tokens = ids()
    x = keras.layers.Embedding(11, 8)(tokens)
    model = keras.Model(tokens, layers.TransformerEncoder(8, 2, dropout=0.9)(x))
    (weights,) = attention_maps(model, np.ones((2, 5), "int32")).values()
    np.testing.assert_allclose(weights, 0.2, atol=1e-6)


def test_a_model_that_uses_its_attention_scores() -> None:
    query = keras.Input((5, 8))
    layer = layers.MultiHeadSelfAttention(2, name="own")
    output, scores = layer(query, return_attention_scores=True)
    model = keras.Model(query, ops.matmul(ops.mean(scores, axis=1), output))
    array_in = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
    maps = attention_maps(model, array_in)
    _, expected = layer(array_in, return_attention_scores=True)
    assert list(maps) == ["own"]
    np.testing.assert_allclose(maps["own"], array(expected), atol=1e-6)


def test_models_without_attention_or_graph_raise() -> None:
    plain = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, name="only")])
    with pytest.raises(ValueError, match="attention layer.*Received.*'only'"):
        attention_maps(plain, np.ones((1, 4)))

    class Subclassed(keras.Model):
        def call(self, inputs: Any) -> Any:
            return inputs

    with pytest.raises(ValueError, match="Functional.*Received: model="):
        attention_maps(Subclassed(), np.ones((1, 4)))


def test_invalid_inputs_raise(
    translator: keras.Model, batch: dict[str, np.ndarray]
) -> None:
    source = batch["source"]
    for bad in ({"source": source}, {"source": source, "goal": source}, "abc", source):
        with pytest.raises(ValueError, match=r"\['source', 'target'\].*Received"):
            attention_maps(translator, bad)
