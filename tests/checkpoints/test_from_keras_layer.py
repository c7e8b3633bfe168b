"""Layers of Keras and KerasHub, and what they become."""

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
from keras_attn.checkpoints import from_keras_layer

hub = pytest.importorskip("keras_hub").layers

BATCH, LENGTH, TOTAL, WIDTH, HEADS, MIDDLE = 2, 5, 7, 12, 3, 11
X, VALUE, KEY = normal(2, 5, 12), normal(2, 7, 10, seed=1), normal(2, 7, 13, seed=2)
KEEP, VALUE_KEEP = lengths_mask([5, 3], LENGTH), lengths_mask([7, 4], TOTAL)
rng = np.random.default_rng(3)
DENSE = rng.random((BATCH, LENGTH, TOTAL)) < 0.5
DENSE[..., 0] = True  # Theirs means something else where nothing is left to see.
OWN_DENSE = DENSE[..., :LENGTH] | np.eye(LENGTH, dtype=bool)

# Arguments of a call, alike in both houses; those in `THEIRS` by another name.
ATTENTION_MASKS = [
    {},
    {"attention_mask": DENSE, "use_causal_mask": True},
    {"padding_mask": VALUE_KEEP},
]
ENCODER_MASKS = [{}, {"padding_mask": KEEP, "attention_mask": OWN_DENSE}]
DECODER_MASKS = [
    {},
    {"decoder_padding_mask": KEEP, "decoder_attention_mask": OWN_DENSE},
    {"use_causal_mask": False},
]
BOTH_MASKS = [
    {},
    {
        "encoder_padding_mask": VALUE_KEEP,
        "encoder_attention_mask": DENSE,
        "decoder_padding_mask": KEEP,
    },
]
THEIRS = {"padding_mask": "value_mask"}


def squared(x):
    return x * x


def attention(**options):
    return keras.layers.MultiHeadAttention(HEADS, 4, **options)


def grouped(**options):
    return keras.layers.GroupQueryAttention(4, 6, 2, **options)


def encoder(**options):
    return hub.TransformerEncoder(MIDDLE, HEADS, **options)


def decoder(**options):
    return hub.TransformerDecoder(MIDDLE, HEADS, **options)


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
# How a layer is made, what goes in, and the masks.
CASES = {
    "attention": (attention, {}, [X, VALUE], ATTENTION_MASKS),
    "keys of their own": (attention, {"use_bias": False}, [X, VALUE, KEY], [{}]),
    "all of attention": (
        attention,
        ALL_ARGUMENTS | {"value_dim": 5, "output_shape": 9},
        [X, VALUE],
        ATTENTION_MASKS,
    ),
    "grouped": (grouped, {}, [X, VALUE], ATTENTION_MASKS),
    "all of grouped": (grouped, ALL_ARGUMENTS, [X, VALUE, KEY], ATTENTION_MASKS),
    "encoder": (encoder, {}, [X], ENCODER_MASKS),
    "all of an encoder": (encoder, BLOCK_ARGUMENTS, [X], ENCODER_MASKS),
    "decoder": (decoder, {}, [X], DECODER_MASKS),
    "cross-attention": (decoder, {}, [X, VALUE], BOTH_MASKS),
    "all of a decoder": (decoder, BLOCK_ARGUMENTS, [X, VALUE], BOTH_MASKS),
}
every_case = pytest.mark.parametrize("case", CASES)


def pair(case, **options):
    make, more, inputs, _ = CASES[case]
    theirs = make(**more, **options)
    theirs.build(*(x.shape for x in inputs))
    fill_weights(theirs)
    return theirs, from_keras_layer(theirs)


@pytest.mark.parametrize("case", on_every_backend(CASES, ("all of attention",)))
def test_equal_to_theirs(case):
    theirs, ours = pair(case)
    _, _, inputs, masks = CASES[case]
    for mask in masks:
        if isinstance(ours, layers.MultiHeadAttention):
            renamed = {THEIRS.get(name, name): value for name, value in mask.items()}
        else:
            renamed = mask
        assert_close(ours(*inputs, **mask), theirs(*inputs, **renamed))


