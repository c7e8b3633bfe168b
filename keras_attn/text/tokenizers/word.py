"""Whole words as tokens."""

import collections

import tensorflow as tf

from keras_attn.text.tokenizers import training_texts, words
from keras_attn.text.tokenizers.tokenizer import UNKNOWN_TEXT, Tokenizer


class WordTokenizer(Tokenizer):
    """Words, cut at spaces and punctuation; each punctuation sign is a token.

    `detokenize` joins words with single spaces and leaves none around punctuation;
    runs of spaces are lost, and a word that is not in the vocabulary comes back as ⁇.

    Args:
        vocabulary: List of distinct `str`: `[PAD]`, `[UNK]`, `[START]`, `[END]`, words.
        lower_case: Whether texts are put in lower case first.

    Example:
        tokenizer = WordTokenizer.train(["A cat.", "A dog."], 100)
        tokenizer.detokenize(tokenizer.tokenize(["A  dog ."]))  # [b"A dog."]
    """

    def __init__(self, vocabulary, lower_case=False):
        vocabulary = training_texts.checked_vocabulary(vocabulary)
        super().__init__(vocabulary)
        self.lower_case = bool(lower_case)
        # The special tokens are left out: text cannot spell them.
        first = len(training_texts.SPECIAL_TOKENS)
        keys = tf.constant(vocabulary[first:], tf.string)
        ids = tf.range(first, len(vocabulary), dtype=tf.int32)
        self._table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(keys, ids), self.unknown_id
        )
        self._texts = tf.constant(["", UNKNOWN_TEXT, "", "", *vocabulary[first:]])

    @classmethod
    def train(cls, sentences, vocabulary_size=16000, *, lower_case=False):
        """Takes the most frequent words; equal counts in sorted order.

        Args:
            sentences: Iterable of `str`.
            vocabulary_size: The largest number of tokens, the 4 special ones included.
            lower_case: See the class.

        Raises:
            ValueError: If the sentences are empty, or the vocabulary is too small.
        """
        texts = training_texts.checked_sentences(sentences, vocabulary_size)
        counts = collections.Counter()
        for cut in training_texts.batches(texts, lambda t: _split(t, lower_case)):
            counts.update(word.decode() for word in cut.values.numpy())
        return cls(training_texts.most_frequent(counts, vocabulary_size), lower_case)

    def get_config(self):
        return {"vocabulary": self.tokens(), "lower_case": self.lower_case}

    def _encode(self, texts):
        cut = _split(texts, self.lower_case)
        return cut.with_values(self._table.lookup(cut.values))

    def _decode(self, ids):
        return words.join_words(tf.gather(self._texts, ids))


def _split(texts, lower_case):
    if lower_case:
        texts = tf.strings.lower(texts, encoding="utf-8")
    return words.split_words(texts)
