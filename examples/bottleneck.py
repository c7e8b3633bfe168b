"""Recurrent models with and without attention, and a Transformer: quality by length.

    python examples/bottleneck.py
    python examples/bottleneck.py --task translation --pairs FILE --valid FILE

A plain recurrent encoder-decoder, two with attention and a Transformer have the same
number of parameters and are trained for the same time (`--minutes` per model). The
tasks are reversing sequences of 5 to 60 symbols, and translation: of the built-in
Korean-English corpus or of your own sentence pairs. Prints and plots the quality by
source length.
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


class TimedSchedule(keras.callbacks.Callback):
    """Learning rate warmup and cosine decay over a given training time.

    The schedule follows the clock, so that slow and fast models see the same learning
    rates. With `max_steps` it follows the number of steps instead, so that all models
    are trained on the same number of batches. Training stops at the end.
    """

    def __init__(self, minutes, rate, max_steps=None):
        super().__init__()
        self.seconds, self.rate, self.max_steps = minutes * 60, rate, max_steps
        self.steps = 0

    def on_train_begin(self, logs=None):
        self.start = None

    def on_train_batch_begin(self, batch, logs=None):
        if self.start is None or self.steps < 3:  # tracing does not count
            self.start = time.monotonic()
        progress = (time.monotonic() - self.start) / self.seconds
        if self.max_steps is not None:
            progress = self.steps / self.max_steps
        progress = min(progress, 1.0)
        warmup = min(progress / 0.1, 1.0)
        decay = 0.5 * (1 + math.cos(math.pi * progress))
        self.model.optimizer.learning_rate = self.rate * warmup * decay
        self.steps += 1
        self.model.stop_training = progress >= 1.0


def build(name, source_size, target_size, width, dropout, scale=True):
    """Return a model by its name.

    `width` is that of the Transformer; the recurrent models have the largest width with
    which they have no more parameters than the Transformer.

    With `scale=False`, Luong's general score is not scaled, as in his paper. It learns
    to translate far more slowly. On reversal it attends to the symbol itself, whereas
    the scaled score may also attend to a neighbor, whose encoder state contains the
    symbol as well.
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

    max_parameters, hidden_dim = transformer.count_params(), width
    while recurrent(hidden_dim + 8).count_params() <= max_parameters:
        hidden_dim += 8
    return recurrent(hidden_dim)


def fit(model, data, minutes, rate, **kwargs):
    """Train for a given time; return the number of steps."""
    schedule = TimedSchedule(minutes, rate)
    model.compile(
        optimizer=keras.optimizers.Adam(beta_2=0.98, clipnorm=1.0),
        loss=training.MaskedCrossentropy(),
        metrics=[training.MaskedAccuracy()],
        jit_compile=False,
    )
    model.fit(
        data,
        epochs=100_000,
        callbacks=[schedule],
        shuffle=False,  # the data is shuffled already
        verbose=0,
        **kwargs,
    )
    return schedule.steps


# Reversal


def reversal_batch(rng, length, batch_size):
    """Return inputs and labels, all of the given length, so without padding."""
    shape = (batch_size, length)
    symbols = rng.integers(FIRST, FIRST + SYMBOLS, shape, dtype="int32")
    backward = symbols[:, ::-1]
    target = np.pad(backward, [(0, 0), (1, 0)], constant_values=START)
    labels = np.pad(backward, [(0, 0), (0, 1)], constant_values=END)
    return {"source": symbols, "target": target}, labels


def reversal_data(rng):
    while True:
        yield reversal_batch(rng, int(rng.choice(LENGTHS)), 64)


def reversal_accuracy(model, rng, length, batch_size=64):
    """Return the percentage of generated symbols that are correct."""
    inputs, labels = reversal_batch(rng, length, batch_size)
    outputs = decoding.generate(
        model,
        {"source": inputs["source"]},
        start_token_id=START,
        end_token_id=END,
        max_new_tokens=max(LENGTHS) + 1,
        jit_compile=False,
    )
    token_ids = keras.ops.convert_to_numpy(outputs["token_ids"])[:, 0, : length + 1]
    return 100 * float((token_ids == labels)[:, :-1].mean())


def anti_diagonal_share(model, rng, length=30):
    """Return the percentage of queries that attend most to the correct symbol.

    These are the rows of the attention map whose maximum is on the anti-diagonal.
    """
    inputs, _ = reversal_batch(rng, length, 16)
    maps = inspection.attention_maps(model, inputs)
    (weights,) = maps.values()
    largest = weights[:, 0, :length].argmax(axis=-1)
    return 100 * float((largest == np.arange(length)[::-1]).mean())


