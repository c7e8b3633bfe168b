"""Tokenizer of single characters."""

import collections
from collections.abc import Iterable
from typing import Any, Self, cast

import tensorflow as tf

from keras_attn._types import Tensor
from keras_attn.text.tokenizers.tokenizer import UNKNOWN_TEXT, Tokenizer
from keras_attn.text.tokenizers.vocabulary import (
    SPECIAL_TOKENS,
    most_frequent_tokens,
    validate_sentences,
    validate_vocabulary,
)


class CharacterTokenizer(Tokenizer):
    """Tokenizer of Unicode characters (code points), including spaces.

    `detokenize` restores the exact text if all its characters are in the vocabulary;
    any other character is restored as ⁇.

    Args:
        vocabulary: List of distinct `str`: `[PAD]`, `[UNK]`, `[START]`, `[END]`, then
            single characters.

    Raises:
        ValueError: If `vocabulary` is not of this form.

    Example:
        >>> from keras_attn.text import CharacterTokenizer
        >>> tokenizer = CharacterTokenizer.train(["a cat"])
        >>> tokenizer.pieces("a cat")
        ['a', ' ', 'c', 'a', 't']
        >>> tokenizer.detokenize(tokenizer.tokenize("a cat?")).numpy().decode()
        'a cat⁇'
    """

    def __init__(self, vocabulary: Iterable[str]) -> None:
        vocabulary = validate_vocabulary(vocabulary)
        first = len(SPECIAL_TOKENS)
        long = [token for token in vocabulary[first:] if len(token) != 1]
        if long:
            raise ValueError(
                f"Expected a vocabulary of single characters. "
                f"Received: vocabulary with {long[0]!r}"
            )
        super().__init__(vocabulary)
        by_code = sorted((ord(c), i) for i, c in enumerate(vocabulary[first:], first))
        # Binary search instead of a table, which would have to be tracked and
        # initialized. The last entry is above all code points, so that every search
        # result is a valid index.
        codes = [code for code, _ in by_code]
        self._sorted_codes = tf.constant([*codes, 0x110000], tf.int32)
        ids = [i for _, i in by_code]
        self._sorted_ids = tf.constant([*ids, cast(int, self.unknown_id)])
        special = [0, ord(UNKNOWN_TEXT), 0, 0]
        self._codes = tf.constant(special + [ord(c) for c in vocabulary[first:]])

    @classmethod
    def train(  # pyright: ignore[reportIncompatibleMethodOverride]
        cls, sentences: Iterable[str], vocabulary_size: int = 4000
    ) -> Self:
        """Train a tokenizer with the most frequent characters of a corpus.

        Characters with equal counts are ordered by code point.

        Args:
            sentences: Iterable of `str`.
            vocabulary_size: Maximum number of tokens, including the 4 special ones.

        Returns:
            A `CharacterTokenizer`.

        Raises:
            ValueError: If there are no sentences, or `vocabulary_size` is too small.
        """
        texts = validate_sentences(sentences, vocabulary_size)
        counts: collections.Counter[str] = collections.Counter()
        for text in texts:
            counts.update(text)
        return cls(most_frequent_tokens(counts, vocabulary_size))

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments, JSON serializable."""
        return {"vocabulary": self.tokens()}

    def _encode(self, texts: Tensor) -> tf.RaggedTensor:
        codes = tf.strings.unicode_decode(texts, "UTF-8")
        indices = tf.searchsorted(self._sorted_codes, codes.values)
        is_known = tf.gather(self._sorted_codes, indices) == codes.values
        ids = tf.where(is_known, tf.gather(self._sorted_ids, indices), self.unknown_id)
        return codes.with_values(ids)

    def _decode(self, ids: tf.RaggedTensor) -> Tensor:
        return tf.strings.unicode_encode(tf.gather(self._codes, ids), "UTF-8")
