"""Recalling a symbol across a distance: recurrence beside self-attention.

    python examples/long_range.py

Each model reads symbols drawn at random and then has to name the first of them, 4 to
256 positions back. A recurrent network carries it through every step between; in
self-attention the two positions meet at once, if it is told positions: without them
self-attention is an operation on sets, and which symbol came first is not to be known.
That is shown too: its outputs for permuted inputs are its outputs, permuted.

Prints a table of accuracies (chance is one in eight) and draws it.
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

SYMBOLS, WIDTH, ROWS = 8, 32, 32


def embedded():
    inputs = keras.Input((None,), dtype="int32")
    embedding = layers.TokenEmbedding(SYMBOLS, WIDTH, scale=True, padding_id=None)
    return inputs, embedding(inputs)


def classifier(inputs, x):
    """The symbol that a model names, from what stands at the last position."""
    return keras.Model(inputs, keras.layers.Dense(SYMBOLS)(x[:, -1]))


def recurrent(cell):
    def build():
        inputs, x = embedded()
        x, _ = layers.RecurrentEncoder(WIDTH, cell=cell, bidirectional=False)(x)
        return classifier(inputs, x)

    return build


def self_attention(with_positions):
    def build():
        inputs, x = embedded()
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
        symbols = rng.integers(0, SYMBOLS, (ROWS, distance + 1), dtype="int32")
        yield symbols, symbols[:, 0]


class Seconds(keras.callbacks.Callback):
    """Ends training after so long, or after a hundred steps without a mistake."""

    def __init__(self, seconds):
        super().__init__()
        self.seconds, self.steps, self.began = seconds, 0, None

    def on_train_batch_end(self, batch, logs=None):
        self.steps += 1
        if self.began is None:  # the first step is tracing
            self.began = time.monotonic()
        if time.monotonic() - self.began > self.seconds:
            self.model.stop_training = True

    def on_epoch_end(self, epoch, logs=None):
        if logs["accuracy"] == 1.0:
            self.model.stop_training = True


def recalled(build, distance, arguments):
    """Accuracy in percent on new sequences, and how many steps were trained."""
    keras.utils.set_random_seed(arguments.seed)
    rng = np.random.default_rng(arguments.seed)
    model = build()
    model.compile(
        optimizer=keras.optimizers.Adam(1e-3, clipnorm=1.0),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        jit_compile=False,
    )
    clock = Seconds(arguments.seconds)
    model.fit(
        data(rng, distance),
        epochs=100_000,
        steps_per_epoch=100,
        callbacks=[clock],
        shuffle=False,
        verbose=0,
    )
    _, accuracy = model.evaluate(data(rng, distance), steps=20, verbose=0)
    return 100 * accuracy, clock.steps


def equivariance(with_positions):
    """How far outputs for permuted inputs are from the permuted outputs, at most."""
    inputs, x = embedded()
    if with_positions:
        x = layers.SinusoidalPositionEmbedding()(x)
    model = keras.Model(inputs, layers.TransformerEncoder(2 * WIDTH, num_heads=4)(x))
    rng = np.random.default_rng(0)
    symbols, order = rng.integers(0, SYMBOLS, (4, 64)), rng.permutation(64)
    outputs = keras.ops.convert_to_numpy(model(symbols))
    permuted = keras.ops.convert_to_numpy(model(symbols[:, order]))
    return float(np.abs(permuted - outputs[:, order]).max())


def plot(found, path):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.subplots()
    for name, accuracies in found.items():
        axes.plot(accuracies.keys(), accuracies.values(), marker="o", label=name)
    axes.axhline(100 / SYMBOLS, color="grey", linestyle=":", label="chance")
    axes.set_xscale("log", base=2)
    axes.set(xlabel="distance, positions", ylabel="recalled, %", ylim=(0, 102))
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
    parser.add_argument("--seconds", type=float, default=30, help="of each training")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", default="runs/long_range", help="folder")
    arguments = parser.parse_args()
    if min(arguments.distances) < 1:
        parser.error("distances are positive")
    folder = pathlib.Path(arguments.output)
    folder.mkdir(parents=True, exist_ok=True)
    print("A block's outputs for permuted inputs are the permuted outputs up to:")
    for with_positions in (False, True):
        distance = equivariance(with_positions)
        print(f"  with{'' if with_positions else 'out'} positions {distance:.1e}")
    print("\nRecalled, % (steps of training)\n")
    columns = " | ".join(map(str, arguments.distances))
    print(f"| distance | {columns} |")
    print("|" + "---|" * (len(arguments.distances) + 1))
    found = {name: {} for name in arguments.model}
    for name in arguments.model:
        print(f"| {name} |", end="", flush=True)
        for distance in arguments.distances:
            accuracy, steps = recalled(MODELS[name], distance, arguments)
            found[name][distance] = accuracy
            print(f" {accuracy:.1f} ({steps}) |", end="", flush=True)
        print()
    plot(found, folder / "long_range.png")


if __name__ == "__main__":
    main()
