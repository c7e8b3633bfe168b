"""One translation model from two sets of blocks: ours and KerasHub's."""

import keras
import keras_hub
import numpy as np
import pytest
from tensors import fill_weights

from keras_attn import layers

V, D, F, HEADS = 19, 16, 24, 4


def translator(blocks, normalize_first):
    """`blocks` is the module with `TransformerEncoder` and `TransformerDecoder`."""
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


def batch(step, rows=8, source=7, target=6):
    """The task: the source backwards. Rows of several lengths, padding at the end."""
    rng = np.random.default_rng(step)
    ids = rng.integers(3, V, (rows, source))
    ids *= np.arange(source) < rng.integers(3, source + 1, (rows, 1))
    backwards = ids[:, ::-1][:, :target]
    started = np.pad(backwards, ((0, 0), (1, 0)), constant_values=2)[:, :-1]
    return {"source": ids.astype("int32"), "target": started.astype("int32")}, backwards


def pair(normalize_first):
    ours = translator(layers, normalize_first)
    theirs = translator(keras_hub.layers, normalize_first)
    theirs.set_weights(fill_weights(ours).get_weights())
    return ours, theirs


# KerasHub's blocks hand tensors with a mask to dense layers that take none.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Layer .* does not support masking:UserWarning"
)


@pytest.mark.parametrize("normalize_first", [False, True])
def test_equal_logits(normalize_first):
    inputs, _ = batch(1000)
    real = inputs["target"] != 0
    assert (inputs["source"] == 0).any() and not real.all()
    ours, theirs = (
        keras.ops.convert_to_numpy(model(inputs)) for model in pair(normalize_first)
    )
    np.testing.assert_allclose(ours[real], theirs[real], rtol=1e-5, atol=1e-5)


def test_equal_losses_over_fifty_steps():
    losses = [losses_of(model) for model in pair(normalize_first=False)]
    assert np.mean(losses[0][-10:]) < np.mean(losses[0][:10]) - 0.2
    np.testing.assert_allclose(*losses, rtol=1e-3, atol=1e-3)


def losses_of(model):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)
    model.compile(keras.optimizers.Adam(1e-2), loss, jit_compile=False)
    # Made here, its variables need no second trace of the training step.
    model.optimizer.build(model.trainable_variables)
    return [float(model.train_on_batch(*batch(step))) for step in range(50)]
