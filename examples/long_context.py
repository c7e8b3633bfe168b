"""Train on short texts, read long ones: loss by position, for each kind of positions.

    python examples/long_context.py
    python examples/long_context.py --texts ~/books --minutes 10

Small models of bytes are trained alike on windows of 256, each with other positions,
and then read held-out text of 1024 and 4096 bytes. What a model has never seen is a
distance (or a position) above 255: the table and the plot show what it makes of that.
Beside them stand a window of 128, exact but near-sighted, and linear attention, whose
memory of the past does not grow. By default the texts are the Python files of the
standard library.
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
from bottleneck import Minutes
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
    # Buckets end where the training does.
    return layers.RelativePositionBias(
        HEADS, max_distance=TRAIN_LENGTH, bidirectional=False
    )


# Name -> from the length that is read, what is added to the embedding (or None), and an
# attention layer.
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

# Read with other positions than those of the training: name -> what was trained.
STRETCHED = {"rotary, NTK": ("rotary", "ntk"), "rotary, YaRN": ("rotary", "yarn")}


def build(kind, length, width, depth):
    """A model of bytes with the positions that `KINDS[kind]` gives."""
    if kind in STRETCHED:
        _, rope_type = STRETCHED[kind]

        def parts(n):
            position = rotary(rope_type, n)
            return None, layers.MultiHeadSelfAttention(HEADS, position=position)
    else:
        parts = KINDS[kind]
    embedding = layers.TokenEmbedding(BYTES, width, scale=True, padding_id=None)
    inputs = keras.Input((None,), dtype="int32", name="target")
    x = embedding(inputs)
    position, _ = parts(length)
    if position is not None:
        x = position(x)
    for _ in range(depth):
        x = layers.TransformerDecoder(
            3 * width,
            HEADS,
            activation="silu",
            normalize_first=True,
            attention=parts(length)[1],
            normalization="rms_norm",
            use_bias=False,
            gated=True,
        )(x)
    x = keras.layers.RMSNormalization()(x)
    return keras.Model(inputs, embedding(x, reverse=True))


def longer(kind, trained, length, width, depth):
    """The trained model, for texts of another length."""
    model = build(kind, length, width, depth)
    positions = [
        layer for layer in trained.layers if isinstance(layer, layers.PositionEmbedding)
    ]
    stretched = [layer.resize(length, "interpolate").weights for layer in positions]
    stretched = iter([weight for weights in stretched for weight in weights])
    for new, old in zip(model.weights, trained.weights):
        new.assign(old if new.shape == old.shape else next(stretched))
    return model


def windows(texts, length, count, rng):
    """`count` runs of `length + 1` bytes, each from one text."""
    texts = [text for text in texts if len(text) > length]
    if not texts:
        raise SystemExit(f"There is no held-out text of more than {length} bytes.")
    weights = np.array([len(text) - length for text in texts], "float64")
    found = []
    for which in rng.choice(len(texts), size=count, p=weights / weights.sum()):
        start = rng.integers(0, len(texts[which]) - length)
        found.append(np.frombuffer(texts[which], "uint8")[start : start + length + 1])
    return np.stack(found).astype("int32")


def train(model, texts, arguments, rng):
    def batches():
        while True:
            ids = windows(texts, TRAIN_LENGTH, arguments.batch, rng)
            yield ids[:, :-1], ids[:, 1:]

    clock = Minutes(arguments.minutes, arguments.rate, arguments.steps)
    model.compile(
        keras.optimizers.Adam(beta_2=0.98, clipnorm=1.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=False,
    )
    model.fit(
        batches(), steps_per_epoch=100, epochs=100_000, callbacks=[clock], verbose=0
    )
    return clock.steps


def bits_by_position(model, ids):
    """Bits that each byte takes, by its position, the mean over the windows."""
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
    parser.add_argument("--texts", nargs="+", metavar="PATH", help="files, folders")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--minutes", type=float, default=3.0, help="of each training")
    parser.add_argument("--steps", type=int, help="of each, in place of minutes")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--batch", type=int, default=8, help="windows of a batch")
    parser.add_argument("--rate", type=float, default=2e-3, help="the highest")
    parser.add_argument("--windows", type=int, default=32, help="to test with")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", default="runs/long_context", help="folder")
    arguments = parser.parse_args()
    paths = arguments.texts or text_files.standard_library()
    paths = text_files.files_of(paths)
    trained_on, held_out = text_files.read_split(paths, 8_000_000, 0.1, arguments.seed)
    trained_on, held_out = ([t.encode() for t in x] for x in (trained_on, held_out))
    sizes = arguments.width, arguments.layers
    found = {}
    for kind in arguments.kinds:
        keras.utils.set_random_seed(arguments.seed)
        rng = np.random.default_rng(arguments.seed)
        model = build(kind, TRAIN_LENGTH, *sizes)
        began = time.monotonic()
        steps = train(model, trained_on, arguments, rng)
        print(f"{kind}: {steps} steps, {time.monotonic() - began:.0f} s", flush=True)
        readers = [kind, *(n for n, (of, _) in STRETCHED.items() if of == kind)]
        for reader in readers:
            for length in LENGTHS:
                rng = np.random.default_rng(arguments.seed + 1)
                ids = windows(held_out, max(LENGTHS), arguments.windows, rng)
                longest = longer(reader, model, length, *sizes)
                bits = bits_by_position(longest, ids[:, : length + 1])
                found[reader, length] = bits
    report(found)
    folder = pathlib.Path(arguments.output)
    folder.mkdir(parents=True, exist_ok=True)
    plot(found, folder / "long-context.png")


def report(found):
    """A markdown table: bits a byte, by position, for each length that was read."""
    spans = [f"{a} to {b}" for a, b in itertools.pairwise(EDGES)]
    print(f"\n| positions | length | {' | '.join(spans)} |")
    print("|" + "---|" * (len(spans) + 2))
    for (name, length), bits in found.items():
        cells = [
            f"{bits[a:b].mean():.2f}" if a < length else ""
            for a, b in itertools.pairwise(EDGES)
        ]
        print(f"| {name} | {length} | {' | '.join(cells)} |")


def plot(found, path):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for (name, length), bits in found.items():
        if length != max(LENGTHS):
            continue
        edges = np.unique(np.geomspace(16, length, 25).astype(int))
        middle = np.sqrt(edges[:-1] * edges[1:])
        means = [bits[a:b].mean() for a, b in itertools.pairwise(edges)]
        axes.plot(middle, means, label=name, marker=".")
    axes.axvline(TRAIN_LENGTH, color="grey", linestyle=":", label="trained so far")
    axes.set(xscale="log", xlabel="position", ylabel="bits a byte", ylim=(1, 8))
    axes.legend(fontsize=7)
    figure.savefig(path, dpi=120)
    print(f"\nPlot: {path}")


if __name__ == "__main__":
    main()
