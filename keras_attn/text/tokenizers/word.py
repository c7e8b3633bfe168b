"""Tokenizer of whole words."""

import collections
from collections.abc import Iterable
from typing import Any, Self

import tensorflow as tf

from keras_attn._types import Tensor
from keras_attn.text.tokenizers.tokenizer import UNKNOWN_TEXT, Tokenizer
from keras_attn.text.tokenizers.vocabulary import (
    SPECIAL_TOKENS,
    map_batches,
    most_frequent_tokens,
    validate_sentences,
    validate_vocabulary,
)
from keras_attn.text.tokenizers.word_splitting import join_words, split_words


class WordTokenizer(Tokenizer):
    """Tokenizer of words, split at spaces and punctuation.

    Each punctuation sign is a token of its own. `detokenize` joins words with single
    spaces, without spaces around punctuation. Runs of spaces are lost, and a word that
    is not in the vocabulary is restored as ⁇.

    Args:
        vocabulary: List of distinct `str`: `[PAD]`, `[UNK]`, `[START]`, `[END]`, words.
        lower_case: Whether to convert texts to lower case first.

    Raises:
        ValueError: If `vocabulary` is not of this form.

    Example:
        >>> from keras_attn.text import WordTokenizer
        >>> tokenizer = WordTokenizer.train(["A cat.", "A dog."], 100)
        >>> tokenizer.pieces("A  dog .")
        ['A', 'dog', '.']
        >>> tokenizer.detokenize(tokenizer.tokenize(["A  dog ."])).numpy().tolist()
        [b'A dog.']
    """

    def __init__(self, vocabulary: Iterable[str], lower_case: bool = False) -> None:
        vocabulary = validate_vocabulary(vocabulary)
        super().__init__(vocabulary)
        self.lower_case: bool = bool(lower_case)
        # Without the special tokens: no text is tokenized to them.
        first = len(SPECIAL_TOKENS)
        keys = tf.constant(vocabulary[first:], tf.string)
        ids = tf.range(first, len(vocabulary), dtype=tf.int32)
        self._table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(keys, ids), self.unknown_id
        )
        self._texts = tf.constant(["", UNKNOWN_TEXT, "", "", *vocabulary[first:]])

    @classmethod
    def train(  # pyright: ignore[reportIncompatibleMethodOverride]
        cls,
        sentences: Iterable[str],
        vocabulary_size: int = 16000,
        *,
        lower_case: bool = False,
    ) -> Self:
        """Train a tokenizer with the most frequent words of a corpus.

        Words with equal counts are in sorted order.

        Args:
            sentences: Iterable of `str`.
            vocabulary_size: Maximum number of tokens, including the 4 special ones.
            lower_case: See the class.

        Returns:
            A `WordTokenizer`.

        Raises:
            ValueError: If there are no sentences, or `vocabulary_size` is too small.
        """
        texts = validate_sentences(sentences, vocabulary_size)
        counts: collections.Counter[str] = collections.Counter()
        for words in map_batches(lambda batch: _split(batch, lower_case), texts):
            counts.update(word.decode() for word in words.values.numpy())
        return cls(most_frequent_tokens(counts, vocabulary_size), lower_case)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments, JSON serializable."""
        return {"vocabulary": self.tokens(), "lower_case": self.lower_case}

    def _encode(self, texts: Tensor) -> tf.RaggedTensor:
        words = _split(texts, self.lower_case)
        return words.with_values(self._table.lookup(words.values))

    def _decode(self, ids: tf.RaggedTensor) -> Tensor:
        return join_words(tf.gather(self._texts, ids))


def _split(texts: Tensor, lower_case: bool) -> tf.RaggedTensor:
    if lower_case:
        texts = tf.strings.lower(texts, encoding="utf-8")
    return split_words(texts)
