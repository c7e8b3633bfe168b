"""Write the batches of one seed, which all models of a comparison are trained on.

Called by `benchmarks/learning.py`. The folder gets `task.json`, with the sizes that a
model needs, and `train.npz` and `valid.npz`, in which batch `i` has the arrays
`i/<name>`.
"""

import json
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples"))

import numpy as np
import text_files

from keras_attn import text

MAX_LENGTH = 64
WINDOW = 128  # tokens of context of a language model
LINES = 12  # of a snippet to classify


def translation(settings, folder):
    """Return the sizes, and the training and validation batches of sentence pairs."""
    train, valid = (
        text.read_pairs(settings[name], on_bad="skip") for name in ("pairs", "valid")
    )
    tokenizers = []
    for side in (0, 1):
        path = folder.parent / f"tokenizer-{side}"
        if not path.exists():
            sentences = [pair[side] for pair in train]
            text.SentencePieceTokenizer.train(sentences, settings["vocabulary"]).save(
                path
            )
        tokenizers.append(text.load_tokenizer(path))

    def batches(pairs, count):
        dataset = text.translation_dataset(
            pairs,
            *tokenizers,
            max_source_length=MAX_LENGTH,
            max_target_length=MAX_LENGTH,
            batch_tokens=settings["batch_tokens"],
            shuffle=count is not None,
            seed=settings["seed"],
        )
        if count is not None:
            dataset = dataset.repeat().take(count)
        for inputs, labels in dataset.as_numpy_iterator():
            yield {**inputs, "labels": labels}

    (folder / "valid.json").write_text(json.dumps(valid))
    sizes = {
        "vocabularies": [tokenizer.vocabulary_size for tokenizer in tokenizers],
        "start": tokenizers[1].start_token_id,
        "end": tokenizers[1].end_token_id,
    }
    return sizes, batches(train, settings["steps"]), batches(valid, None)


def language_model(settings, folder):
    """Return the sizes and the batches of windows of text."""
    if settings["pairs"]:
        column = settings["column"]
        train, valid = (
            [pair[column] for pair in text.read_pairs(settings[name], on_bad="skip")]
            for name in ("pairs", "valid")
        )
    else:
        paths = text_files.standard_library()
        train, valid = text_files.read_split(paths, 4_000_000, 0.05, seed=0)
    path = folder.parent / "tokenizer"
    if not path.exists():
        text.SentencePieceTokenizer.train(train, settings["vocabulary"]).save(path)
    tokenizer = text.load_tokenizer(path)
    batch_size = settings["batch_tokens"] // WINDOW

    def windows(texts):
        ids = tokenizer.tokenize(texts, add_end=True)
        documents = np.split(ids.values.numpy(), ids.row_splits.numpy()[1:-1])
        return text_files.windows(
            documents, tokenizer.start_token_id, WINDOW, batch_size
        )

    sizes = {"vocabularies": [tokenizer.vocabulary_size], "length": WINDOW}
    names = ("token_ids", "labels")
    return (
        sizes,
        shuffled(names, windows(train), batch_size, settings),
        in_order(names, windows(valid), batch_size),
    )


def classifier(settings, folder):
    """Return the sizes and the batches of snippets, labelled with their package."""
    root = text_files.standard_library()[0].parent
    packages = {}
    for path in text_files.standard_library():
        parts = path.relative_to(root).parts
        if len(parts) > 1:
            packages.setdefault(parts[0], []).append(path)
    packages = {name: files for name, files in packages.items() if len(files) >= 8}
    parts = {"train": ([], []), "valid": ([], [])}
    for label, files in enumerate(packages.values()):
        for i, path in enumerate(files):
            lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
            texts, labels = parts["valid" if i % 5 == 0 else "train"]
            for begin in range(0, len(lines) - LINES, LINES):
                texts.append("\n".join(lines[begin : begin + LINES]))
                labels.append(label)
    path = folder.parent / "tokenizer"
    if not path.exists():
        text.SentencePieceTokenizer.train(
            parts["train"][0], settings["vocabulary"]
        ).save(path)
    tokenizer = text.load_tokenizer(path)
    batch_size = settings["batch_tokens"] // MAX_LENGTH

    def arrays(part):
        ids = tokenizer.tokenize(parts[part][0], add_start=True, max_length=MAX_LENGTH)
        padded = ids.to_tensor(shape=(None, MAX_LENGTH)).numpy()
        return padded, np.array(parts[part][1], "int32")

    sizes = {
        "vocabularies": [tokenizer.vocabulary_size],
        "length": MAX_LENGTH,
        "num_classes": len(packages),
    }
    names = ("token_ids", "labels")
    return (
        sizes,
        shuffled(names, arrays("train"), batch_size, settings),
        in_order(names, arrays("valid"), batch_size),
    )


def image(settings, folder):
    """Return the sizes and the batches of handwritten digits, 8 x 8 pixels."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    images = (digits.images[..., None] / 16).astype("float32")
    parts = train_test_split(images, digits.target.astype("int32"), random_state=0)
    train_images, valid_images, train_labels, valid_labels = parts
    sizes = {"image_size": 8, "num_channels": 1, "num_classes": 10}
    names = ("image", "labels")
    return (
        sizes,
        shuffled(names, (train_images, train_labels), 64, settings),
        in_order(names, (valid_images, valid_labels), 64),
    )


def shuffled(names, arrays, batch_size, settings):
    """Yield `steps` batches, each epoch in a new order."""
    rng = np.random.default_rng(settings["seed"])
    remaining = settings["steps"]
    while remaining:
        order = rng.permutation(len(arrays[0]))
        for begin in range(0, len(order) - batch_size + 1, batch_size):
            if remaining:
                rows = order[begin : begin + batch_size]
                yield {name: array[rows] for name, array in zip(names, arrays)}
                remaining -= 1


def in_order(names, arrays, batch_size):
    """Yield all batches once, the last one smaller."""
    for begin in range(0, len(arrays[0]), batch_size):
        rows = slice(begin, begin + batch_size)
        yield {name: array[rows] for name, array in zip(names, arrays)}


def write(path, batches):
    """Write batches to a file, for `learning_peers.loop.Task.batches`."""
    arrays = {
        f"{i}/{name}": array
        for i, batch in enumerate(batches)
        for name, array in batch.items()
    }
    np.savez(path, **arrays)


TASKS = {
    "translation": translation,
    "language-model": language_model,
    "classifier": classifier,
    "image": image,
}


def main():
    settings = json.loads(sys.argv[1])
    folder = pathlib.Path(settings["data"])
    folder.mkdir(parents=True, exist_ok=True)
    sizes, train, valid = TASKS[settings["task"]](settings, folder)
    write(folder / "train.npz", train)
    write(folder / "valid.npz", valid)
    (folder / "task.json").write_text(json.dumps(sizes))


if __name__ == "__main__":
    main()
