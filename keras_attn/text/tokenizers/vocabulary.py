"""Training sentences and vocabularies: validation and counting."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

import tensorflow as tf

from keras_attn._types import Tensor

SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[START]", "[END]"]

T = TypeVar("T")


def validate_sentences(
    sentences: Iterable[str], vocabulary_size: int, min_vocabulary_size: int = 5
) -> list[str]:
    """Return the non-blank training sentences, with invalid characters replaced.

    Raises:
        ValueError: If no sentence is left, one is not a `str`, or `vocabulary_size` is
            not an integer of at least `min_vocabulary_size`.
    """
    if isinstance(vocabulary_size, bool) or not isinstance(vocabulary_size, int):
        raise ValueError(
            "Expected vocabulary_size to be an integer. "
            f"Received: vocabulary_size={vocabulary_size!r}"
        )
    if vocabulary_size < min_vocabulary_size:
        raise ValueError(
            f"Expected vocabulary_size to be at least {min_vocabulary_size}. "
            f"Received: vocabulary_size={vocabulary_size}"
        )
    if isinstance(sentences, str | bytes):
        raise ValueError(
            "Expected an iterable of sentences, not a single text. "
            f"Received: sentences={sentences[:40]!r}"
        )
    texts = []
    for index, text in enumerate(sentences):
        if not isinstance(text, str):
            raise ValueError(
                f"Expected every sentence to be a str. "
                f"Received: sentences with {text!r} at index {index}"
            )
        if text.strip():
            texts.append(text.encode("utf-8", "replace").decode("utf-8"))
    if not texts:
        raise ValueError(
            "Expected at least one non-blank sentence to train a vocabulary on. "
            "Received: sentences=[]"
        )
    return texts


def map_batches(
    function: Callable[[Tensor], T], texts: list[str], batch_size: int = 1024
) -> Iterator[T]:
    """Yield `function(batch)` for each batch of texts, a string tensor `(N,)`."""
    for start in range(0, len(texts), batch_size):
        yield function(tf.constant(texts[start : start + batch_size]))


def most_frequent_tokens(counts: Mapping[str, int], vocabulary_size: int) -> list[str]:
    """Return the special tokens, then the most frequent ones; ties sorted by token."""
    ranked = sorted(counts, key=lambda token: (-counts[token], token))
    return SPECIAL_TOKENS + ranked[: vocabulary_size - len(SPECIAL_TOKENS)]


def validate_vocabulary(vocabulary: Iterable[str]) -> list[str]:
    """Return the vocabulary as a list.

    Raises:
        ValueError: If the tokens are not distinct, non-empty `str` that begin with
            `SPECIAL_TOKENS`.
    """
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
