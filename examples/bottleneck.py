"""One vector for a sentence, or a look back at all of it: quality by length.

    python examples/bottleneck.py
    python examples/bottleneck.py --task translation --pairs FILE --valid FILE

A plain recurrent encoder-decoder, two with attention and a Transformer, of as many
parameters, are trained alike and for as many minutes (`--minutes`, each): to reverse
sequences of 5 to 60 symbols, and to translate, the built-in Korean to English corpus
or sentence pairs of your own. Prints and draws quality by length of the source.
"""

import argparse
import collections
import functools
import math
import os
import pathlib
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "true")

import keras
import numpy as np
from korean_english import pairs as korean_english_pairs
from translation import show_attention

from keras_attn import decoding, inspection, layers, models, serving, text, training

# Name in the plot -> the `attention` of a recurrent model.
RECURRENT = {
    "recurrent": None,
    "recurrent, additive attention": "additive",
    "recurrent, general attention": "general",
}
TRANSFORMER = "Transformer"

START, END, FIRST, SYMBOLS = 1, 2, 3, 20
LENGTHS = range(5, 61)


class Minutes(keras.callbacks.Callback):
    """Ends training after so long, the learning rate rising, then falling to zero.

    By the clock, so that a slow model goes through the same rates as a fast one; or by
    `most_steps`, where they are given, so that each learns from as many batches.
    """

    def __init__(self, minutes, rate, most_steps=None):
        super().__init__()
        self.seconds, self.rate, self.most_steps = minutes * 60, rate, most_steps
        self.steps = 0

    def on_train_begin(self, logs=None):
        self.began = None

    def on_train_batch_begin(self, batch, logs=None):
        if self.began is None or self.steps < 3:  # tracing is not training
            self.began = time.monotonic()
        done = (time.monotonic() - self.began) / self.seconds
        if self.most_steps is not None:
            done = self.steps / self.most_steps
        done = min(done, 1.0)
        rise = min(done / 0.1, 1.0)
        fall = 0.5 * (1 + math.cos(math.pi * done))
        self.model.optimizer.learning_rate = self.rate * rise * fall
        self.steps += 1
        self.model.stop_training = done >= 1.0


def build(name, source_size, target_size, width, dropout, scale=True):
    """A model by its name; `width` is the Transformer's, others get what fits.

    Without `scale` Luong's general score is as he wrote it. It learns to translate far
    slower; but reversing, it looks at the symbol itself, where the scaled one settles
    as well on its neighbour, whose encoder state knows the symbol too.
    """
    transformer = models.transformer_translator(
        source_size,
        target_size,
        num_layers=2,
        hidden_dim=width,
        intermediate_dim=2 * width,
        num_heads=4,
        dropout=dropout,
        normalize_first=True,
    )
    if name == TRANSFORMER:
        return transformer

    def recurrent(hidden_dim):
        attention = RECURRENT[name]
        if attention == "general" and not scale:
            attention = layers.DotProductAttention("general", name="attention")
        return models.recurrent_translator(
            source_size,
            target_size,
            attention=attention,
            hidden_dim=hidden_dim,
            dropout=dropout,
        )

    wanted, hidden_dim = transformer.count_params(), width
    while recurrent(hidden_dim + 8).count_params() <= wanted:
        hidden_dim += 8
    return recurrent(hidden_dim)


def fit(model, data, minutes, rate, **kwargs):
    clock = Minutes(minutes, rate)
    model.compile(
        optimizer=keras.optimizers.Adam(beta_2=0.98, clipnorm=1.0),
        loss=training.MaskedCrossentropy(),
        metrics=[training.MaskedAccuracy()],
        jit_compile=False,
    )
    # `shuffle=False`: the data come shuffled.
    model.fit(
        data, epochs=100_000, callbacks=[clock], shuffle=False, verbose=0, **kwargs
    )
    return clock.steps


# Reversal


