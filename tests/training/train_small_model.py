"""Training of a small tagger with the schedule, loss and metric; prints the results.

The tests run this script in subprocesses, one per backend, and once on two replicas.
"""

import json
import sys
from typing import Any

import keras
import numpy as np

from keras_attn.training import (
    InverseSquareRootSchedule,
    MaskedAccuracy,
    MaskedCrossentropy,
)

B, T, V = 8, 5, 7


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    targets = rng.integers(1, V, (B, T))
    targets[:, 3:] = 0
    logits = rng.normal(size=(B, T, V)).astype("float32")
    return logits, targets.astype("int32")


def small_model(jit: bool, optimizer: Any = None) -> keras.Model:
    model = keras.Sequential([keras.Input((T, V)), keras.layers.Dense(V)])
    model.set_weights([np.eye(V, dtype="float32"), np.zeros(V, "float32")])
    if optimizer is None:
        optimizer = keras.optimizers.Adam(InverseSquareRootSchedule(16, 20))
    loss = MaskedCrossentropy(0.1)
    model.compile(optimizer, loss, metrics=[MaskedAccuracy()], jit_compile=jit)
    return model


def train(
    jit: bool, optimizer: Any = None, epochs: int = 4
) -> tuple[keras.Model, dict[str, list[float]]]:
    model = small_model(jit, optimizer)
    history = model.fit(*data(), batch_size=B, epochs=epochs, verbose=0).history
    return model, history


def main(mode: str) -> None:
    import contextlib

    scope = contextlib.nullcontext()
    if mode == "two replicas":
        import tensorflow as tf

        cpu = tf.config.list_physical_devices("CPU")[0]
        halves = [tf.config.LogicalDeviceConfiguration()] * 2
        tf.config.set_logical_device_configuration(cpu, halves)
        scope = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope()
    with scope:
        sgd = keras.optimizers.SGD(0.1) if mode == "two replicas" else None
        model, history = train(
            jit=mode == "jit", optimizer=sgd, epochs=4 if sgd else 20
        )
    empty = model.loss(np.zeros((B, T), "int32"), data()[0])
    result = {
        "backend": keras.backend.backend(),
        "empty": float(empty),
        "weights": keras.ops.convert_to_numpy(model.weights[0]).tolist(),
        **history,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1])
