r"""Fine-tune a published model, or train one from nothing, on labelled texts.

    python examples/fine_tune.py --checkpoint all-MiniLM-L6-v2 --method lora
    python examples/fine_tune.py --texts reviews.tsv --checkpoint bert-base-uncased
    python examples/fine_tune.py --task translation --checkpoint opus-mt-ko-en \
        --pairs train.tsv --valid valid.tsv --method layerwise

A checkpoint is a folder on this machine as it was published. Without one, a small model
is trained from nothing. Without `--texts`, the texts are a shop's mail by topic, which
are built in. `--texts` takes a file of `text<TAB>label` or a folder with a folder for
each label. All it makes lies under `--output`.
"""

import argparse
import logging
import math
import os
import pathlib
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
# TensorFlow keeps its CPU memory instead of handing each tensor's back to the system:
# a training step takes about 0.75 of the time.
os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "true")

import classification
import keras
import labelled_texts
from translation import export_and_ask, show_translations

from keras_attn import checkpoints, serving, text, training

# Method -> its learning rate: what begins at zero learns faster than what is known.
RATES = {"whole": 1e-4, "last": 5e-4, "lora": 1e-3, "layerwise": 2e-4}
# Of a model that knows nothing yet.
RATE_FROM_NOTHING = 1e-3
HEADS = r"^(pooler|logits)$"


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--task", choices=["classification", "translation"], default="classification"
    )
    parser.add_argument("--checkpoint", metavar="FOLDER", help="a published model")
    data = parser.add_argument_group("data")
    data.add_argument("--texts", metavar="PATH", help="labelled texts")
    data.add_argument("--valid-share", type=float, default=0.2, help="held out of them")
    data.add_argument("--pairs", metavar="FILE", help="of sentences, to translate")
    data.add_argument("--valid", metavar="FILE", help="held-out pairs")
    data.add_argument("--max-tokens", type=int, default=64, help="cut longer texts")
    fit = parser.add_argument_group("training")
    fit.add_argument("--method", choices=RATES, default="whole")
    fit.add_argument("--rate", type=float, help="the highest learning rate")
    fit.add_argument("--epochs", type=int, default=5)
    fit.add_argument("--batch", type=int, default=16, help="texts of a batch")
    fit.add_argument("--batch-tokens", type=int, default=512, help="to translate")
    fit.add_argument("--blocks", type=int, default=1, help="trained by 'last'")
    fit.add_argument("--rank", type=int, default=8, help="of 'lora'")
    fit.add_argument("--decay", type=float, default=0.9, help="of 'layerwise'")
    fit.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", default="runs/fine_tune", help="folder")
    arguments = parser.parse_args()
    if arguments.rate is None:
        arguments.rate = RATES[arguments.method]
        if not arguments.checkpoint:
            arguments.rate = max(arguments.rate, RATE_FROM_NOTHING)
    is_translation = arguments.task == "translation"
    if is_translation and not (
        arguments.checkpoint and arguments.pairs and arguments.valid
    ):
        parser.error(
            "translation needs --checkpoint, --pairs and --valid "
            "(translation.py trains a translator from nothing)"
        )
    return arguments


def prepare(arguments, model, steps):
    """Makes ready what the method trains.

    Returns:
        The optimizer, for so many steps.
    """
    schedule = keras.optimizers.schedules.CosineDecay(
        initial_learning_rate=0.0,
        decay_steps=steps - steps // 10,
        warmup_target=arguments.rate,
        warmup_steps=steps // 10,
    )
    optimizer = keras.optimizers.AdamW(schedule, weight_decay=0.01, clipnorm=1.0)
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    if arguments.method == "last":
        training.freeze(model, arguments.blocks)
    elif arguments.method == "lora":
        has_head = arguments.task == "classification"
        training.enable_lora(
            model, arguments.rank, also_train=HEADS if has_head else None
        )
    elif arguments.method == "layerwise":
        factors = training.layerwise_decay(model, arguments.decay)
        optimizer = training.LayerwiseOptimizer(optimizer, factors)
    trained = sum(math.prod(w.shape) for w in model.trainable_weights)
    total = model.count_params()
    print(f"Method '{arguments.method}' trains {trained:,} of {total:,} weights.")
    return optimizer


