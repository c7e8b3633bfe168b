"""Characters as tokens."""

import collections

import tensorflow as tf

from keras_attn.text.tokenizers import training_texts
from keras_attn.text.tokenizers.tokenizer import UNKNOWN_TEXT, Tokenizer


class CharacterTokenizer(Tokenizer):
    """Unicode characters (code points), spaces included.

    `detokenize` gives back exactly the text that was tokenized, as long as all its
    characters are in the vocabulary; any other comes back as ⁇.

    Args:
        vocabulary: List of distinct `str`: `[PAD]`, `[UNK]`, `[START]`, `[END]`, then
            single characters.

    Example:
        tokenizer = CharacterTokenizer.train(["a cat"])
        tokenizer.pieces("cat")  # ["c", "a", "t"]
    """

    def __init__(self, vocabulary):
        vocabulary = training_texts.checked_vocabulary(vocabulary)
        first = len(training_texts.SPECIAL_TOKENS)
        long = [token for token in vocabulary[first:] if len(token) != 1]
        if long:
            raise ValueError(
                f"Expected a vocabulary of single characters. "
                f"Received: vocabulary with {long[0]!r}"
            )
        super().__init__(vocabulary)
        ranked = sorted((ord(c), i) for i, c in enumerate(vocabulary[first:], first))
        # A sorted search needs no table: nothing to track, nothing to initialize. The
        # last entry is no character; it catches what is beyond the others.
        self._sorted = tf.constant([code for code, _ in ranked] + [0x110000], tf.int32)
        self._sorted_ids = tf.constant([i for _, i in ranked] + [self.unknown_id])
        special = [0, ord(UNKNOWN_TEXT), 0, 0]
        self._codes = tf.constant(special + [ord(c) for c in vocabulary[first:]])

    @classmethod
    def train(cls, sentences, vocabulary_size=4000):
        """Takes the most frequent characters; equal counts in sorted order.

        Args:
            sentences: Iterable of `str`.
            vocabulary_size: The largest number of tokens, the 4 special ones included.

        Raises:
            ValueError: If the sentences are empty, or the vocabulary is too small.
        """
        texts = training_texts.checked_sentences(sentences, vocabulary_size)
        counts = collections.Counter()
        for text in texts:
            counts.update(text)
        return cls(training_texts.most_frequent(counts, vocabulary_size))

    def get_config(self):
        return {"vocabulary": self.tokens()}

    def _encode(self, texts):
        codes = tf.strings.unicode_decode(texts, "UTF-8")
        place = tf.searchsorted(self._sorted, codes.values)
        known = tf.gather(self._sorted, place) == codes.values
        ids = tf.where(known, tf.gather(self._sorted_ids, place), self.unknown_id)
        return codes.with_values(ids)

    def _decode(self, ids):
        return tf.strings.unicode_encode(tf.gather(self._codes, ids), "UTF-8")
