"""Published SentencePiece models: T5, Llama, Mistral and Marian."""

from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from keras_attn._types import Tensor
from keras_attn.text.tokenizers.sentence_piece_model import SentencePieceModel
from keras_attn.text.tokenizers.tokenizer import Tokenizer


class PublishedSentencePieceTokenizer(Tokenizer):
    """SentencePiece model with the ids of its pieces: T5, Llama, Mistral.

    The ids are those of the `sentencepiece` package, and therefore of `transformers`,
    except that the string of a special token in a text, such as `</s>` or
    `<extra_id_0>`, is tokenized as ordinary text.

    Args:
        model: The serialized SentencePiece model, bytes or base64 of it.
        special_ids: Dict of the special ids, see `Tokenizer.special_ids`.
        extra_tokens: List of `str`, tokens that follow those of the model. No text is
            tokenized to them, and `detokenize` drops them.

    Raises:
        ValueError: If `model` is not a SentencePiece model.

    Reference:
        Raffel et al., 2020, T5, https://arxiv.org/abs/1910.10683

    Example:
        >>> from keras_attn import text
        >>> trained = text.SentencePieceTokenizer.train(["a cat", "a dog"], 300)
        >>> model = trained.get_config()["model"]
        >>> special_ids = {"start_token_id": 2, "end_token_id": 3}
        >>> tokenizer = text.PublishedSentencePieceTokenizer(
        ...     model, special_ids, extra_tokens=["<extra_id_0>"]
        ... )
        >>> tokenizer.tokens()[-1]
        '<extra_id_0>'
        >>> ids = tokenizer.tokenize(["a cat"], add_end=True)
        >>> tokenizer.detokenize(ids).numpy().tolist()
        [b'a cat']
    """

    def __init__(
        self,
        model: bytes | str,
        special_ids: Mapping[str, int | None],
        extra_tokens: Iterable[str] = (),
    ) -> None:
        sentence_piece = SentencePieceModel(model)
        super().__init__([*sentence_piece.tokens, *extra_tokens], special_ids)
        self._model = sentence_piece

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments, JSON serializable."""
        return {
            "model": self._model.base64,
            "special_ids": self.special_ids,
            "extra_tokens": self.tokens()[len(self._model.tokens) :],
        }

    def _encode(self, texts: Tensor) -> tf.RaggedTensor:
        return self._model.create_tokenizer().tokenize(texts)

    def _decode(self, ids: tf.RaggedTensor) -> Tensor:
        is_piece = ids.with_values(ids.values < len(self._model.tokens))
        ids = tf.ragged.boolean_mask(ids, is_piece)
        return _replace_invalid(self._model.create_tokenizer().detokenize(ids))


class MarianTokenizer(Tokenizer):
    """Tokenizer of the source or the target of a Marian translation model.

    The pieces are those of the SentencePiece model of the side, the ids those of a
    vocabulary that both sides share.

    The ids are those of the `MarianTokenizer` of `transformers`, except that the string
    of a special token in a text, such as `</s>`, is tokenized as ordinary text. For a
    model with several target languages, a text may begin with the language to translate
    to, such as `>>fra<<`.

    Args:
        model: The serialized SentencePiece model of the side, bytes or base64 of it.
        vocabulary: List of distinct `str`, by id.
        special_ids: Dict of the special ids, see `Tokenizer.special_ids`.

    Raises:
        ValueError: If `model` is not a SentencePiece model.

    Reference:
        Tiedemann and Thottingal, 2020, OPUS-MT,
        https://aclanthology.org/2020.eamt-1.61

    Example:
        >>> from keras_attn import text
        >>> trained = text.SentencePieceTokenizer.train(["a cat", "a dog"], 300)
        >>> vocabulary = ["</s>", "<unk>", *trained.tokens()[4:], ">>fra<<", "<pad>"]
        >>> last = len(vocabulary) - 1
        >>> special_ids = {
        ...     "padding_id": last,
        ...     "unknown_id": 1,
        ...     "start_token_id": last,
        ...     "end_token_id": 0,
        ... }
        >>> model = trained.get_config()["model"]
        >>> tokenizer = text.MarianTokenizer(model, vocabulary, special_ids)
        >>> tokenizer.pieces(">>fra<<a cat", add_end=True)[0]
        '>>fra<<'
    """

    def __init__(
        self,
        model: bytes | str,
        vocabulary: Iterable[str],
        special_ids: Mapping[str, int | None],
    ) -> None:
        super().__init__(vocabulary, special_ids)
        self._model = SentencePieceModel(model)
        special = set(self.special_ids.values())
        ordinary = [i for i in range(self.vocabulary_size) if i not in special]
        keys = tf.constant([self.id_to_token(i) for i in ordinary], tf.string)
        ids = tf.constant(ordinary, tf.int32)
        self._table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(keys, ids), self.unknown_id
        )
        self._pieces = tf.constant(self.tokens())

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments, JSON serializable."""
        return {
            "model": self._model.base64,
            "vocabulary": self.tokens(),
            "special_ids": self.special_ids,
        }

    def _encode(self, texts: Tensor) -> tf.RaggedTensor:
        replace = tf.strings.regex_replace
        language = replace(texts, "(?s)^(>>.*?<<)?.*$", r"\1", replace_global=False)
        texts = replace(texts, "(?s)^>>.*?<<", "", replace_global=False)
        languages = tf.ragged.boolean_mask(
            language[:, tf.newaxis], tf.strings.length(language)[:, tf.newaxis] > 0
        )
        pieces = self._model.create_tokenizer(tf.string).tokenize(texts)
        pieces = tf.concat([languages, pieces.with_row_splits_dtype(tf.int64)], axis=1)
        return pieces.with_values(self._table.lookup(pieces.values))

    def _decode(self, ids: tf.RaggedTensor) -> Tensor:
        pieces = tf.gather(self._pieces, ids)
        texts = self._model.create_tokenizer(tf.string).detokenize(pieces)
        return _replace_invalid(texts)


def _replace_invalid(texts: Tensor) -> Tensor:
    """Replace invalid UTF-8, which the byte pieces of a model can result in."""
    return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")
