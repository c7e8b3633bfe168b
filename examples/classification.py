"""Data preparation, evaluation, plots and export of a fine-tuned text classifier."""

import numpy as np
from translation import run_in_fresh_process

from keras_attn import models, serving, text

__all__ = [
    "accuracy",
    "arrays",
    "build_from_scratch",
    "export_and_compare",
    "plot_confusions",
    "tf_idf_accuracy",
]


def build_from_scratch(texts, num_classes, max_tokens):
    """Return a tokenizer trained on the texts, and a small untrained model."""
    tokenizer = text.WordPieceTokenizer.train(texts, 1000, lower_case=True)
    model = models.text_classifier(
        tokenizer.vocabulary_size,
        num_classes,
        num_layers=2,
        hidden_dim=64,
        intermediate_dim=128,
        num_heads=4,
        max_length=max_tokens,
        pooling="mean",
    )
    return tokenizer, model


def arrays(tokenizer, pairs, labels, max_tokens):
    """Return token ids `(N, T)` and class indices `(N,)`, both int32."""
    texts = [pair[0] for pair in pairs]
    ids = tokenizer.tokenize(texts, add_start=True, add_end=True, max_length=max_tokens)
    padded = ids.to_tensor(tokenizer.padding_id).numpy()
    return padded, np.array([labels.index(label) for _, label in pairs], "int32")


def accuracy(model, ids, classes):
    """Return the share of texts whose class is predicted correctly."""
    return float((_predict(model, ids) == classes).mean())


def _predict(model, ids):
    """Return the most probable class of each text."""
    return model.predict(ids, batch_size=64, verbose=0).argmax(axis=-1)


def tf_idf_accuracy(train, valid):
    """Return the accuracy of logistic regression on TF-IDF of words and word pairs."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    baseline = make_pipeline(
        TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True),
        LogisticRegression(C=10, max_iter=1000),
    )
    baseline.fit(*zip(*train))
    return float(baseline.score(*zip(*valid)))


def plot_confusions(model, ids, classes, labels, path):
    """Save a plot of the confusion matrix."""
    from matplotlib.figure import Figure

    counts = np.zeros((len(labels), len(labels)), int)
    np.add.at(counts, (classes, _predict(model, ids)), 1)
    size = 2.5 + 0.5 * len(labels)
    figure = Figure(figsize=(size, size), layout="constrained")
    axes = figure.subplots()
    axes.imshow(counts, cmap="Blues")
    for (row, column), count in np.ndenumerate(counts):
        color = "white" if 2 * count > counts.max() else "black"
        axes.text(column, row, count, ha="center", va="center", color=color)
    ticks = range(len(labels))
    axes.set_xticks(ticks, labels, rotation=45, ha="right")
    axes.set_yticks(ticks, labels)
    axes.set(xlabel="predicted", ylabel="label")
    figure.savefig(path, dpi=120)
    print(f"Confusion matrix: {path}")


def export_and_compare(model, tokenizer, labels, texts, max_tokens, folder):
    """Export the model; compare its labels in a fresh process with those of `model`.

    Raises:
        RuntimeError: if the exported model returns different labels.
    """
    path = serving.export_text_model(
        model,
        folder / "saved_model",
        tokenizer,
        max_length=max_tokens,
        labels=labels,
        overwrite=True,
    )
    print(f"Exported: {path}")
    pairs = [(each, labels[0]) for each in texts]
    ids, _ = arrays(tokenizer, pairs, labels, max_tokens)
    expected = [labels[index] for index in _predict(model, ids)]
    outputs = run_in_fresh_process(path, [texts[:1], texts], output="label")
    if outputs != [expected[:1], expected]:
        raise RuntimeError(
            "Expected the exported model to return the labels of the model in this "
            f"process, {expected}. Received: {outputs}"
        )
    print(f"A fresh process returns the same {len(texts)} labels, for example:")
    print(f"  {texts[0]}\n  {expected[0]}")
