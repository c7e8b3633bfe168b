"""Quantized models that are saved, loaded, and compared with the model before."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from tensors import array, fill_weights, normal

from keras_attn import layers, models

# Keras warns of each layer that cannot be quantized.
pytestmark = pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize`")

IDS = np.random.default_rng(0).integers(1, 11, (2, 5)).astype("int32")
SMALL: dict[str, Any] = dict(
    num_layers=2, hidden_dim=8, intermediate_dim=12, num_heads=2
)


def of_layer(*parts: keras.layers.Layer) -> keras.Model:
    inputs = x = keras.Input((None, 8))
    for part in parts:
        x = part(x)
    return keras.Model(inputs, x)


def with_shared_attention() -> keras.Model:
    shared = layers.MultiHeadSelfAttention(2, name="shared")
    return of_layer(
        *(layers.TransformerEncoder(12, 2, attention=shared) for _ in range(2))
    )


MODELS: dict[str, Callable[[], tuple[keras.Model, Any]]] = {
    "encoder": lambda: (of_layer(layers.TransformerEncoder(12, 2)), normal(2, 5, 8)),
    "attention": lambda: (
        of_layer(layers.MultiHeadSelfAttention(2, num_key_value_heads=1)),
        normal(2, 5, 8),
    ),
    "linear attention": lambda: (
        of_layer(layers.LinearSelfAttention(2)),
        normal(2, 5, 8),
    ),
    "feed-forward": lambda: (
        of_layer(layers.FeedForward(12, "silu", gated=True)),
        normal(2, 5, 8),
    ),
    "language model": lambda: (models.causal_language_model(11, **SMALL), IDS),
    "translator": lambda: (
        models.transformer_translator(11, **SMALL),
        {"source": IDS, "target": IDS},
    ),
    "recurrent": lambda: (
        models.recurrent_translator(11, attention="general", hidden_dim=8),
        {"source": IDS, "target": IDS},
    ),
}


EVERY_MODE = ("encoder", "language model")  # all kinds of layers that Keras quantizes


def saved_and_loaded(model: keras.Model, folder: Path) -> keras.Model:
    model.save(folder / "model.keras")
    loaded: Any = keras.saving.load_model(folder / "model.keras")
    return loaded


def dtypes(model: keras.Model) -> list[str]:
    return [str(weight.dtype) for weight in model.weights]


# Keras warns of each embedding that it leaves in float32.
@pytest.mark.filterwarnings("ignore:Invalid quantization mode")
# Keras transposes the scales of an embedding, which are a vector, on PyTorch.
@pytest.mark.filterwarnings("ignore:.*The use of `x.T` on tensors:UserWarning")
@pytest.mark.slow
@pytest.mark.parametrize(
    "name, mode",
    [
        pytest.param(name, mode, marks=pytest.mark.every_backend)
        for name in EVERY_MODE
        for mode in ("int8", "int4", "float8")
    ]
    + [pytest.param(name, "int8") for name in MODELS if name not in EVERY_MODE],
)
def test_a_loaded_quantized_model_has_the_same_numbers(
    name: str, mode: str, tmp_path: Path
) -> None:
    model, inputs = MODELS[name]()
    fill_weights(model)
    plain = array(model(inputs))
    model.quantize(mode)
    expected = array(model(inputs))
    assert not np.array_equal(expected, plain) or mode == "float8"
    loaded = saved_and_loaded(model, tmp_path)
    np.testing.assert_array_equal(array(loaded(inputs)), expected)
    assert dtypes(loaded) == dtypes(model)
    if mode == "int8":
        assert "int8" in dtypes(loaded)
    if name == "encoder":
        again = saved_and_loaded(loaded, tmp_path)
        np.testing.assert_array_equal(array(again(inputs)), expected)


@pytest.mark.slow
def test_block_size_and_quantizers_are_saved(tmp_path: Path) -> None:
    for config in (
        keras.quantizers.Int4QuantizationConfig(block_size=4),
        keras.quantizers.Int4QuantizationConfig(block_size=None),
        keras.quantizers.Int8QuantizationConfig(activation_quantizer=None),
    ):
        model = fill_weights(of_layer(layers.TransformerEncoder(12, 2)))
        model.quantize(config=config)
        loaded = saved_and_loaded(model, tmp_path)
        x = normal(2, 5, 8)
        np.testing.assert_array_equal(array(loaded(x)), array(model(x)))
        assert dtypes(loaded) == dtypes(model)


@pytest.mark.slow
def test_a_part_that_is_not_quantized_stays_so(tmp_path: Path) -> None:
    model = fill_weights(of_layer(layers.TransformerEncoder(12, 2)))
    model.quantize("int8", filters=lambda layer: layer.name != "query")
    loaded = saved_and_loaded(model, tmp_path)
    x = normal(2, 5, 8)
    np.testing.assert_array_equal(array(loaded(x)), array(model(x)))
    assert dtypes(loaded) == dtypes(model)


@pytest.mark.slow
def test_training_in_float8_continues(tmp_path: Path) -> None:
    model = fill_weights(of_layer(layers.TransformerEncoder(12, 2)))
    model.quantize("float8")
    model.compile(keras.optimizers.Adam(0.01), "mse", jit_compile=False)
    x = normal(8, 5, 8)
    model.fit(x, x, verbose=0, shuffle=False)
    loaded = saved_and_loaded(model, tmp_path)
    for each in (model, loaded):
        each.fit(x, x, verbose=0, shuffle=False)
    for weight, other in zip(loaded.weights, model.weights):
        np.testing.assert_allclose(array(weight), array(other), atol=1e-6)


@pytest.mark.slow
def test_a_quantized_part_of_two_blocks_cannot_be_loaded(tmp_path: Path) -> None:
    model = fill_weights(with_shared_attention())
    model.quantize("int8")
    with pytest.raises(ValueError, match="could not be loaded"):
        saved_and_loaded(model, tmp_path)