def reversal_batch(rng, length, rows):
    """Inputs and labels; each batch is of one length, so that nothing is padded."""
    symbols = rng.integers(FIRST, FIRST + SYMBOLS, (rows, length), dtype="int32")
    back = symbols[:, ::-1]
    target = np.pad(back, [(0, 0), (1, 0)], constant_values=START)
    labels = np.pad(back, [(0, 0), (0, 1)], constant_values=END)
    return {"source": symbols, "target": target}, labels


def reversal_data(rng):
    while True:
        yield reversal_batch(rng, int(rng.choice(LENGTHS)), 64)


def reversed_right(model, rng, length, rows=64):
    """Share of the symbols that generation puts where they belong."""
    inputs, labels = reversal_batch(rng, length, rows)
    found = decoding.generate(
        model,
        {"source": inputs["source"]},
        start_token_id=START,
        end_token_id=END,
        max_new_tokens=max(LENGTHS) + 1,
        jit_compile=False,
    )
    found = keras.ops.convert_to_numpy(found["token_ids"])[:, 0, : length + 1]
    return 100 * float((found == labels)[:, :-1].mean())


def anti_diagonal(model, rng, length=30):
    """Share of the rows of the attention map whose maximum is on the anti-diagonal."""
    inputs, _ = reversal_batch(rng, length, 16)
    maps = inspection.attention_maps(model, inputs)
    (weights,) = maps.values()
    largest = weights[:, 0, :length].argmax(axis=-1)
    return 100 * float((largest == np.arange(length)[::-1]).mean())


def reversal(name, arguments):
    rng = np.random.default_rng(arguments.seed)
    size = FIRST + SYMBOLS
    model = build(name, size, size, arguments.width, dropout=0.0, scale=False)
    rate = arguments.rate or 2e-3
    steps = fit(model, reversal_data(rng), arguments.minutes, rate, steps_per_epoch=100)
    rng = np.random.default_rng(arguments.seed + 1)
    quality = {
        length: reversed_right(model, rng, length)
        for length in (5, 10, 20, 30, 40, 50, 60)
    }
    notes = ""
    if RECURRENT.get(name):
        share = anti_diagonal(model, rng)
        notes = f"attention on the anti-diagonal in {share:.1f} % of the rows"
    return model, steps, quality, notes


# Translation


