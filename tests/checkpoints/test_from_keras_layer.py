"""Conversion of Keras and KerasHub layers."""

import pathlib
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from backend_marks import on_every_backend
from tensors import (
    array,
    assert_close,
    assert_equal,
    fill_weights,
    lengths_mask,
    normal,
)

from keras_attn import layers
from keras_attn._types import Tensor
from keras_attn.checkpoints import from_keras_layer

hub = pytest.importorskip("keras_hub").layers

BATCH, LENGTH, VALUE_LENGTH, WIDTH, HEADS, INTERMEDIATE_DIM = 2, 5, 7, 12, 3, 11
X, VALUE, KEY = normal(2, 5, 12), normal(2, 7, 10, seed=1), normal(2, 7, 13, seed=2)
MASK, VALUE_MASK = lengths_mask([5, 3], LENGTH), lengths_mask([7, 4], VALUE_LENGTH)
rng = np.random.default_rng(3)
DENSE = rng.random((BATCH, LENGTH, VALUE_LENGTH)) < 0.5
# Keras attends uniformly if everything is masked, keras_attn to nothing.
DENSE[..., 0] = True
SELF_DENSE = DENSE[..., :LENGTH] | np.eye(LENGTH, dtype=bool)

# Call arguments, with the same names in Keras except for those in `KERAS_NAMES`.
ATTENTION_MASKS = [
    {},
    {"attention_mask": DENSE, "use_causal_mask": True},
    {"padding_mask": VALUE_MASK},
]
ENCODER_MASKS = [{}, {"padding_mask": MASK, "attention_mask": SELF_DENSE}]
DECODER_MASKS = [
    {},
    {"decoder_padding_mask": MASK, "decoder_attention_mask": SELF_DENSE},
    {"use_causal_mask": False},
]
BOTH_MASKS = [
    {},
    {
        "encoder_padding_mask": VALUE_MASK,
        "encoder_attention_mask": DENSE,
        "decoder_padding_mask": MASK,
    },
]
KERAS_NAMES = {"padding_mask": "value_mask"}


def squared(x: Tensor) -> Tensor:
    return x * x


def attention(**options: Any) -> keras.layers.Layer:
    return keras.layers.MultiHeadAttention(HEADS, 4, **options)


def grouped(**options: Any) -> keras.layers.Layer:
    return keras.layers.GroupQueryAttention(4, 6, 2, **options)


def encoder(**options: Any) -> keras.layers.Layer:
    return hub.TransformerEncoder(INTERMEDIATE_DIM, HEADS, **options)


def decoder(**options: Any) -> keras.layers.Layer:
    return hub.TransformerDecoder(INTERMEDIATE_DIM, HEADS, **options)


ALL_ARGUMENTS = {
    "dropout": 0.2,
    "use_gate": True,
    "sliding_window": 3,
    "kernel_initializer": "he_normal",
    "kernel_regularizer": "l2",
    "bias_constraint": "non_neg",
    "seed": 5,
}
BLOCK_ARGUMENTS = {
    "dropout": 0.2,
    "activation": squared,
    "layer_norm_epsilon": 1e-3,
    "kernel_initializer": "he_normal",
    "bias_initializer": "ones",
    "normalize_first": True,
}
# Function that makes a layer, its options, its inputs and the masks.
CASES: dict[str, tuple[Callable[..., keras.layers.Layer], dict[str, Any], Any, Any]] = {
    "attention": (attention, {}, [X, VALUE], ATTENTION_MASKS),
    "separate keys": (attention, {"use_bias": False}, [X, VALUE, KEY], [{}]),
    "attention, all options": (
        attention,
        ALL_ARGUMENTS | {"value_dim": 5, "output_shape": 9},
        [X, VALUE],
        ATTENTION_MASKS,
    ),
    "grouped": (grouped, {}, [X, VALUE], ATTENTION_MASKS),
    "grouped, all options": (grouped, ALL_ARGUMENTS, [X, VALUE, KEY], ATTENTION_MASKS),
    "encoder": (encoder, {}, [X], ENCODER_MASKS),
    "encoder, all options": (encoder, BLOCK_ARGUMENTS, [X], ENCODER_MASKS),
    "decoder": (decoder, {}, [X], DECODER_MASKS),
    "cross-attention": (decoder, {}, [X, VALUE], BOTH_MASKS),
    "decoder, all options": (decoder, BLOCK_ARGUMENTS, [X, VALUE], BOTH_MASKS),
}
every_case = pytest.mark.parametrize("case", CASES)


def make_layers(
    case: str, **options: Any
) -> tuple[keras.layers.Layer, keras.layers.Layer]:
    """Return a Keras or KerasHub layer with random weights, and the converted layer."""
    make, case_options, inputs, _ = CASES[case]
    keras_layer = make(**case_options, **options)
    keras_layer.build(*(x.shape for x in inputs))
    fill_weights(keras_layer)
    return keras_layer, from_keras_layer(keras_layer)


@pytest.mark.parametrize("case", on_every_backend(CASES, ("attention, all options",)))
def test_outputs(case: str) -> None:
    keras_layer, layer = make_layers(case)
    _, _, inputs, masks = CASES[case]
    for mask in masks:
        keras_mask: dict[str, Any] = mask
        if isinstance(layer, layers.MultiHeadAttention):
            keras_mask = {KERAS_NAMES.get(name, name): m for name, m in mask.items()}
        assert_close(layer(*inputs, **mask), keras_layer(*inputs, **keras_mask))


