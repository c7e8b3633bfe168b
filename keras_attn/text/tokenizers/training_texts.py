"""The sentences a vocabulary is learnt from."""

import tensorflow as tf

SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[START]", "[END]"]


def checked_sentences(sentences, vocabulary_size, smallest=5):
    """A list of valid, non-empty `str`.

    Raises:
        ValueError: If nothing is left, one is not a `str`, or the vocabulary is too
            small to hold more than the special tokens.
    """
    if isinstance(vocabulary_size, bool) or not isinstance(vocabulary_size, int):
        raise ValueError(
            "Expected vocabulary_size to be a whole number. "
            f"Received: vocabulary_size={vocabulary_size!r}"
        )
    if vocabulary_size < smallest:
        raise ValueError(
            f"Expected vocabulary_size to be at least {smallest}. "
            f"Received: vocabulary_size={vocabulary_size}"
        )
    if isinstance(sentences, str | bytes):
        raise ValueError(
            "Expected an iterable of sentences, not one text. "
            f"Received: sentences={sentences[:40]!r}"
        )
    texts = []
    for number, text in enumerate(sentences):
        if not isinstance(text, str):
            raise ValueError(
                f"Expected every sentence to be a str. "
                f"Received: sentences with {text!r} at index {number}"
            )
        if text.strip():
            texts.append(text.encode("utf-8", "replace").decode("utf-8"))
    if not texts:
        raise ValueError(
            "Expected at least one non-blank sentence to learn a vocabulary from. "
            "Received: sentences=[]"
        )
    return texts


def batches(texts, function, batch_size=1024):
    """Yields `function(string tensor)` over the texts, a batch at a time."""
    for start in range(0, len(texts), batch_size):
        yield function(tf.constant(texts[start : start + batch_size]))


def most_frequent(counts, vocabulary_size):
    """Special tokens, then the most frequent ones; equal counts in sorted order."""
    ranked = sorted(counts, key=lambda token: (-counts[token], token))
    return SPECIAL_TOKENS + ranked[: vocabulary_size - len(SPECIAL_TOKENS)]


def checked_vocabulary(vocabulary):
    """The vocabulary as a list, if it is one that our tokenizers can use."""
    vocabulary = list(vocabulary)
    if (
        vocabulary[: len(SPECIAL_TOKENS)] != SPECIAL_TOKENS
        or not all(isinstance(token, str) and token for token in vocabulary)
        or len(set(vocabulary)) != len(vocabulary)
    ):
        raise ValueError(
            f"Expected a vocabulary of distinct str that begins with {SPECIAL_TOKENS}. "
            f"Received: vocabulary={vocabulary[:6]}..."
        )
    return vocabulary
