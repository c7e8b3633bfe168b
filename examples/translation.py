r"""Train a Transformer translator, plot its attention, export it and use the export.

    python examples/translation.py
    python examples/translation.py --pairs train.tsv.gz --valid valid.tsv.gz \
        --minutes 20

The default is Korean to English on a built-in corpus, which takes a few minutes on two
CPU cores. `--pairs` takes any file of sentence pairs (tab-separated, plain or gzipped,
source first). All results are written to `--output`. After an interruption, the same
command resumes training after the last completed epoch, with the result of a run
without the interruption.
"""

import argparse
import hashlib
import json
import logging
import os
import pathlib
import subprocess
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
# Keep freed CPU memory in TensorFlow's allocator instead of returning it to the system:
# a training step then takes about 0.75 of the time.
os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "true")

import keras
import numpy as np
from korean_english import pairs as korean_english_pairs
from training_state import StopAfter, TrainingState, write_atomically

import keras_attn
from keras_attn import inspection, models, serving, text, training

# Use of an exported model in a process without keras_attn.
FRESH_PROCESS = """
import json, sys
import tensorflow as tf, tensorflow_text
serve = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
outputs = []
for batch in json.load(sys.stdin):
    texts = serve(text=tf.constant(batch, tf.string))[sys.argv[2]]
    outputs.append([text.decode() for text in texts.numpy()])
print("OUTPUTS " + json.dumps(outputs))
"""


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    data = parser.add_argument_group("data")
    data.add_argument("--pairs", metavar="FILE", help="training sentence pairs")
    data.add_argument("--valid", metavar="FILE", help="held-out sentence pairs")
    data.add_argument("--source-column", type=int, default=0)
    data.add_argument("--target-column", type=int, default=1)
    data.add_argument("--vocabulary", type=int, help="size per language")
    data.add_argument("--max-tokens", type=int, default=64, help="truncate to")
    model = parser.add_argument_group("model")
    model.add_argument("--layers", type=int, default=2)
    model.add_argument("--width", type=int, default=128)
    model.add_argument("--inner", type=int, help="width of the feed-forward networks")
    model.add_argument("--heads", type=int, default=4)
    model.add_argument("--dropout", type=float)
    fit = parser.add_argument_group("training")
    fit.add_argument("--epochs", type=int, help="passes over the data")
    fit.add_argument("--minutes", type=float, help="training time limit")
    fit.add_argument("--batch-tokens", type=int)
    fit.add_argument("--warmup", type=int, help="steps to the peak rate")
    fit.add_argument("--rate", type=float, help="peak learning rate")
    fit.add_argument("--bleu-every", type=int, help="epochs between validations")
    fit.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", default="runs/translation", help="folder")
    arguments = parser.parse_args()
    has_own_data = arguments.pairs is not None
    defaults = {
        "vocabulary": 3000 if has_own_data else 1200,
        "inner": 2 * arguments.width,
        # With few passes over the data, there is nothing to regularize.
        "dropout": 0.1 if has_own_data and not arguments.minutes else 0.0,
        "batch_tokens": 1024 if has_own_data else 512,
        "warmup": 1000 if has_own_data else 300,
        "rate": 2e-3,
        "epochs": 1000 if arguments.minutes else 15 if has_own_data else 6,
        "bleu_every": 1 if has_own_data else 3,
    }
    for name, value in defaults.items():
        if getattr(arguments, name) is None:
            setattr(arguments, name, value)
    if has_own_data and not arguments.valid:
        parser.error("--pairs requires --valid")
    return arguments


def read_corpus(arguments):
    """Return training and validation pairs."""
    if arguments.pairs is None:
        return korean_english_pairs(num_train=8000)
    columns = (arguments.source_column, arguments.target_column)
    return tuple(
        text.read_pairs(path, *columns, on_bad="skip")
        for path in (arguments.pairs, arguments.valid)
    )


def load_or_train_tokenizer(path, sentences, vocabulary_size):
    """Load a SentencePiece tokenizer; train and save it first if there is no file."""
    if not path.exists():
        text.SentencePieceTokenizer.train(sentences, vocabulary_size).save(path)
    return text.load_tokenizer(path)


