"""Length extrapolation: loss by position beyond the training length.

    python examples/long_context.py
    python examples/long_context.py --texts ~/books --minutes 10

Small byte-level models with different position encodings are trained on windows of 256
bytes and evaluated on held-out text of 1024 and 4096 bytes. Positions and distances
above 255 do not occur in training; the table and the plot show the loss there. Also
compared are attention with a sliding window of 128 and linear attention, whose state
does not grow with the length. The default texts are the Python files of the standard
library.
"""

import argparse
import os
import pathlib
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "true")

import itertools

import keras
import numpy as np
import text_files
from bottleneck import TimedSchedule
from keras import ops

from keras_attn import layers

BYTES, HEADS = 256, 4
TRAIN_LENGTH, LENGTHS = 256, (1024, 4096)
EDGES = (0, 64, 128, 256, 512, 1024, 2048, 4096)


def rotary(rope_type=None, length=TRAIN_LENGTH):
    scaling = None
    if rope_type and length > TRAIN_LENGTH:
        scaling = {"rope_type": rope_type, "factor": length / TRAIN_LENGTH}
        if rope_type == "yarn":
            scaling["original_max_position_embeddings"] = TRAIN_LENGTH
    return layers.RotaryPositionEmbedding(scaling=scaling)


def relative():
    # The last bucket begins at the training length.
    return layers.RelativePositionBias(max_distance=TRAIN_LENGTH, bidirectional=False)


# Name -> a function of the sequence length that returns a layer of position embeddings
# (or None) and an attention layer.
KINDS = {
    "none": lambda n: (None, layers.MultiHeadSelfAttention(HEADS)),
    "sinusoidal": lambda n: (
        layers.SinusoidalPositionEmbedding(),
        layers.MultiHeadSelfAttention(HEADS),
    ),
    "learned, interpolated": lambda n: (
        layers.PositionEmbedding(n),
        layers.MultiHeadSelfAttention(HEADS),
    ),
    "rotary": lambda n: (None, layers.MultiHeadSelfAttention(HEADS, position=rotary())),
    "ALiBi": lambda n: (
        None,
        layers.MultiHeadSelfAttention(HEADS, position=layers.AlibiPositionBias()),
    ),
    "relative (T5)": lambda n: (
        None,
        layers.MultiHeadSelfAttention(HEADS, position=relative()),
    ),
    "rotary, window of 128": lambda n: (
        None,
        layers.MultiHeadSelfAttention(HEADS, position=rotary(), sliding_window=128),
    ),
    "linear attention, sinusoidal": lambda n: (
        layers.SinusoidalPositionEmbedding(),
        layers.LinearSelfAttention(HEADS),
    ),
}

# Evaluated with scaled rotary positions: name -> name of the trained model, scaling.
SCALED = {"rotary, NTK": ("rotary", "ntk"), "rotary, YaRN": ("rotary", "yarn")}


def build(kind, length, width, depth):
    """Return a byte-level model with the positions of `KINDS[kind]`."""
    if kind in SCALED:
        _, rope_type = SCALED[kind]

        def parts(n):
            position = rotary(rope_type, n)
            return None, layers.MultiHeadSelfAttention(HEADS, position=position)
    else:
        parts = KINDS[kind]
    embedding = layers.TokenEmbedding(BYTES, width, scale=True, padding_id=None)
    inputs = keras.Input((None,), dtype="int32", name="token_ids")
    x = embedding(inputs)
    position, _ = parts(length)
    if position is not None:
        x = position(x)
    for _ in range(depth):
        x = layers.TransformerDecoder(
            3 * width,
            HEADS,
            normalize_first=True,
            attention=parts(length)[1],
            feed_forward=layers.FeedForward(
                3 * width, activation="silu", use_bias=False, gated=True
            ),
            normalization="rms_norm",
            use_bias=False,
        )(x)
    x = keras.layers.RMSNormalization()(x)
    return keras.Model(inputs, embedding(x, reverse=True))


def extend(kind, trained, length, width, depth):
    """Return the trained model for sequences of `length` bytes."""
    model = build(kind, length, width, depth)
    positions = [
        layer for layer in trained.layers if isinstance(layer, layers.PositionEmbedding)
    ]
    resized = [layer.resize(length, "interpolate").weights for layer in positions]
    resized = iter([weight for weights in resized for weight in weights])
    for new, old in zip(model.weights, trained.weights):
        new.assign(old if new.shape == old.shape else next(resized))
    return model


