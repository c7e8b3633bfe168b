"""Recall of a symbol over a distance: recurrent layers and self-attention.

    python examples/long_range.py

Each model reads a random sequence of symbols and predicts the first one, which is 4 to
256 positions before the last. A recurrent layer carries the symbol through every step
between. Self-attention relates the two positions directly, but it needs position
embeddings: without them it is permutation equivariant, so the order of the symbols is
unknown. The example also measures this equivariance.

Prints and plots a table of accuracies. Chance is one in eight.
"""

import argparse
import os
import pathlib
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "true")

import keras
import numpy as np

from keras_attn import layers

SYMBOLS, WIDTH, BATCH = 8, 32, 32


def embedded_inputs():
    """Return an input of token ids and its embedding."""
    inputs = keras.Input((None,), dtype="int32")
    embedding = layers.TokenEmbedding(SYMBOLS, WIDTH, scale=True, padding_id=None)
    return inputs, embedding(inputs)


def classifier(inputs, x):
    """Return a model that predicts a symbol from the output at the last position."""
    return keras.Model(inputs, keras.layers.Dense(SYMBOLS)(x[:, -1]))


def recurrent(cell):
    def build():
        inputs, x = embedded_inputs()
        x, _ = layers.RecurrentEncoder(WIDTH, cell=cell, bidirectional=False)(x)
        return classifier(inputs, x)

    return build


def self_attention(with_positions):
    def build():
        inputs, x = embedded_inputs()
        if with_positions:
            x = layers.SinusoidalPositionEmbedding()(x)
        for _ in range(2):
            x = layers.TransformerEncoder(2 * WIDTH, num_heads=4)(x)
        return classifier(inputs, x)

    return build


MODELS = {
    "GRU": recurrent("gru"),
    "LSTM": recurrent("lstm"),
    "self-attention with positions": self_attention(True),
    "self-attention without positions": self_attention(False),
}


def data(rng, distance):
    while True:
        symbols = rng.integers(0, SYMBOLS, (BATCH, distance + 1), dtype="int32")
        yield symbols, symbols[:, 0]


class TimeLimit(keras.callbacks.Callback):
    """Early stopping after a time limit or an epoch with an accuracy of 1."""

    def __init__(self, seconds):
        super().__init__()
        self.seconds, self.steps, self.start = seconds, 0, None

    def on_train_batch_end(self, batch, logs=None):
        self.steps += 1
        if self.start is None:  # the first step, with tracing, does not count
            self.start = time.monotonic()
        if time.monotonic() - self.start > self.seconds:
            self.model.stop_training = True

    def on_epoch_end(self, epoch, logs=None):
        if logs["accuracy"] == 1.0:
            self.model.stop_training = True


def recall(build, distance, arguments):
    """Train a model; return its accuracy in percent and the number of steps."""
    keras.utils.set_random_seed(arguments.seed)
    rng = np.random.default_rng(arguments.seed)
    model = build()
    model.compile(
        optimizer=keras.optimizers.Adam(1e-3, clipnorm=1.0),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        jit_compile=False,
    )
    time_limit = TimeLimit(arguments.seconds)
    model.fit(
        data(rng, distance),
        epochs=100_000,
        steps_per_epoch=100,
        callbacks=[time_limit],
        shuffle=False,
        verbose=0,
    )
    _, accuracy = model.evaluate(data(rng, distance), steps=20, verbose=0)
    return 100 * accuracy, time_limit.steps


def equivariance_error(with_positions):
    """Return the largest error of permutation equivariance of a block."""
    inputs, x = embedded_inputs()
    if with_positions:
        x = layers.SinusoidalPositionEmbedding()(x)
    model = keras.Model(inputs, layers.TransformerEncoder(2 * WIDTH, num_heads=4)(x))
    rng = np.random.default_rng(0)
    symbols, order = rng.integers(0, SYMBOLS, (4, 64)), rng.permutation(64)
    outputs = keras.ops.convert_to_numpy(model(symbols))
    permuted = keras.ops.convert_to_numpy(model(symbols[:, order]))
    return float(np.abs(permuted - outputs[:, order]).max())


def plot(results, path):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.subplots()
    for name, accuracies in results.items():
        axes.plot(accuracies.keys(), accuracies.values(), marker="o", label=name)
    axes.axhline(100 / SYMBOLS, color="grey", linestyle=":", label="chance")
    axes.set_xscale("log", base=2)
    axes.set(xlabel="distance, positions", ylabel="recall accuracy, %", ylim=(0, 102))
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=120)
    print(f"\nPlot: {path}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--distances", nargs="+", type=int, default=[4, 8, 16, 32, 64, 128, 256]
    )
    parser.add_argument("--model", nargs="+", choices=MODELS, default=[*MODELS])
    parser.add_argument("--seconds", type=float, default=30, help="per model")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", default="runs/long_range", help="folder")
    arguments = parser.parse_args()
    if min(arguments.distances) < 1:
        parser.error("--distances must be positive")
    folder = pathlib.Path(arguments.output)
    folder.mkdir(parents=True, exist_ok=True)
    print("Largest difference between permuted outputs and outputs of permuted inputs:")
    for with_positions in (False, True):
        error = equivariance_error(with_positions)
        print(f"  with{'' if with_positions else 'out'} positions {error:.1e}")
    print("\nRecall accuracy, % (training steps)\n")
    columns = " | ".join(map(str, arguments.distances))
    print(f"| distance | {columns} |")
    print("|" + "---|" * (len(arguments.distances) + 1))
    results = {name: {} for name in arguments.model}
    for name in arguments.model:
        print(f"| {name} |", end="", flush=True)
        for distance in arguments.distances:
            accuracy, steps = recall(MODELS[name], distance, arguments)
            results[name][distance] = accuracy
            print(f" {accuracy:.1f} ({steps}) |", end="", flush=True)
        print()
    plot(results, folder / "long_range.png")


if __name__ == "__main__":
    main()