def build(arguments, source_tokenizer, target_tokenizer, steps_per_epoch):
    """Return the compiled model."""
    model = models.transformer_translator(
        source_tokenizer.vocabulary_size,
        target_tokenizer.vocabulary_size,
        num_layers=arguments.layers,
        hidden_dim=arguments.width,
        intermediate_dim=arguments.inner,
        num_heads=arguments.heads,
        dropout=arguments.dropout,
        normalize_first=True,
    )
    if arguments.minutes:  # the number of steps is not known in advance
        scale = arguments.rate * (arguments.width * arguments.warmup) ** 0.5
        schedule = training.InverseSquareRootSchedule(
            arguments.width, arguments.warmup, scale
        )
    else:
        steps = steps_per_epoch * arguments.epochs
        warmup = min(arguments.warmup, steps // 2)
        schedule = keras.optimizers.schedules.CosineDecay(
            initial_learning_rate=0.0,
            decay_steps=steps - warmup,
            warmup_target=arguments.rate,
            warmup_steps=warmup,
        )
    model.compile(
        optimizer=keras.optimizers.Adam(schedule, beta_2=0.98, epsilon=1e-9),
        loss=training.MaskedCrossentropy(label_smoothing=0.1),
        metrics=[training.MaskedAccuracy()],
        jit_compile=False,
    )
    return model


def train(
    arguments, folder, state, model, train_data, valid_data, valid_pairs, translate
):
    """Train the model, or resume an interrupted run of the same command."""
    weights_path = folder / "weights.weights.h5"
    if weights_path.exists():
        print("This run has finished already; remove its folder to train again.")
        model.load_weights(weights_path)
        state.path.unlink(missing_ok=True)
        return
    bleu_pairs = valid_pairs[:: max(1, len(valid_pairs) // 500)]
    bleu = training.BleuCallback(
        translate,
        [source for source, _ in bleu_pairs],
        [target for _, target in bleu_pairs],
        every=arguments.bleu_every,
        batch_size=100,
    )
    callbacks = [bleu, state]
    if arguments.minutes:
        callbacks.insert(0, StopAfter(arguments.minutes, state))
    if state.rows:  # Continue the curve with the last score.
        score = state.rows[-1]["val_bleu"]
        restore = keras.callbacks.LambdaCallback(
            on_train_begin=lambda logs: setattr(bleu, "score", score)
        )
        callbacks.append(restore)
    model.fit(
        train_data,
        validation_data=valid_data,
        initial_epoch=state.epoch,
        epochs=state.epoch if state.finished else arguments.epochs,
        callbacks=callbacks,
        shuffle=False,  # the dataset shuffles itself
    )
    partial = folder / "partial.weights.h5"
    model.save_weights(partial)
    partial.replace(weights_path)
    state.path.unlink()


def show_translations(valid_pairs, translate, count=10):
    """Print `count` translations with their references; return the BLEU of all."""
    sources = [source for source, _ in valid_pairs]
    references = [target for _, target in valid_pairs]
    bleu = training.BleuCallback(translate, sources, references, batch_size=100)
    score = bleu.evaluate()
    print(f"\nBLEU on {len(sources)} held-out sentences: {score:.1f}\n")
    for i in range(0, len(sources), max(1, len(sources) // count)):
        print(f"  source       {sources[i]}")
        print(f"  translation  {bleu.translations[i]}")
        print(f"  reference    {references[i]}\n")
    return score


def show_attention(model, translate, source, path):
    """Plot the cross-attention of the last decoder block for one sentence."""
    tokenizers = translate.source_tokenizer, translate.target_tokenizer
    (translation,) = translate([source])
    inputs = {
        "source": tokenizers[0].tokenize([source], add_end=True).to_tensor(),
        "target": tokenizers[1].tokenize([translation], add_start=True).to_tensor(),
    }
    maps = inspection.attention_maps(model, inputs)
    name = max(maps, key=lambda name: (name.endswith("cross_attention"), name))
    figure = inspection.plot_attention(
        maps[name][0].mean(axis=0),
        tokenizers[0].pieces(source, add_end=True),
        # Query t predicts token t + 1: label it with the predicted token.
        tokenizers[1].pieces(translation, add_end=True),
        title=source,
    )
    figure.savefig(path, dpi=120)
    print(f"Attention of {name}, mean over heads: {path}")


def plot_curve(folder):
    """Save a plot of loss and BLEU by epoch."""
    from matplotlib.figure import Figure

    rows = [json.loads(line) for line in (folder / "curve.jsonl").open()]
    figure = Figure(figsize=(7, 3.5), layout="constrained")
    loss_axes, bleu_axes = figure.subplots(1, 2)
    epochs = [row["epoch"] for row in rows]
    for name in ("loss", "val_loss"):
        loss_axes.plot(epochs, [row[name] for row in rows], label=name)
    bleu_axes.plot(epochs, [row["val_bleu"] for row in rows], label="val_bleu")
    for axes in (loss_axes, bleu_axes):
        axes.set_xlabel("epoch")
        axes.legend()
    figure.savefig(folder / "curve.png", dpi=120)
    print(f"Curve: {folder / 'curve.png'}")


def run_in_fresh_process(path, batches, output="text"):
    """Return one output of the exported model for each batch, from a new process."""
    process = subprocess.run(
        [sys.executable, "-c", FRESH_PROCESS, str(path), output],
        input=json.dumps(batches),
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    for line in process.stdout.splitlines():
        if line.startswith("OUTPUTS "):
            return json.loads(line.removeprefix("OUTPUTS "))
    raise RuntimeError(f"The exported model failed in a new process:\n{process.stderr}")


def export_and_compare(arguments, folder, model, valid_pairs, translate):
    """Export the model; compare its output in a fresh process with `translate`.

    Raises:
        RuntimeError: if the exported model returns different translations.
    """
    path = serving.export_translator(
        model,
        folder / "saved_model",
        translate.source_tokenizer,
        translate.target_tokenizer,
        max_new_tokens=arguments.max_tokens,
        max_source_length=arguments.max_tokens,
        overwrite=True,
    )
    print(f"Exported: {path}")
    by_length = sorted((source for source, _ in valid_pairs), key=len)
    batches = [
        by_length[:1],
        by_length[-1:],
        [by_length[0], by_length[len(by_length) // 2], by_length[-1]],
        by_length[::20],
    ]
    outputs = run_in_fresh_process(path, batches)
    for batch, output in zip(batches, outputs):
        expected = translate(batch)
        if output != expected:
            raise RuntimeError(
                "Expected the exported model to return the translations of the model "
                f"in this process, {expected}. Received: {output}"
            )
    count = sum(map(len, batches))
    print(f"A fresh process returns the same {count} translations, for example:")
    print(f"  {batches[2][1]}\n  {outputs[2][1]}")


def make_run_folder(arguments):
    """Create and return the folder of a run."""
    # Each combination of settings has its own folder, since only a run with the same
    # settings can be resumed.
    settings = json.dumps(vars(arguments), sort_keys=True)
    run = hashlib.sha256(settings.encode()).hexdigest()[:8]
    folder = pathlib.Path(arguments.output) / run
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "settings.json", f"{settings}\n".encode())
    return folder


def main():
    started = time.monotonic()
    arguments = parse_arguments()
    logging.basicConfig(format="%(message)s")
    keras.utils.set_random_seed(arguments.seed)
    train_pairs, valid_pairs = read_corpus(arguments)
    folder = make_run_folder(arguments)
    state = TrainingState(folder / "state.npz", folder / "curve.jsonl")
    print(f"{len(train_pairs)} training pairs, {len(valid_pairs)} held out; {folder}")
    source_tokenizer, target_tokenizer = (
        load_or_train_tokenizer(
            folder / f"{side}.tokenizer", sentences, arguments.vocabulary
        )
        for side, sentences in zip(("source", "target"), zip(*train_pairs))
    )
    train_data, valid_data = (
        text.translation_dataset(
            pairs,
            source_tokenizer,
            target_tokenizer,
            max_source_length=arguments.max_tokens,
            max_target_length=arguments.max_tokens,
            batch_tokens=arguments.batch_tokens,
            # The mean over the held-out pairs is computed in the same order each time.
            shuffle=pairs is train_pairs,
            seed=arguments.seed,
            first_epoch=state.epoch,
        )
        for pairs in (train_pairs, valid_pairs)
    )
    model = build(
        arguments, source_tokenizer, target_tokenizer, train_data.report.num_batches
    )
    parts = inspection.count_parameters(model)
    del parts["flops"]
    print("Parameters:", ", ".join(f"{k} {v:,}" for k, v in parts.items() if v))
    translate = serving.Translator(
        model,
        source_tokenizer,
        target_tokenizer,
        max_new_tokens=arguments.max_tokens,
        max_source_length=arguments.max_tokens,
    )
    train(
        arguments,
        folder,
        state,
        model,
        train_data,
        valid_data,
        valid_pairs,
        translate,
    )
    score = show_translations(valid_pairs, translate)
    plot_curve(folder)
    sources = sorted((source for source, _ in valid_pairs), key=len)
    median = sources[len(sources) // 2]
    show_attention(model, translate, median, folder / "attention.png")
    export_and_compare(arguments, folder, model, valid_pairs, translate)
    print(
        f"Done in {(time.monotonic() - started) / 60:.1f} minutes, BLEU {score:.1f}, "
        f"keras_attn {keras_attn.__version__}, NumPy {np.__version__}."
    )


if __name__ == "__main__":
    main()