def windows(texts, length, count, rng):
    """Return `count` random windows of `length + 1` bytes, int32."""
    texts = [text for text in texts if len(text) > length]
    if not texts:
        raise SystemExit(f"Expected a text of more than {length} bytes. Received: none")
    weights = np.array([len(text) - length for text in texts], "float64")
    rows = []
    for i in rng.choice(len(texts), size=count, p=weights / weights.sum()):
        start = rng.integers(0, len(texts[i]) - length)
        rows.append(np.frombuffer(texts[i], "uint8")[start : start + length + 1])
    return np.stack(rows).astype("int32")


def train(model, texts, arguments, rng):
    """Train for the given time or steps; return the number of steps."""

    def batches():
        while True:
            ids = windows(texts, TRAIN_LENGTH, arguments.batch, rng)
            yield ids[:, :-1], ids[:, 1:]

    schedule = TimedSchedule(arguments.minutes, arguments.rate, arguments.steps)
    model.compile(
        keras.optimizers.Adam(beta_2=0.98, clipnorm=1.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=False,
    )
    model.fit(
        batches(), steps_per_epoch=100, epochs=100_000, callbacks=[schedule], verbose=0
    )
    return schedule.steps


def bits_by_position(model, ids):
    """Return the loss in bits at each position, averaged over the windows."""
    total = np.zeros(ids.shape[1] - 1)
    for row in ids:
        logits = model(row[None, :-1], training=False)
        bits = keras.losses.sparse_categorical_crossentropy(
            row[None, 1:], logits, from_logits=True
        )
        total += ops.convert_to_numpy(bits)[0] / np.log(2)
    return total / len(ids)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--texts", nargs="+", metavar="PATH", help="files or folders")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--minutes", type=float, default=3.0, help="per model")
    parser.add_argument("--steps", type=int, help="per model, instead of --minutes")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--batch", type=int, default=8, help="windows per batch")
    parser.add_argument("--rate", type=float, default=2e-3, help="peak rate")
    parser.add_argument("--windows", type=int, default=32, help="for evaluation")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", default="runs/long_context", help="folder")
    arguments = parser.parse_args()
    paths = arguments.texts or text_files.standard_library()
    paths = text_files.find_files(paths)
    split = text_files.read_split(paths, 8_000_000, 0.1, arguments.seed)
    train_texts, valid_texts = ([text.encode() for text in texts] for texts in split)
    sizes = arguments.width, arguments.layers
    results = {}
    for kind in arguments.kinds:
        keras.utils.set_random_seed(arguments.seed)
        rng = np.random.default_rng(arguments.seed)
        model = build(kind, TRAIN_LENGTH, *sizes)
        start = time.monotonic()
        steps = train(model, train_texts, arguments, rng)
        print(f"{kind}: {steps} steps, {time.monotonic() - start:.0f} s", flush=True)
        scaled = [name for name, (base, _) in SCALED.items() if base == kind]
        for name in (kind, *scaled):
            for length in LENGTHS:
                rng = np.random.default_rng(arguments.seed + 1)
                ids = windows(valid_texts, max(LENGTHS), arguments.windows, rng)
                extended = extend(name, model, length, *sizes)
                bits = bits_by_position(extended, ids[:, : length + 1])
                results[name, length] = bits
    report(results)
    folder = pathlib.Path(arguments.output)
    folder.mkdir(parents=True, exist_ok=True)
    plot(results, folder / "long-context.png")


def report(results):
    """Print a Markdown table: bits per byte by position, for each evaluated length."""
    spans = [f"{a} to {b}" for a, b in itertools.pairwise(EDGES)]
    print(f"\n| positions | length | {' | '.join(spans)} |")
    print("|" + "---|" * (len(spans) + 2))
    for (name, length), bits in results.items():
        cells = [
            f"{bits[a:b].mean():.2f}" if a < length else ""
            for a, b in itertools.pairwise(EDGES)
        ]
        print(f"| {name} | {length} | {' | '.join(cells)} |")


def plot(results, path):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for (name, length), bits in results.items():
        if length != max(LENGTHS):
            continue
        edges = np.unique(np.geomspace(16, length, 25).astype(int))
        centers = np.sqrt(edges[:-1] * edges[1:])
        means = [bits[a:b].mean() for a, b in itertools.pairwise(edges)]
        axes.plot(centers, means, label=name, marker=".")
    axes.axvline(TRAIN_LENGTH, color="grey", linestyle=":", label="training length")
    axes.set(xscale="log", xlabel="position", ylabel="bits per byte", ylim=(1, 8))
    axes.legend(fontsize=7)
    figure.savefig(path, dpi=120)
    print(f"\nPlot: {path}")


if __name__ == "__main__":
    main()