@every_case
def test_mixed_precision(case):
    """The float32 weights are theirs; outputs differ by how bfloat16 rounds."""
    theirs, ours = pair(case, dtype="mixed_bfloat16")
    assert ours.dtype_policy.name == "mixed_bfloat16"
    assert {weight.dtype for weight in ours.weights} == {"float32"}
    inputs = CASES[case][2]
    expected, found = (array(x(*inputs)).astype("float32") for x in (theirs, ours))
    step = 2**-7  # between neighbours of bfloat16, of numbers from 1 on
    assert np.abs(found - expected).max() <= 2 * step * np.abs(expected).max()


@every_case
def test_name_and_settings_come_along(case):
    theirs, ours = pair(case, name="mine", trainable=False)
    assert ours.built and ours.name == "mine" and not ours.trainable
    assert all(w.path.startswith("mine/") for w in ours.weights)
    found, expected = ours.get_config(), theirs.get_config()
    shared = found.keys() & expected.keys()
    assert shared >= {"dtype", "dropout", "kernel_initializer", "bias_initializer"}
    assert {k: found[k] for k in shared} == {k: expected[k] for k in shared}


@every_case
def test_saved_and_loaded(case, tmp_path):
    _, ours = pair(case)
    _, _, inputs, _ = CASES[case]
    symbols = [keras.Input((None, x.shape[-1])) for x in inputs]
    model = keras.Model(symbols, ours(*symbols))
    model.save(tmp_path / "model.keras")
    path = tmp_path / "model.keras"
    loaded = keras.saving.load_model(path, custom_objects={"squared": squared})
    assert_equal(loaded(inputs), model(inputs))
    assert_close(model(inputs), ours(*inputs))


def test_a_layer_out_of_a_saved_model(tmp_path):
    """Where what it was built for comes out of JSON."""
    symbols = keras.Input((None, WIDTH)), keras.Input((None, 10))
    model = keras.Model(symbols, decoder(name="theirs")(*symbols))
    model.save(tmp_path / "model.keras")
    theirs = keras.saving.load_model(tmp_path / "model.keras").get_layer("theirs")
    assert_close(from_keras_layer(theirs)(X, VALUE), theirs(X, VALUE))


def test_the_weights_are_copies():
    theirs, ours = pair("encoder")
    before = array(theirs(X))
    fill_weights(ours, seed=9)
    assert_equal(theirs(X), before)


class Other(keras.layers.MultiHeadAttention):
    pass


@pytest.mark.parametrize(
    "layer",
    [
        keras.layers.Dense(3),
        Other(2, 3),
        hub.CachedMultiHeadAttention(2, 3),
        layers.TransformerEncoder(MIDDLE, HEADS),
        None,
    ],
)
def test_other_layers(layer):
    supported = "MultiHeadAttention or GroupQueryAttention, .*Encoder or .*Decoder"
    name = type(layer).__name__
    with pytest.raises(TypeError, match=f"{supported}. Received: .*{name}$"):
        from_keras_layer(layer)


@pytest.mark.parametrize("make", [attention, grouped, encoder, decoder])
def test_not_built(make):
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
def test_settings_that_ours_has_not(options):
    theirs = attention(name="a", **options)
    theirs.build(X.shape, X.shape)
    (name,) = options
    with pytest.raises(ValueError, match=f"Received: layer='a', .*{name}="):
        from_keras_layer(theirs)


def test_attention_in_a_grid():
    theirs = attention(attention_axes=1)
    theirs.build((2, 5, 6, 12), (2, 5, 6, 12))
    with pytest.raises(ValueError, match="length, features.*Received: "):
        from_keras_layer(theirs)


def test_heads_that_do_not_divide_the_width():
    theirs = hub.TransformerEncoder(MIDDLE, 5)
    theirs.build(X.shape)
    with pytest.raises(ValueError, match="multiple of `num_heads`.*Received: "):
        from_keras_layer(theirs)


def test_adapters():
    theirs, _ = pair("attention")
    theirs.query_dense.enable_lora(2)
    with pytest.raises(ValueError, match="plain weights.*Received: .*lora_kernel_a"):
        from_keras_layer(theirs)
