"""What fine-tuning a text classifier is measured, shown and exported with."""

import numpy as np
from translation import ask_fresh_process

from keras_attn import models, serving, text

__all__ = [
    "accuracy",
    "arrays",
    "export_and_ask",
    "from_nothing",
    "plot_confusions",
    "tf_idf_accuracy",
]


def from_nothing(texts, num_classes, max_tokens):
    """A tokenizer trained on the texts, and a small model that knows nothing yet."""
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
    """Ids `(N, T)` and numbers of labels `(N,)`, int32."""
    texts = [each for each, _ in pairs]
    ids = tokenizer.tokenize(texts, add_start=True, add_end=True, max_length=max_tokens)
    padded = ids.to_tensor(tokenizer.padding_id).numpy()
    return padded, np.array([labels.index(label) for _, label in pairs], "int32")


def accuracy(model, ids, numbers):
    return float((_predicted(model, ids) == numbers).mean())


def _predicted(model, ids):
    return model.predict(ids, batch_size=64, verbose=0).argmax(axis=-1)


def tf_idf_accuracy(train, valid):
    """That of logistic regression on weighted words and pairs of words."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    baseline = make_pipeline(
        TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True),
        LogisticRegression(C=10, max_iter=1000),
    )
    baseline.fit(*zip(*train))
    return float(baseline.score(*zip(*valid)))


def plot_confusions(model, ids, numbers, labels, path):
    """How many texts of each label were taken for each label."""
    from matplotlib.figure import Figure

    counts = np.zeros((len(labels), len(labels)), int)
    np.add.at(counts, (numbers, _predicted(model, ids)), 1)
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


def export_and_ask(model, tokenizer, labels, texts, max_tokens, folder):
    """Exports, then compares a fresh process with this one, label by label."""
    path = serving.export_text_model(
        model,
        folder / "saved_model",
        tokenizer,
        max_length=max_tokens,
        labels=labels,
        overwrite=True,
    )
    print(f"Exported: {path}")
    ids, _ = arrays(
        tokenizer, [(each, labels[0]) for each in texts], labels, max_tokens
    )
    here = [labels[number] for number in _predicted(model, ids)]
    answers = ask_fresh_process(path, [texts[:1], texts], output="label")
    if answers != [here[:1], here]:
        raise RuntimeError(
            f"The exported model answers otherwise: {answers}, here {here}"
        )
    print(f"A fresh process gives the same {len(texts)} labels, for example:")
    print(f"  {texts[0]}\n  {here[0]}")
