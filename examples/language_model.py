r"""Train a language model on text files, compare it with n-gram models, generate text.

    python examples/language_model.py
    python examples/language_model.py --texts ~/books notes.txt --minutes 30

The default training data is the source code of the Python standard library, which takes
less than ten minutes on two CPU cores. `--texts` takes any UTF-8 files. All results are
written to `--output`. After an interruption, the same command resumes training after
the last completed epoch.
"""

import argparse
import hashlib
import json
import logging
import os
import pathlib
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
# Keep freed CPU memory in TensorFlow's allocator instead of returning it to the system:
# a training step then takes about 0.75 of the time.
os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "true")

import keras
import numpy as np
import tensorflow as tf
import text_files
from ngram import KneserNey
from training_state import StopAfter, TrainingState, write_atomically
from translation import run_in_fresh_process

import keras_attn
from keras_attn import decoding, inspection, layers, models, serving, text, training

BASELINES = {"unigram": 1, "bigram": 2, "trigram": 3}
TEMPERATURES = (0.5, 0.8, 1.0)


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    data = parser.add_argument_group("data")
    data.add_argument("--texts", nargs="+", metavar="PATH", help="files or folders")
    data.add_argument("--megabytes", type=float, default=8, help="limit on the data")
    data.add_argument("--valid-share", type=float, default=0.05, help="held-out share")
    data.add_argument("--vocabulary", type=int, default=1000, help="pieces")
    model = parser.add_argument_group("model")
    model.add_argument("--layers", type=int, default=2)
    model.add_argument("--width", type=int, default=128)
    model.add_argument("--inner", type=int, help="width of the feed-forward networks")
    model.add_argument("--heads", type=int, default=4)
    model.add_argument("--dropout", type=float, default=0.0)
    model.add_argument("--attention", choices=["softmax", "linear"], default="softmax")
    model.add_argument("--context", type=int, default=128, help="tokens per window")
    fit = parser.add_argument_group("training")
    fit.add_argument("--epochs", type=int, default=1000, help="maximum")
    fit.add_argument("--steps", type=int, default=300, help="per epoch")
    fit.add_argument("--minutes", type=float, default=7, help="training time limit")
    fit.add_argument("--batch", type=int, default=8, help="windows per batch")
    fit.add_argument("--warmup", type=int, default=200, help="steps to the peak")
    fit.add_argument("--rate", type=float, default=5e-3, help="peak learning rate")
    fit.add_argument("--seed", type=int, default=1)
    parser.add_argument("--prompt", default="import os\n\n\ndef find_files(path")
    parser.add_argument("--sample-tokens", type=int, default=96, help="to generate")
    parser.add_argument("--output", default="runs/language_model", help="folder")
    arguments = parser.parse_args()
    if arguments.inner is None:
        arguments.inner = 4 * arguments.width
    return arguments


def load_or_train_tokenizer(path, texts, vocabulary_size):
    """Load a SentencePiece tokenizer; train and save it first if there is no file.

    It is lossless: line breaks are byte tokens, and `allow_whitespace_only_pieces`
    makes pieces of the indentation. It is trained on lines, since no piece spans two.
    """
    if not path.exists():
        lines = (line for each in texts for line in each.splitlines(keepends=True))
        text.SentencePieceTokenizer.train(
            lines,
            vocabulary_size,
            model_type="bpe",  # here ten times faster than "unigram", fewer tokens
            allow_whitespace_only_pieces=True,
        ).save(path)
    return text.load_tokenizer(path)


def token_ids(tokenizer, texts):
    """Return the token ids of each text, with the end token, which is predicted too."""
    ids = tokenizer.tokenize(texts, add_end=True)
    return np.split(ids.values.numpy(), ids.row_splits.numpy()[1:-1])


def build(arguments, vocabulary_size):
    """Return the compiled model."""
    attention = None
    if arguments.attention == "linear":
        attention = layers.LinearSelfAttention(arguments.heads)
    model = models.causal_language_model(
        vocabulary_size,
        num_layers=arguments.layers,
        hidden_dim=arguments.width,
        intermediate_dim=arguments.inner,
        num_heads=arguments.heads,
        dropout=arguments.dropout,
        attention=attention,
    )
    scale = arguments.rate * (arguments.width * arguments.warmup) ** 0.5
    schedule = training.InverseSquareRootSchedule(
        arguments.width, arguments.warmup, scale
    )
    model.compile(
        # The number of steps is not known in advance, so the learning rate cannot decay
        # to zero. Averaging the weights over about an epoch has a similar effect.
        optimizer=keras.optimizers.Adam(
            schedule,
            beta_2=0.98,
            epsilon=1e-9,
            use_ema=True,
            ema_momentum=1 - 1 / arguments.steps,
        ),
        loss=training.MaskedCrossentropy(),
        metrics=[training.MaskedAccuracy()],
    )
    return model


