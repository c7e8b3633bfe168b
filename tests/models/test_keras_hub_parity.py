"""A translation model built from the blocks of keras_attn and of KerasHub."""

import keras
import keras_hub
import numpy as np
import pytest
from tensors import fill_weights

from keras_attn import layers

V, D, F, HEADS = 19, 16, 24, 4


def translator(blocks, normalize_first):
    """Return a model of the encoder and decoder block in the module `blocks`."""
    embedding = layers.TokenEmbedding(V, D, scale=True)
    positions = layers.SinusoidalPositionEmbedding()
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    options = dict(intermediate_dim=F, num_heads=HEADS, normalize_first=normalize_first)
    encoded = positions(embedding(source))
    encoded = blocks.TransformerEncoder(**options)(encoded)
    decoded = positions(embedding(target))
    decoded = blocks.TransformerDecoder(**options)(decoded, encoded)
    logits = embedding(decoded, reverse=True)
    return keras.Model({"source": source, "target": target}, logits)


def batch(step, batch_size=8, source=7, target=6):
    """Return inputs and labels: the labels are the reversed source.

    The sources have different lengths and padding at the end.
    """
    rng = np.random.default_rng(step)
    ids = rng.integers(3, V, (batch_size, source))
    ids *= np.arange(source) < rng.integers(3, source + 1, (batch_size, 1))
    labels = ids[:, ::-1][:, :target]
    decoder_input = np.pad(labels, ((0, 0), (1, 0)), constant_values=2)[:, :-1]
    inputs = {
        "source": ids.astype("int32"),
        "target": decoder_input.astype("int32"),
    }
    return inputs, labels


def models_with_equal_weights(normalize_first):
    model = translator(layers, normalize_first)
    keras_hub_model = translator(keras_hub.layers, normalize_first)
    keras_hub_model.set_weights(fill_weights(model).get_weights())
    return model, keras_hub_model


# KerasHub's blocks pass tensors with a mask to dense layers, which do not support one.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Layer .* does not support masking:UserWarning"
)


@pytest.mark.parametrize("normalize_first", [False, True])
def test_equal_logits(normalize_first):
    inputs, _ = batch(1000)
    is_token = inputs["target"] != 0
    assert (inputs["source"] == 0).any() and not is_token.all()
    logits, expected = (
        keras.ops.convert_to_numpy(model(inputs))[is_token]
        for model in models_with_equal_weights(normalize_first)
    )
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_equal_losses_over_fifty_steps():
    losses = [losses_of(model) for model in models_with_equal_weights(False)]
    assert np.mean(losses[0][-10:]) < np.mean(losses[0][:10]) - 0.2
    np.testing.assert_allclose(*losses, rtol=1e-3, atol=1e-3)


def losses_of(model):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)
    model.compile(keras.optimizers.Adam(1e-2), loss, jit_compile=False)
    # With its variables built here, the training step is traced only once.
    model.optimizer.build(model.trainable_variables)
    return [float(model.train_on_batch(*batch(step))) for step in range(50)]