@functools.cache
def corpus(train_file, valid_file, vocabulary, seed):
    """Pairs for validation, tokenizers, and the dataset of what is trained on."""
    if train_file:
        train, valid = (
            text.read_pairs(path, on_bad="skip") for path in (train_file, valid_file)
        )
    else:
        train, valid = korean_english_pairs(num_train=8000)
    valid = valid[:: max(1, len(valid) // 500)]
    tokenizers = [
        text.SentencePieceTokenizer.train(sentences, vocabulary)
        for sentences in zip(*train)
    ]
    data = text.translation_dataset(
        train,
        *tokenizers,
        max_source_length=64,
        max_target_length=64,
        batch_tokens=1024 if train_file else 512,
        seed=seed,
    )
    return valid, tokenizers, data


def translation(name, arguments):
    valid, tokenizers, data = corpus(
        arguments.pairs, arguments.valid, arguments.vocabulary, arguments.seed
    )
    sizes = [tokenizer.vocabulary_size for tokenizer in tokenizers]
    dropout = 0.1 if arguments.pairs else 0.0
    model = build(name, *sizes, arguments.width, dropout)
    steps = fit(model, data, arguments.minutes, arguments.rate or 4e-3)
    translate = serving.Translator(
        model, *tokenizers, max_new_tokens=64, max_source_length=64
    )
    bleu = training.BleuCallback(translate, *zip(*valid), batch_size=100)
    score = bleu.evaluate()
    if name != "recurrent":
        sources = sorted((source for source, _ in valid), key=len)
        path = pathlib.Path(arguments.output, f"{name.replace(', ', '-')}.png")
        show_attention(model, translate, sources[len(sources) // 2], path)
    return model, steps, by_length(tokenizers[0], valid, bleu.translations), score


def by_length(tokenizer, valid, translations):
    """BLEU of the sentences of each length of the source, in buckets of a quarter."""
    import sacrebleu

    lengths = [len(ids) for ids in tokenizer.tokenize([s for s, _ in valid])]
    edges = np.quantile(lengths, [0.25, 0.5, 0.75])
    buckets = collections.defaultdict(list)
    for length, pair, found in zip(lengths, valid, translations):
        buckets[int(np.searchsorted(edges, length))].append((length, pair[1], found))
    quality = {}
    for _, rows in sorted(buckets.items()):
        found, references = [f for *_, f in rows], [r for _, r, _ in rows]
        middle = round(float(np.mean([length for length, *_ in rows])), 1)
        quality[middle] = sacrebleu.corpus_bleu(found, [references]).score
    return quality


def report(task, results):
    """A markdown table: a row a model, a column a length."""
    lengths = next(iter(results.values()))["quality"]
    print(f"\n{task}\n")
    columns = ["model", "parameters", "steps", *(f"{n:g}" for n in lengths), ""]
    print(f"| {' | '.join(columns)} |")
    print("|" + "---|" * len(columns))
    for name, result in results.items():
        figures = [f"{value:.1f}" for value in result["quality"].values()]
        row = [name, f"{result['parameters']:,}", str(result["steps"]), *figures]
        print(f"| {' | '.join(row)} | {result['notes']} |")


def plot(found, path):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5 * len(found), 3.6), layout="constrained")
    panels = figure.subplots(1, len(found), squeeze=False)[0]
    for axes, (task, results) in zip(panels, found.items()):
        for name, result in results.items():
            quality = result["quality"]
            axes.plot(quality.keys(), quality.values(), marker="o", label=name)
        axes.set(title=task, xlabel="source length, tokens", ylim=(0, 102))
        is_reversal = task == "reversal"
        axes.set_ylabel("symbols right, %" if is_reversal else "BLEU")
    panels[0].legend(fontsize=8)
    figure.savefig(path, dpi=120)
    print(f"\nPlot: {path}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    tasks = {"reversal": reversal, "translation": translation}
    names = [*RECURRENT, TRANSFORMER]
    parser.add_argument("--task", nargs="+", choices=tasks, default=[*tasks])
    parser.add_argument("--model", nargs="+", choices=names, default=names)
    parser.add_argument("--minutes", type=float, default=4.0, help="of each training")
    parser.add_argument("--pairs", metavar="FILE", help="training pairs")
    parser.add_argument("--valid", metavar="FILE", help="held-out pairs")
    parser.add_argument("--vocabulary", type=int, help="pieces of each language")
    parser.add_argument("--width", type=int, default=128, help="of the Transformer")
    parser.add_argument("--rate", type=float, help="the highest of the learning rate")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", default="runs/bottleneck", help="folder")
    arguments = parser.parse_args()
    if bool(arguments.pairs) != bool(arguments.valid):
        parser.error("--pairs and --valid come together")
    if arguments.vocabulary is None:
        arguments.vocabulary = 3000 if arguments.pairs else 1200
    folder = pathlib.Path(arguments.output)
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for task in arguments.task:
        found[task] = {}
        for name in arguments.model:
            keras.utils.set_random_seed(arguments.seed)
            print(f"{task}: {name} ...", flush=True)
            model, steps, quality, notes = tasks[task](name, arguments)
            if not isinstance(notes, str):
                notes = f"BLEU of all: {notes:.1f}"
            found[task][name] = {
                "parameters": model.count_params(),
                "steps": steps,
                "quality": quality,
                "notes": notes,
            }
        report(task, found[task])
    plot(found, folder / "bottleneck.png")


if __name__ == "__main__":
    main()