def train(arguments, folder, model, train_windows, valid_windows):
    """Train the model, or resume an interrupted run of the same command."""
    weights_path = folder / "weights.weights.h5"
    if weights_path.exists():
        print("This run has finished already; remove its folder to train again.")
        model.load_weights(weights_path)
        (folder / "state.npz").unlink(missing_ok=True)
        return
    state = TrainingState(folder / "state.npz", folder / "curve.jsonl")
    data = (
        tf.data.Dataset.from_tensor_slices(train_windows)
        .shuffle(len(train_windows[0]), seed=arguments.seed)
        .repeat()
        .batch(arguments.batch)
        .skip(state.epoch * arguments.steps)  # used before the interruption
        .prefetch(2)
    )
    callbacks = [
        keras.callbacks.SwapEMAWeights(),  # validate the averaged weights
        StopAfter(arguments.minutes, state),
        state,
    ]
    model.fit(
        data,
        # A tenth of the windows, since there are many epochs.
        validation_data=tuple(array[::10] for array in valid_windows),
        validation_batch_size=arguments.batch,
        initial_epoch=state.epoch,
        epochs=state.epoch if state.finished else arguments.epochs,
        steps_per_epoch=arguments.steps,
        callbacks=callbacks,
        shuffle=False,  # the dataset shuffles itself
    )
    partial = folder / "partial.weights.h5"
    model.save_weights(partial)
    partial.replace(weights_path)
    state.path.unlink()


def total_log_probability(model, inputs, labels, batch_size):
    """Return the sum of the log probabilities of the labels, without padding."""
    loss = training.MaskedCrossentropy(reduction="sum")
    total = 0.0
    for i in range(0, len(inputs), batch_size):
        logits = model.predict_on_batch(inputs[i : i + batch_size])
        total -= float(loss(labels[i : i + batch_size], logits))
    return total


def compare(arguments, model, train_ids, valid_ids, valid_windows):
    """Return the perplexity per token of each model, by name.

    All models predict the same tokens: all tokens of the held-out files, including the
    end tokens. An n-gram model has the file up to the token as context, the Transformer
    its window up to the token, which is at least half a window except in the first one.
    """
    num_tokens = sum(map(len, valid_ids))
    inputs, labels = valid_windows
    if np.count_nonzero(labels) != num_tokens:
        raise RuntimeError(
            f"Expected each of {num_tokens} tokens to be a label once. "
            f"Received: {np.count_nonzero(labels)} labels"
        )
    sums = {}
    for name, order in BASELINES.items():
        baseline = KneserNey(train_ids, model.outputs[0].shape[-1], order)
        sums[name] = np.log(baseline.probabilities(valid_ids)).sum()
    sums["transformer"] = total_log_probability(model, inputs, labels, arguments.batch)
    return {name: np.exp(-total / num_tokens) for name, total in sums.items()}


def table(perplexities, tokens_per_byte):
    """Return a table of perplexities and bits per byte, as text."""
    lines = [f"{'':12}{'perplexity':>12}{'bits per byte':>15}"]
    for name, perplexity in perplexities.items():
        bits = np.log2(perplexity) * tokens_per_byte
        lines.append(f"{name:12}{perplexity:12.2f}{bits:15.3f}")
    trigram, transformer = perplexities["trigram"], perplexities["transformer"]
    verdict = "beats" if transformer < trigram else "does not beat"
    lines.append(
        f"The Transformer {verdict} the trigram: {transformer:.2f}, {trigram:.2f}."
    )
    return "\n".join(lines)


def continuations(model, tokenizer, prompts, max_length, strategy=None):
    """Return the text that the model generates after each prompt."""
    ids = tokenizer.tokenize(prompts, add_start=True).to_tensor()
    outputs = decoding.generate(
        model,
        {"token_ids": ids},
        end_token_id=tokenizer.end_token_id,
        max_new_tokens=max_length,
        strategy=strategy,
    )
    # Detokenize both together: a space at the start of the continuation is lost alone.
    texts = tokenizer.detokenize(tf.concat([ids, outputs["token_ids"][:, 0]], axis=1))
    texts = [each.decode() for each in texts.numpy()]
    return [each[len(prompt) :] for prompt, each in zip(prompts, texts)]


def samples(arguments, model, tokenizer):
    """Return a sample per temperature, as one text."""
    parts = []
    for temperature in TEMPERATURES:
        strategy = decoding.Sampling(
            temperature=temperature, top_p=0.95, seed=arguments.seed
        )
        (continuation,) = continuations(
            model, tokenizer, [arguments.prompt], arguments.sample_tokens, strategy
        )
        parts.append(
            f"--- temperature {temperature} ---\n{arguments.prompt}{continuation}"
        )
    return "\n\n".join(parts)


