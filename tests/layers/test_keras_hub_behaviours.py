"""What KerasHub checks of its blocks and position layers, held by ours as well.

Two differences are meant: our position layers add to their input, where theirs give
the encoding alone, and a longer input than there are positions is an error.
"""

import json

import keras
import numpy as np
import pytest
from tensors import array, assert_close, assert_equal, normal

from keras_attn import layers
from keras_attn._keras_internals import implicit_mask, set_implicit_mask

HUB_ARGUMENTS = {
    "intermediate_dim": 4,
    "num_heads": 2,
    "activation": "relu",
    "layer_norm_epsilon": 1e-05,
    "kernel_initializer": "HeNormal",
    "bias_initializer": "Zeros",
    "dropout": 0.1,
}
X, CONTEXT = normal(2, 4, 6), normal(2, 4, 6, seed=1)
normalize_first = pytest.mark.parametrize("normalize_first", [False, True])

# layer, inputs, numbers of trainable weights and of seeds of dropouts
BLOCKS = {
    "encoder": (layers.TransformerEncoder, (X,), 16, 3),
    "decoder": (layers.TransformerDecoder, (X,), 16, 3),
    "decoder_of_two": (layers.TransformerDecoder, (X, CONTEXT), 26, 5),
}
POSITIONS = {
    "sines": (layers.SinusoidalPositionEmbedding, {}, normal(2, 4, 6), 0),
    "sines_4d": (layers.SinusoidalPositionEmbedding, {}, normal(1, 2, 4, 6), 0),
    "positions": (
        layers.PositionEmbedding,
        {"sequence_length": 21},
        normal(4, 21, 30),
        1,
    ),
    "positions_4d": (
        layers.PositionEmbedding,
        {"sequence_length": 21},
        normal(4, 5, 21, 30),
        1,
    ),
}


def check_layer(make, inputs, trainable, seeds):
    """The common run: config, build, symbolic, eager, a step, precision, saving."""

    def counts(layer):
        weights, variables = layer.trainable_weights, layer.non_trainable_variables
        assert layer.built
        assert len(weights) == trainable
        assert len(layer.non_trainable_weights) == 0
        assert len(variables) == seeds

    layer = make()
    config = json.dumps(layer.get_config(), sort_keys=True)
    copy = type(layer).from_config(layer.get_config())
    assert json.dumps(copy.get_config(), sort_keys=True) == config
    assert set(dir(copy)) == set(dir(layer))

    layer.build(*(x.shape for x in inputs))
    counts(layer)

    layer = make()
    output = layer(*(keras.KerasTensor(x.shape, "float32") for x in inputs))
    counts(layer)
    assert output.shape == inputs[0].shape and output.dtype == "float32"

    layer = make()
    eager = layer(*inputs)
    counts(layer)
    assert tuple(eager.shape) == inputs[0].shape
    assert keras.backend.standardize_dtype(eager.dtype) == "float32"

    for policy in ("mixed_float16", "mixed_bfloat16", "bfloat16"):
        policy = keras.dtype_policies.get(policy)
        layer = make(dtype=policy)
        tensors = [keras.ops.convert_to_tensor(x) for x in inputs]
        for result in (layer(*tensors), layer.compute_output_spec(*tensors)):
            dtype = keras.backend.standardize_dtype(result.dtype)
            assert dtype == policy.compute_dtype
        assert {w.dtype for w in layer.weights} <= {policy.variable_dtype}
        for child in layer._flatten_layers():
            assert child.compute_dtype == policy.compute_dtype
            assert child.variable_dtype == policy.variable_dtype


@normalize_first
@pytest.mark.parametrize("name", BLOCKS)
def test_blocks(name, normalize_first):
    layer_class, inputs, trainable, seeds = BLOCKS[name]

    def make(**kwargs):
        return layer_class(**HUB_ARGUMENTS, normalize_first=normalize_first, **kwargs)

    check_layer(make, inputs, trainable, seeds)


@pytest.mark.parametrize("name", POSITIONS)
def test_position_layers(name):
    layer_class, arguments, x, trainable = POSITIONS[name]
    check_layer(lambda **kw: layer_class(**arguments, **kw), (x,), trainable, 0)


@pytest.mark.slow
def test_a_compiled_training_step():
    """With XLA, as theirs; pre- and post-norm in one model."""
    source, target = keras.Input((4, 6)), keras.Input((4, 6))
    encoded = layers.TransformerEncoder(**HUB_ARGUMENTS)(source)
    decoder = layers.TransformerDecoder(**HUB_ARGUMENTS, normalize_first=True)
    decoded = decoder(target, encoded)
    model = keras.Model([source, target], decoded)
    model.compile("sgd", "mse", jit_compile=True)
    history = model.fit([X, CONTEXT], X, verbose=0)
    assert np.isfinite(history.history["loss"][0])


@normalize_first
def test_encoder_in_a_sequential_model(normalize_first):
    encoder = layers.TransformerEncoder(4, 2, normalize_first=normalize_first)
    model = keras.Sequential([keras.Input((4, 6)), encoder])
    assert_close(model(X), encoder(X), 1e-6)


