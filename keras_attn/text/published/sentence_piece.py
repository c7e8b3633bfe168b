"""SentencePiece models as published: T5's, Llama's, and Marian's two."""

import tensorflow as tf

from keras_attn.text.tokenizers.sentence_piece_kernel import SentencePieceKernel
from keras_attn.text.tokenizers.tokenizer import Tokenizer


class PublishedSentencePieceTokenizer(Tokenizer):
    """A SentencePiece model with the ids it was trained with: T5, Llama, Mistral.

    Gives the ids of the `sentencepiece` package, and so of `transformers`, except that
    text that spells a special token, such as `</s>` or `<extra_id_0>`, is cut as any
    other text is.

    Args:
        model: The serialized SentencePiece model, bytes or base64 of it.
        special_ids: Dict of the special ids, see `Tokenizer.special_ids`.
        extra_tokens: List of `str`, tokens after those of the model, which no text is
            tokenized to. `detokenize` drops them.

    Reference:
        Raffel et al., 2020, T5, https://arxiv.org/abs/1910.10683
    """

    def __init__(self, model, special_ids, extra_tokens=()):
        kernel = SentencePieceKernel(model)
        super().__init__([*kernel.tokens, *extra_tokens], special_ids)
        self._kernel = kernel

    def get_config(self):
        return {
            "model": self._kernel.base64,
            "special_ids": self.special_ids,
            "extra_tokens": self.tokens()[len(self._kernel.tokens) :],
        }

    def _encode(self, texts):
        return self._kernel.make().tokenize(texts)

    def _decode(self, ids):
        is_piece = ids.with_values(ids.values < len(self._kernel.tokens))
        return _text(
            self._kernel.make().detokenize(tf.ragged.boolean_mask(ids, is_piece))
        )


class MarianTokenizer(Tokenizer):
    """One side of a Marian translation model: pieces of a SentencePiece model, whose
    ids are those of a vocabulary that both sides share.

    Gives the ids of the `MarianTokenizer` of `transformers`, except that text that
    spells a special token, such as `</s>`, is cut as any other text is. A text may
    begin with the language to translate to, `>>fra<<`, where the model knows several.

    Args:
        model: The serialized SentencePiece model of the side, bytes or base64 of it.
        vocabulary: List of distinct `str`, by id.
        special_ids: Dict of the special ids, see `Tokenizer.special_ids`.

    Reference:
        Tiedemann and Thottingal, 2020, OPUS-MT,
        https://aclanthology.org/2020.eamt-1.61
    """

    def __init__(self, model, vocabulary, special_ids):
        super().__init__(vocabulary, special_ids)
        self._kernel = SentencePieceKernel(model)
        special = set(self.special_ids.values())
        known = [i for i in range(self.vocabulary_size) if i not in special]
        keys = tf.constant([self.id_to_token(i) for i in known], tf.string)
        ids = tf.constant(known, tf.int32)
        self._table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(keys, ids), self.unknown_id
        )
        self._pieces = tf.constant(self.tokens())

    def get_config(self):
        return {
            "model": self._kernel.base64,
            "vocabulary": self.tokens(),
            "special_ids": self.special_ids,
        }

    def _encode(self, texts):
        replace = tf.strings.regex_replace
        language = replace(texts, "(?s)^(>>.*?<<)?.*$", r"\1", replace_global=False)
        texts = replace(texts, "(?s)^>>.*?<<", "", replace_global=False)
        languages = tf.ragged.boolean_mask(
            language[:, tf.newaxis], tf.strings.length(language)[:, tf.newaxis] > 0
        )
        pieces = self._kernel.make(tf.string).tokenize(texts)
        pieces = tf.concat([languages, pieces.with_row_splits_dtype(tf.int64)], axis=1)
        return pieces.with_values(self._table.lookup(pieces.values))

    def _decode(self, ids):
        pieces = tf.gather(self._pieces, ids)
        return _text(self._kernel.make(tf.string).detokenize(pieces))


def _text(decoded):
    """Valid text: what a model spells in bytes need not be."""
    return tf.strings.unicode_transcode(decoded, "UTF-8", "UTF-8", errors="replace")