def plot_curve(folder, trigram):
    """Save a plot of the perplexity by epoch, with that of the trigram model."""
    from matplotlib.figure import Figure

    rows = [json.loads(line) for line in (folder / "curve.jsonl").open()]
    figure = Figure(figsize=(5, 3.5), layout="constrained")
    axes = figure.subplots()
    epochs = [row["epoch"] for row in rows]
    for name, label in (("loss", "training"), ("val_loss", "validation")):
        axes.plot(epochs, [np.exp(row[name]) for row in rows], ".-", label=label)
    axes.axhline(trigram, color="grey", linestyle="--", label="trigram")
    axes.set(xlabel="epoch", ylabel="perplexity", yscale="log")
    axes.legend()
    figure.savefig(folder / "curve.png", dpi=120)
    print(f"Curve: {folder / 'curve.png'}")


def export_and_compare(arguments, folder, model, tokenizer):
    """Export the model; compare its texts in a fresh process with those of `model`.

    Raises:
        RuntimeError: if the exported model generates different texts.
    """
    path = serving.export_language_model(
        model,
        folder / "saved_model",
        tokenizer,
        max_new_tokens=arguments.sample_tokens,
        max_prompt_length=arguments.context,
        overwrite=True,
    )
    print(f"Exported: {path}")
    prompts = [arguments.prompt, "class ", "import sys\n"]
    expected = continuations(model, tokenizer, prompts, arguments.sample_tokens)
    outputs = run_in_fresh_process(path, [prompts[:1], prompts])
    if outputs != [expected[:1], expected]:
        raise RuntimeError(
            "Expected the exported model to generate the texts of the model in this "
            f"process, {expected}. Received: {outputs}"
        )
    print(f"A fresh process generates the same texts after {len(prompts)} prompts.")


def main():
    started = time.monotonic()
    arguments = parse_arguments()
    logging.basicConfig(format="%(message)s")
    keras.utils.set_random_seed(arguments.seed)
    paths = (
        text_files.find_files(arguments.texts)
        if arguments.texts
        else text_files.standard_library()
    )
    train_texts, valid_texts = text_files.read_split(
        paths, int(arguments.megabytes * 1e6), arguments.valid_share, arguments.seed
    )
    # Each combination of settings has its own folder, since only a run with the same
    # settings can be resumed.
    settings = json.dumps(vars(arguments), sort_keys=True)
    run = hashlib.sha256(settings.encode()).hexdigest()[:8]
    folder = pathlib.Path(arguments.output) / run
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "settings.json", f"{settings}\n".encode())
    tokenizer = load_or_train_tokenizer(
        folder / "text.tokenizer", train_texts, arguments.vocabulary
    )
    train_ids = token_ids(tokenizer, train_texts)
    valid_ids = token_ids(tokenizer, valid_texts)
    num_train, num_valid = (sum(map(len, ids)) for ids in (train_ids, valid_ids))
    print(
        f"{len(train_texts)} training files of {num_train:,} tokens, "
        f"{len(valid_texts)} held out of {num_valid:,}; {folder}"
    )
    model = build(arguments, tokenizer.vocabulary_size)
    parts = inspection.count_parameters(model)
    del parts["flops"]
    print("Parameters:", ", ".join(f"{k} {v:,}" for k, v in parts.items() if v))
    sizes = tokenizer.start_token_id, arguments.context, arguments.batch
    train_windows = text_files.windows(train_ids, *sizes)
    valid_windows = text_files.windows(
        valid_ids, *sizes, overlap=arguments.context // 2
    )
    train(arguments, folder, model, train_windows, valid_windows)
    perplexities = compare(arguments, model, train_ids, valid_ids, valid_windows)
    num_bytes = sum(len(each.encode()) for each in valid_texts)
    results = table(perplexities, num_valid / num_bytes)
    results += "\n\n" + samples(arguments, model, tokenizer)
    print(f"\n{results}\n")
    (folder / "results.txt").write_text(results + "\n", encoding="utf-8")
    plot_curve(folder, perplexities["trigram"])
    model.save(folder / "language_model.keras")
    export_and_compare(arguments, folder, model, tokenizer)
    print(
        f"Done in {(time.monotonic() - started) / 60:.1f} minutes, perplexity "
        f"{perplexities['transformer']:.2f}, keras_attn {keras_attn.__version__}, "
        f"NumPy {np.__version__}."
    )


if __name__ == "__main__":
    main()