def reversal(name, arguments):
    """Train on reversal; return the model, its steps, its quality and a note."""
    rng = np.random.default_rng(arguments.seed)
    size = FIRST + SYMBOLS
    model = build(name, size, size, arguments.width, dropout=0.0, scale=False)
    rate = arguments.rate or 2e-3
    steps = fit(model, reversal_data(rng), arguments.minutes, rate, steps_per_epoch=100)
    rng = np.random.default_rng(arguments.seed + 1)
    quality = {
        length: reversal_accuracy(model, rng, length)
        for length in (5, 10, 20, 30, 40, 50, 60)
    }
    notes = ""
    if RECURRENT.get(name):
        share = anti_diagonal_share(model, rng)
        notes = f"attention on the anti-diagonal in {share:.1f} % of the rows"
    return model, steps, quality, notes


# Translation


@functools.cache
def corpus(train_file, valid_file, vocabulary, seed):
    """Return the validation pairs, the two tokenizers and the training dataset."""
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
    """Train on translation; return the model, its steps, its quality and its BLEU."""
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
    """Return the BLEU of each quartile of source lengths, by its mean length."""
    import sacrebleu

    lengths = [len(ids) for ids in tokenizer.tokenize([s for s, _ in valid])]
    edges = np.quantile(lengths, [0.25, 0.5, 0.75])
    buckets = collections.defaultdict(list)
    for length, (_, reference), hypothesis in zip(lengths, valid, translations):
        bucket = buckets[int(np.searchsorted(edges, length))]
        bucket.append((length, reference, hypothesis))
    quality = {}
    for _, bucket in sorted(buckets.items()):
        lengths, references, hypotheses = zip(*bucket)
        mean_length = round(float(np.mean(lengths)), 1)
        quality[mean_length] = sacrebleu.corpus_bleu(
            list(hypotheses), [list(references)]
        ).score
    return quality


def report(task, results):
    """Print a Markdown table with one row per model and one column per length."""
    lengths = next(iter(results.values()))["quality"]
    print(f"\n{task}\n")
    columns = ["model", "parameters", "steps", *(f"{n:g}" for n in lengths), ""]
    print(f"| {' | '.join(columns)} |")
    print("|" + "---|" * len(columns))
    for name, result in results.items():
        figures = [f"{value:.1f}" for value in result["quality"].values()]
        row = [name, f"{result['parameters']:,}", str(result["steps"]), *figures]
        print(f"| {' | '.join(row)} | {result['notes']} |")


def plot(results_by_task, path):
    from matplotlib.figure import Figure

    count = len(results_by_task)
    figure = Figure(figsize=(5 * count, 3.6), layout="constrained")
    panels = figure.subplots(1, count, squeeze=False)[0]
    for axes, (task, results) in zip(panels, results_by_task.items()):
        for name, result in results.items():
            quality = result["quality"]
            axes.plot(quality.keys(), quality.values(), marker="o", label=name)
        axes.set(title=task, xlabel="source length, tokens", ylim=(0, 102))
        is_reversal = task == "reversal"
        axes.set_ylabel("correct symbols, %" if is_reversal else "BLEU")
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
    parser.add_argument("--minutes", type=float, default=4.0, help="per model")
    parser.add_argument("--pairs", metavar="FILE", help="training sentence pairs")
    parser.add_argument("--valid", metavar="FILE", help="held-out sentence pairs")
    parser.add_argument("--vocabulary", type=int, help="size per language")
    parser.add_argument("--width", type=int, default=128, help="Transformer width")
    parser.add_argument("--rate", type=float, help="peak learning rate")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", default="runs/bottleneck", help="folder")
    arguments = parser.parse_args()
    if bool(arguments.pairs) != bool(arguments.valid):
        parser.error("--pairs and --valid must be given together")
    if arguments.vocabulary is None:
        arguments.vocabulary = 3000 if arguments.pairs else 1200
    folder = pathlib.Path(arguments.output)
    folder.mkdir(parents=True, exist_ok=True)
    results = {}
    for task in arguments.task:
        results[task] = {}
        for name in arguments.model:
            keras.utils.set_random_seed(arguments.seed)
            print(f"{task}: {name} ...", flush=True)
            model, steps, quality, notes = tasks[task](name, arguments)
            if not isinstance(notes, str):
                notes = f"BLEU of all lengths: {notes:.1f}"
            results[task][name] = {
                "parameters": model.count_params(),
                "steps": steps,
                "quality": quality,
                "notes": notes,
            }
        report(task, results[task])
    plot(results, folder / "bottleneck.png")


if __name__ == "__main__":
    main()