@every_case
def test_mixed_precision(case: str) -> None:
    """The weights stay float32; outputs differ only by the rounding of bfloat16."""
    keras_layer, layer = make_layers(case, dtype="mixed_bfloat16")
    assert layer.dtype_policy.name == "mixed_bfloat16"
    assert {weight.dtype for weight in layer.weights} == {"float32"}
    inputs = CASES[case][2]
    expected = array(keras_layer(*inputs)).astype("float32")
    outputs = array(layer(*inputs)).astype("float32")
    epsilon = 2**-7  # of bfloat16
    assert np.abs(outputs - expected).max() <= 2 * epsilon * np.abs(expected).max()


@every_case
def test_name_and_config_are_preserved(case: str) -> None:
    keras_layer, layer = make_layers(case, name="mine", trainable=False)
    assert layer.built and layer.name == "mine" and not layer.trainable
    assert all(w.path.startswith("mine/") for w in layer.weights)
    config, expected = layer.get_config(), keras_layer.get_config()
    if expected.get("output_shape"):  # a tuple in Keras, an int in keras_attn
        (expected["output_shape"],) = expected["output_shape"]
    shared = config.keys() & expected.keys()
    assert shared >= {"dtype", "dropout", "kernel_initializer", "bias_initializer"}
    assert {k: config[k] for k in shared} == {k: expected[k] for k in shared}


@every_case
def test_saved_and_loaded(case: str, tmp_path: pathlib.Path) -> None:
    _, layer = make_layers(case)
    _, _, inputs, _ = CASES[case]
    symbolic = [keras.Input((None, x.shape[-1])) for x in inputs]
    model = keras.Model(symbolic, layer(*symbolic))
    model.save(tmp_path / "model.keras")
    path = tmp_path / "model.keras"
    loaded = keras.saving.load_model(path, custom_objects={"squared": squared})
    assert_equal(loaded(inputs), model(inputs))
    assert_close(model(inputs), layer(*inputs))


def test_layer_of_a_loaded_model(tmp_path: pathlib.Path) -> None:
    """The build config of the layer has been read from JSON."""
    symbolic = keras.Input((None, WIDTH)), keras.Input((None, 10))
    model = keras.Model(symbolic, decoder(name="decoder")(*symbolic))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    keras_layer = loaded.get_layer("decoder")
    assert_close(from_keras_layer(keras_layer)(X, VALUE), keras_layer(X, VALUE))


def test_weights_are_copies() -> None:
    keras_layer, layer = make_layers("encoder")
    expected = array(keras_layer(X))
    fill_weights(layer, seed=9)
    assert_equal(keras_layer(X), expected)


class Subclass(keras.layers.MultiHeadAttention):
    pass


@pytest.mark.parametrize(
    "layer",
    [
        keras.layers.Dense(3),
        Subclass(2, 3),
        hub.CachedMultiHeadAttention(2, 3),
        layers.TransformerEncoder(INTERMEDIATE_DIM, HEADS),
        None,
    ],
)
def test_unsupported_layers_raise(layer: Any) -> None:
    supported = "MultiHeadAttention or GroupQueryAttention, .*Encoder or .*Decoder"
    name = type(layer).__name__
    with pytest.raises(TypeError, match=f"{supported}. Received: .*{name}$"):
        from_keras_layer(layer)


@pytest.mark.parametrize("make", [attention, grouped, encoder, decoder])
def test_unbuilt_layers_raise(make: Callable[..., keras.layers.Layer]) -> None:
    with pytest.raises(ValueError, match="has been built.*Received: layer='a'"):
        from_keras_layer(make(name="a"))


@pytest.mark.parametrize(
    "options",
    [
        {"attention_axes": 2},
        {"attention_axes": (1, 2)},
        {"output_shape": (2, 3)},
        {"activity_regularizer": "l2"},
    ],
)
def test_unsupported_options_raise(options: dict[str, Any]) -> None:
    keras_layer = attention(name="a", **options)
    keras_layer.build(X.shape, X.shape)
    (name,) = options
    with pytest.raises(ValueError, match=f"Received: layer='a', .*{name}="):
        from_keras_layer(keras_layer)


def test_inputs_of_rank_four_raise() -> None:
    keras_layer = attention(attention_axes=1)
    keras_layer.build((2, 5, 6, 12), (2, 5, 6, 12))
    with pytest.raises(ValueError, match="length, features.*Received: "):
        from_keras_layer(keras_layer)


def test_heads_that_do_not_divide_the_width_raise() -> None:
    keras_layer = hub.TransformerEncoder(INTERMEDIATE_DIM, 5)
    keras_layer.build(X.shape)
    with pytest.raises(ValueError, match="multiple of `num_heads`.*Received: "):
        from_keras_layer(keras_layer)


def test_adapters_raise() -> None:
    keras_layer, _ = make_layers("attention")
    keras_layer.query_dense.enable_lora(2)
    with pytest.raises(ValueError, match="plain weights.*Received: .*lora_kernel_a"):
        from_keras_layer(keras_layer)
