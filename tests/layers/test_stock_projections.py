"""Projections are Keras's own dense layers: LoRA, quantization, regularizers."""

import keras
import numpy as np
import pytest
from tensors import array, assert_close, assert_equal, fill_weights, normal

from keras_attn import layers

WIDTH = 15
PROJECTIONS = ["query", "key", "value", "attention_output"]


def self_attention_model(**kwargs):
    layer = layers.MultiHeadSelfAttention(3, name="attention", **kwargs)
    inputs = keras.Input((None, WIDTH))
    model = keras.Model(inputs, layer(inputs))
    fill_weights(model)
    return model, layer


def projections(layer):
    children = {child.name: child for child in layer._flatten_layers()}
    return [children[name] for name in PROJECTIONS]


def test_projections_are_einsum_dense_layers():
    _, layer = self_attention_model()
    assert all(isinstance(p, keras.layers.EinsumDense) for p in projections(layer))


def test_einsum_says_the_same_as_the_projection():
    """`HeadsDense` replaces the product, so the equation must still describe it."""
    _, layer = self_attention_model()
    x = normal(2, 7, WIDTH)
    for projection in projections(layer):
        given = x if projection.name != "attention_output" else normal(2, 7, 3, 5)
        product = np.einsum(projection.equation, given, array(projection.kernel))
        assert_close(projection(given), product + array(projection.bias))


@pytest.mark.parametrize("name", PROJECTIONS)
def test_lora_trains_two_small_matrices_alone(name):
    model, layer = self_attention_model()
    x, y = normal(2, 7, WIDTH), normal(2, 7, WIDTH, seed=1)
    before = array(model(x))
    projection = projections(layer)[PROJECTIONS.index(name)]
    projection.enable_lora(2)
    assert_equal(model(x), before)  # the second matrix starts at zero
    for other in projections(layer):
        if other is not projection:
            other.trainable = False
    model.compile(keras.optimizers.SGD(1.0), "mse", run_eagerly=True)
    kernel = array(projection._kernel)
    model.train_on_batch(x, y)
    assert_equal(projection._kernel, kernel)
    assert np.abs(array(projection.lora_kernel_b)).max() > 0
    assert np.abs(array(model(x)) - before).max() > 1e-5


def test_lora_is_merged_when_saved(tmp_path):
    model, layer = self_attention_model()
    projection = projections(layer)[0]
    projection.enable_lora(2)
    projection.lora_kernel_b.assign(normal(*projection.lora_kernel_b.shape))
    x = normal(2, 7, WIDTH)
    model.save(tmp_path / "model.keras")
    assert_close(keras.saving.load_model(tmp_path / "model.keras")(x), model(x), 1e-6)


# Keras warns of every layer it leaves as it is; of these it should.
quantizes = pytest.mark.filterwarnings(
    "ignore:Layer (InputLayer|Dropout|LayerNormalization) does not have a `quantize`"
)


@pytest.mark.slow
@quantizes
def test_int8_is_near():
    model, layer = self_attention_model()
    x = normal(2, 7, WIDTH)
    before = array(model(x))
    model.quantize("int8")
    assert {p.quantization_mode for p in projections(layer)} == {"int8"}
    after = array(model(x))
    assert 0 < np.abs(after - before).max() < 0.05 * np.abs(before).max()


@pytest.mark.slow
@quantizes
def test_int8_of_a_block():
    source = keras.Input((None, WIDTH), name="source")
    target = keras.Input((None, WIDTH), name="target")
    decoded = layers.TransformerDecoder(29, 3, name="decoder")(target, source)
    model = keras.Model({"source": source, "target": target}, decoded)
    fill_weights(model)
    inputs = {"source": normal(2, 5, WIDTH), "target": normal(2, 7, WIDTH, seed=1)}
    before = array(model(inputs))
    model.quantize("int8")
    after = array(model(inputs))
    assert 0 < np.abs(after - before).max() < 0.15 * np.abs(before).max()


def test_a_dtype_policy_for_each_projection():
    """A map of policies, by the paths of the layers."""
    policies = keras.dtype_policies.DTypePolicyMap("float32")
    policies["attention/query"] = keras.dtype_policies.get("int8_from_float32")
    layer = layers.MultiHeadSelfAttention(3, dtype=policies, name="attention")
    output = layer(normal(2, 7, WIDTH))
    modes = [projection.quantization_mode for projection in projections(layer)]
    assert modes == ["int8", None, None, None]
    assert np.isfinite(array(output)).all()


def test_regularizers_and_constraints_reach_the_kernels_and_biases():
    model, layer = self_attention_model(
        kernel_regularizer=keras.regularizers.L2(0.5),
        bias_regularizer=keras.regularizers.L1(0.25),
        kernel_constraint="non_neg",
        bias_constraint="non_neg",
    )
    model(normal(2, 7, WIDTH))
    expected = 0.0
    for projection in projections(layer):
        expected += 0.5 * (array(projection.kernel).astype("float64") ** 2).sum()
        expected += 0.25 * np.abs(array(projection.bias).astype("float64")).sum()
    assert abs(float(sum(model.losses)) - expected) < 1e-3 * expected
    model.compile("sgd", "mse", run_eagerly=True)
    model.train_on_batch(normal(2, 7, WIDTH), normal(2, 7, WIDTH, seed=1))
    assert min(array(weight).min() for weight in layer.trainable_weights) >= 0


@pytest.mark.parametrize("make", ["attention", "block"])
def test_no_two_weights_start_equal(make):
    initializer = keras.initializers.GlorotUniform()
    if make == "attention":
        layer = layers.MultiHeadSelfAttention(3, kernel_initializer=initializer)
    else:
        layer = layers.TransformerEncoder(15, 3, kernel_initializer=initializer)
    layer.build((None, None, WIDTH))
    kernels = [array(w).ravel() for w in layer.weights if w.name == "kernel"]
    for i, kernel in enumerate(kernels):
        assert not any(np.array_equal(kernel, other) for other in kernels[:i])