def classify(arguments, folder):
    """Fine-tunes a classifier; returns its accuracies, held out, by name."""
    if arguments.texts:
        pairs = labelled_texts.read(arguments.texts)
        pairs = labelled_texts.split(pairs, arguments.valid_share, arguments.seed)
    else:
        pairs = labelled_texts.built_in()
    train, valid = pairs
    labels = sorted({label for _, label in train})
    print(
        f"{len(train)} texts to train on, {len(valid)} held out, {len(labels)} labels"
    )
    if arguments.checkpoint:
        tokenizer = text.load_published_tokenizer(arguments.checkpoint)
        model = checkpoints.load(
            arguments.checkpoint, task="classification", num_classes=len(labels)
        )
    else:
        tokenizer, model = classification.from_nothing(
            [each for each, _ in train], len(labels), arguments.max_tokens
        )
    data = [
        classification.arrays(tokenizer, part, labels, arguments.max_tokens)
        for part in pairs
    ]
    results = {"before": classification.accuracy(model, *data[1])}
    steps = arguments.epochs * -(-len(train) // arguments.batch)
    model.compile(
        prepare(arguments, model, steps),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        jit_compile=False,
    )
    history = model.fit(
        *data[0],
        validation_data=data[1],
        epochs=arguments.epochs,
        batch_size=arguments.batch,
        verbose=2,
    )
    keep(arguments, model, history, folder)
    results["after"] = classification.accuracy(model, *data[1])
    results["TF-IDF"] = classification.tf_idf_accuracy(train, valid)
    classification.plot_confusions(model, *data[1], labels, folder / "confusions.png")
    if can_be_exported(tokenizer):
        texts = [each for each, _ in valid]
        classification.export_and_ask(
            model, tokenizer, labels, texts, arguments.max_tokens, folder
        )
    return results


def translate(arguments, folder):
    """Fine-tunes a translation model; returns its BLEU, held out, by name."""
    train, valid = (
        text.read_pairs(path, on_bad="skip")
        for path in (arguments.pairs, arguments.valid)
    )
    tokenizers = [
        text.load_published_tokenizer(arguments.checkpoint, side)
        for side in ("source", "target")
    ]
    model = checkpoints.load(arguments.checkpoint, task="translation")

    def translator():
        return serving.Translator(
            model,
            *tokenizers,
            max_new_tokens=arguments.max_tokens,
            max_source_length=arguments.max_tokens,
        )

    results = {"before": show_translations(valid, translator(), count=3)}
    train_data, valid_data = (
        text.translation_dataset(
            pairs,
            *tokenizers,
            max_source_length=arguments.max_tokens,
            max_target_length=arguments.max_tokens,
            batch_tokens=arguments.batch_tokens,
            seed=arguments.seed,
        )
        for pairs in (train, valid)
    )
    padding_id = tokenizers[1].padding_id
    steps = arguments.epochs * train_data.report.num_batches
    model.compile(
        prepare(arguments, model, steps),
        training.MaskedCrossentropy(label_smoothing=0.1, padding_id=padding_id),
        metrics=[training.MaskedAccuracy(padding_id=padding_id)],
        jit_compile=False,
    )
    history = model.fit(
        train_data,
        validation_data=valid_data,
        epochs=arguments.epochs,
        shuffle=False,  # the dataset shuffles itself
        verbose=2,
    )
    keep(arguments, model, history, folder)
    tuned = translator()
    results["after"] = show_translations(valid, tuned, count=3)
    if all(map(can_be_exported, tokenizers)):
        export_and_ask(arguments, folder, model, valid, tuned)
    return results


def keep(arguments, model, history, folder):
    """Writes what the training has made; adapters are merged after it."""
    plot_curves(history, folder / "curves.png")
    if arguments.method == "lora":
        model.save(folder / "adapters.keras")  # goes on from here, if loaded
        training.merge_lora(model)
    if arguments.checkpoint:
        path = checkpoints.save(
            model,
            folder / "checkpoint",
            overwrite=True,
            tokenizer_from=arguments.checkpoint,
        )
        print(f"As a published model: {path}")


def can_be_exported(tokenizer):
    """Whether a SavedModel can hold the tokenizer; says why not."""
    try:
        tokenizer.check_export()
    except ValueError as error:
        print(f"Not exported: {error}")
        return False
    return True


def plot_curves(history, path):
    """Loss and accuracy by epoch."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.5), layout="constrained")
    for axes, name in zip(figure.subplots(1, 2), ("loss", "accuracy")):
        for key in (name, f"val_{name}"):
            values = history.history[key]
            axes.plot(range(1, len(values) + 1), values, ".-", label=key)
        axes.set_xlabel("epoch")
        axes.legend()
    figure.savefig(path, dpi=120)
    print(f"Learning curves: {path}")


def main():
    started = time.monotonic()
    arguments = parse_arguments()
    logging.basicConfig(format="%(message)s")
    keras.utils.set_random_seed(arguments.seed)
    folder = pathlib.Path(arguments.output)
    folder.mkdir(parents=True, exist_ok=True)
    is_translation = arguments.task == "translation"
    results = (translate if is_translation else classify)(arguments, folder)
    print(f"\n{'BLEU' if is_translation else 'Accuracy, %'} on what was held out:")
    for name, value in results.items():
        print(f"  {name:8}{value if is_translation else 100 * value:6.1f}")
    print(f"Done in {(time.monotonic() - started) / 60:.1f} minutes.")


if __name__ == "__main__":
    main()
