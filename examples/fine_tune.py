r"""Fine-tune a published model, or train a small one from scratch, on labelled texts.

    python examples/fine_tune.py --checkpoint all-MiniLM-L6-v2 --method lora
    python examples/fine_tune.py --texts reviews.tsv --checkpoint bert-base-uncased
    python examples/fine_tune.py --task translation --checkpoint opus-mt-ko-en \
        --pairs train.tsv --valid valid.tsv --method layerwise

`--checkpoint` is the local folder of a published model. Without it, a small model is
trained from scratch. `--texts` is a file with lines `text<TAB>label`, or a folder with
one subfolder per label. The default is a built-in corpus of customer messages and their
topics. All results are written to `--output`.
"""

import argparse
import logging
import math
import os
import pathlib
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
# Keep freed CPU memory in TensorFlow's allocator instead of returning it to the system:
# a training step then takes about 0.75 of the time.
os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "true")

import classification
import keras
import labelled_texts
from translation import export_and_compare, show_translations

from keras_attn import checkpoints, serving, text, training

# Method -> learning rate. Adapters start at zero and take a higher rate than
# pretrained weights.
RATES = {"full": 1e-4, "last": 5e-4, "lora": 1e-3, "layerwise": 2e-4}
# Minimum learning rate without a checkpoint.
RATE_FROM_SCRATCH = 1e-3
HEADS = r"^(pooler|logits)$"


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--task", choices=["classification", "translation"], default="classification"
    )
    parser.add_argument("--checkpoint", metavar="FOLDER", help="of a published model")
    data = parser.add_argument_group("data")
    data.add_argument("--texts", metavar="PATH", help="labelled texts")
    data.add_argument("--valid-share", type=float, default=0.2, help="share held out")
    data.add_argument("--pairs", metavar="FILE", help="training sentence pairs")
    data.add_argument("--valid", metavar="FILE", help="held-out sentence pairs")
    data.add_argument("--max-tokens", type=int, default=64, help="truncate to")
    fit = parser.add_argument_group("training")
    fit.add_argument("--method", choices=RATES, default="full")
    fit.add_argument("--rate", type=float, help="peak learning rate")
    fit.add_argument("--epochs", type=int, default=5)
    fit.add_argument("--batch", type=int, default=16, help="texts per batch")
    fit.add_argument("--batch-tokens", type=int, default=512, help="of pairs")
    fit.add_argument("--blocks", type=int, default=1, help="trained by 'last'")
    fit.add_argument("--rank", type=int, default=8, help="of 'lora'")
    fit.add_argument("--decay", type=float, default=0.9, help="of 'layerwise'")
    fit.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", default="runs/fine_tune", help="folder")
    arguments = parser.parse_args()
    if arguments.rate is None:
        arguments.rate = RATES[arguments.method]
        if not arguments.checkpoint:
            arguments.rate = max(arguments.rate, RATE_FROM_SCRATCH)
    is_translation = arguments.task == "translation"
    if is_translation and not (
        arguments.checkpoint and arguments.pairs and arguments.valid
    ):
        parser.error(
            "translation needs --checkpoint, --pairs and --valid "
            "(translation.py trains a translator from scratch)"
        )
    return arguments


def prepare(arguments, model, steps):
    """Freeze layers or add adapters according to the method.

    Returns:
        The optimizer, whose learning rate decays to zero over `steps`.
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
    """Fine-tune a classifier; return its held-out accuracies by name."""
    if arguments.texts:
        pairs = labelled_texts.read(arguments.texts)
        pairs = labelled_texts.split(pairs, arguments.valid_share, arguments.seed)
    else:
        pairs = labelled_texts.built_in()
    train, valid = pairs
    labels = sorted({label for _, label in train})
    print(f"{len(train)} training texts, {len(valid)} held out, {len(labels)} labels")
    if arguments.checkpoint:
        tokenizer = text.load_published_tokenizer(arguments.checkpoint)
        model = checkpoints.load(
            arguments.checkpoint, task="classification", num_classes=len(labels)
        )
    else:
        tokenizer, model = classification.build_from_scratch(
            [pair[0] for pair in train], len(labels), arguments.max_tokens
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
    save_results(arguments, model, history, folder)
    results["after"] = classification.accuracy(model, *data[1])
    results["TF-IDF"] = classification.tf_idf_accuracy(train, valid)
    classification.plot_confusions(model, *data[1], labels, folder / "confusions.png")
    if can_be_exported(tokenizer):
        texts = [pair[0] for pair in valid]
        classification.export_and_compare(
            model, tokenizer, labels, texts, arguments.max_tokens, folder
        )
    return results


def translate(arguments, folder):
    """Fine-tune a translation model; return its held-out BLEU by name."""
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
    save_results(arguments, model, history, folder)
    tuned = translator()
    results["after"] = show_translations(valid, tuned, count=3)
    if all(map(can_be_exported, tokenizers)):
        export_and_compare(arguments, folder, model, valid, tuned)
    return results


def save_results(arguments, model, history, folder):
    """Save the learning curves and the model; merge adapters into its weights."""
    plot_curves(history, folder / "curves.png")
    if arguments.method == "lora":
        model.save(folder / "adapters.keras")  # to resume training
        training.merge_lora(model)
    if arguments.checkpoint:
        path = checkpoints.save(
            model,
            folder / "checkpoint",
            overwrite=True,
            tokenizer_from=arguments.checkpoint,
        )
        print(f"Checkpoint in the published format: {path}")


def can_be_exported(tokenizer):
    """Return whether a SavedModel supports the tokenizer; if not, print the reason."""
    try:
        tokenizer.check_export()
    except ValueError as error:
        print(f"Not exported: {error}")
        return False
    return True


def plot_curves(history, path):
    """Save a plot of loss and accuracy by epoch."""
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
    print(f"\nHeld-out {'BLEU' if is_translation else 'accuracy, %'}:")
    for name, value in results.items():
        print(f"  {name:8}{value if is_translation else 100 * value:6.1f}")
    print(f"Done in {(time.monotonic() - started) / 60:.1f} minutes.")


if __name__ == "__main__":
    main()