def test_the_mask_is_the_second_argument_of_an_encoder():
    encoder = layers.TransformerEncoder(4, 2)
    encoder.build([2, 4, 6])
    mask = X[:, :, 0] < 0.5
    assert_equal(encoder(X, mask), encoder(X, padding_mask=mask))
    assert np.abs(array(encoder(X, mask)) - array(encoder(X))).max() > 1e-4


def test_calls_must_stay_with_or_without_an_encoder_sequence():
    decoder = layers.TransformerDecoder(4, 2, name="block")
    decoder(X, CONTEXT)
    with pytest.raises(ValueError, match="'block' was built with cross-attention"):
        decoder(X)
    decoder = layers.TransformerDecoder(4, 2, name="block")
    decoder(X)
    with pytest.raises(ValueError, match="'block' was built without cross-attention"):
        decoder(X, CONTEXT)
    with pytest.raises(ValueError, match="was built without cross-attention"):
        decoder(keras.Input((4, 6)), keras.Input((4, 6)))


@pytest.mark.parametrize("name", ["TransformerEncoder", "TransformerDecoder"])
def test_an_unknown_initializer_is_refused(name):
    with pytest.raises(ValueError, match="Invalid"):
        getattr(layers, name)(4, 2, dropout=0.5, kernel_initializer="Invalid")


@pytest.mark.parametrize("name", BLOCKS)
def test_dropout_of_all_leaves_the_residual_path(name):
    layer_class, inputs, *_ = BLOCKS[name]
    layer = layer_class(4, 2, dropout=0.99999)
    output = layer(*inputs, training=True)
    x = layer._feed_forward_residual.norm(layer._attention_residual.norm(inputs[0]))
    assert_close(output, x)
    first = layer_class(4, 2, dropout=0.99999, normalize_first=True)
    assert_close(first(*inputs, training=True), inputs[0])


@pytest.mark.parametrize("name", BLOCKS)
def test_a_mask_set_by_hand_passes_through(name):
    layer_class, inputs, *_ = BLOCKS[name]
    x = keras.ops.convert_to_tensor(inputs[0])
    mask = keras.ops.convert_to_tensor([[True, True, False, False]] * 2)
    set_implicit_mask(x, mask)
    layer = layer_class(4, 2)
    output = layer(x, *inputs[1:])
    assert_equal(implicit_mask(output), mask)
    name = "padding_mask" if name == "encoder" else "decoder_padding_mask"
    assert_equal(output, layer(*inputs, **{name: mask}))


@pytest.mark.parametrize("name", BLOCKS)
def test_a_mask_of_layers_passes_through(name):
    layer_class, inputs, *_ = BLOCKS[name]
    x = keras.layers.Masking()(X * np.array([1, 1, 1, 0])[None, :, None])
    output = layer_class(4, 2)(x, *inputs[1:])
    assert_equal(implicit_mask(output), [[True, True, True, False]] * 2)


def test_attention_scores():
    output, scores = layers.TransformerEncoder(4, 2)(
        normal(1, 4, 6), return_attention_scores=True
    )
    assert tuple(output.shape) == (1, 4, 6)
    assert tuple(scores.shape) == (1, 2, 4, 4)


@pytest.mark.parametrize(
    "shape", [(100, 32), (None, 32), (None, 100, 32), (None, None, 32)]
)
@pytest.mark.parametrize("name", ["sines", "positions"])
def test_symbolic_shapes_of_position_layers(name, shape):
    layer = {
        "sines": layers.SinusoidalPositionEmbedding(),
        "positions": layers.PositionEmbedding(100),
    }[name]
    assert layer(keras.Input(shape)).shape == (None, *shape)


def test_values_of_sines():
    layer = layers.SinusoidalPositionEmbedding()
    model = keras.Sequential([keras.Input((4, 6)), layer])
    x = normal(1, 4, 6)
    found = array(model(x)) - x
    assert_close(found[0, 0], [0, 1, 0, 1, 0, 1])
    assert_close(found[0, 3], [0.14112, -0.98999, 0.13879, 0.99032, 0.00646, 0.99998])


def test_positions_in_float16():
    layer = layers.PositionEmbedding(21, dtype="float16")
    output = layer(keras.Input((21, 30)))
    assert output.shape == (None, 21, 30) and output.dtype == "float16"
    assert layer.position_embeddings.dtype == "float16"


def test_a_shorter_input_takes_the_first_positions():
    layer = layers.PositionEmbedding(40)
    inputs = keras.Input((None, 30))
    model = keras.Model(inputs, layer(inputs))
    output = model.predict(np.ones((1, 17, 30)), verbose=0)
    assert_close(output[0], 1 + array(layer.position_embeddings)[:17], 1e-6)


def counting(shape, dtype=None):
    return keras.ops.reshape(keras.ops.arange(np.prod(shape), dtype=dtype), shape)


def test_a_function_as_initializer():
    inputs = keras.Input((4, 3))
    model = keras.Model(inputs, layers.PositionEmbedding(4, counting)(inputs))
    expected = np.broadcast_to(np.arange(12).reshape(4, 3), (2, 4, 3))
    data = np.zeros((2, 4, 3))
    assert_close(model(data), expected)
    assert_close(model.predict(data, verbose=0), expected)


def test_a_longer_input_is_an_error_here():
    with pytest.raises(ValueError, match="has vectors for"):
        layers.PositionEmbedding(4)(normal(4, 16, 30))
