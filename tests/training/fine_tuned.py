"""A small classifier to fine-tune, and what changed in it."""

import keras
import numpy as np
from tensors import array, fill_weights

from keras_attn import models

VOCABULARY, CLASSES, BLOCKS = 11, 3, 2


def classifier(seed=0):
    model = models.text_classifier(
        VOCABULARY,
        CLASSES,
        num_layers=BLOCKS,
        hidden_dim=8,
        intermediate_dim=12,
        num_heads=2,
        max_length=6,
        dropout=0.0,
    )
    return fill_weights(model, seed)


def data(rows=16, seed=0):
    rng = np.random.default_rng(seed)
    ids = rng.integers(1, VOCABULARY, (rows, 6)).astype("int32")
    return ids, (ids[:, 0] % CLASSES).astype("int32")


def compiled(model, optimizer=None, jit_compile=False):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer or keras.optimizers.SGD(0.1), loss, jit_compile=jit_compile)
    return model


def fitted(model, epochs=2):
    """The losses of the epochs."""
    history = model.fit(*data(), batch_size=8, epochs=epochs, shuffle=False, verbose=0)
    return history.history["loss"]


def values(model):
    return {weight.path: array(weight) for weight in model.weights}


def changed(model, before):
    """Paths of the weights that are no longer what they were, in any bit."""
    return {
        path
        for path, value in values(model).items()
        if path not in before or not np.array_equal(value, before[path])
    }


def saved_and_loaded(model, folder):
    model.save(folder / "model.keras")
    return keras.models.load_model(folder / "model.keras")
