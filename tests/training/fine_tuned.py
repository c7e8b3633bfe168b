"""A small classifier to fine-tune, and a comparison of its weights."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
from tensors import array, fill_weights

from keras_attn import models

VOCABULARY, CLASSES, BLOCKS = 11, 3, 2


def classifier(seed: int = 0) -> keras.Model:
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


def data(batch_size: int = 16, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    ids = rng.integers(1, VOCABULARY, (batch_size, 6)).astype("int32")
    return ids, (ids[:, 0] % CLASSES).astype("int32")


def compiled(
    model: keras.Model, optimizer: Any = None, jit_compile: bool = False
) -> keras.Model:
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer or keras.optimizers.SGD(0.1), loss, jit_compile=jit_compile)
    return model


def fitted(model: keras.Model, epochs: int = 2) -> list[float]:
    """Train a model and return the loss of each epoch."""
    history = model.fit(*data(), batch_size=8, epochs=epochs, shuffle=False, verbose=0)
    return history.history["loss"]


def values(model: keras.Model) -> dict[str, np.ndarray]:
    return {weight.path: array(weight) for weight in model.weights}


def changed(model: keras.Model, before: dict[str, np.ndarray]) -> set[str]:
    """Return the paths of the weights that are not bit-equal to `before`."""
    return {
        path
        for path, value in values(model).items()
        if path not in before or not np.array_equal(value, before[path])
    }


def saved_and_loaded(model: keras.Model, folder: Path) -> keras.Model:
    model.save(folder / "model.keras")
    return keras.models.load_model(folder / "model.keras")
