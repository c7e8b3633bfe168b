"""SentencePiece tokenizer, trained on raw text and lossless."""

import io
import struct
from collections.abc import Iterable
from typing import Any, Literal, Self

import tensorflow as tf

from keras_attn._types import Tensor
from keras_attn.text.tokenizers.sentence_piece_model import SentencePieceModel
from keras_attn.text.tokenizers.tokenizer import UNKNOWN_TEXT, Tokenizer
from keras_attn.text.tokenizers.vocabulary import validate_sentences

SPECIAL_PIECES = ["<pad>", "<unk>", "<s>", "</s>"]
# SentencePiece represents a space by this character.
SPACE_MARK = "\u2581"
# Options of the trainer that this module relies on.
FIXED_OPTIONS = {
    "add_dummy_prefix": False,
    "remove_extra_whitespaces": False,
    "byte_fallback": True,
    "pad_id": 0,
    "unk_id": 1,
    "bos_id": 2,
    "eos_id": 3,
    "unk_surface": UNKNOWN_TEXT,
    "pad_piece": SPECIAL_PIECES[0],
    "unk_piece": SPECIAL_PIECES[1],
    "bos_piece": SPECIAL_PIECES[2],
    "eos_piece": SPECIAL_PIECES[3],
}


class SentencePieceTokenizer(Tokenizer):
    """Tokenizer of subwords from a unigram language model or byte pair encoding.

    The recommended tokenizer: it needs no language-specific rules, and `detokenize`
    restores the exact text. This includes runs of spaces, tabs, line ends, Hangul,
    emoji, characters that do not occur in the training corpus (they are tokenized to
    bytes) and U+2581, the character that SentencePiece itself uses for a space.

    The tokens of a word are the same at the start of a text and after a space.

    Args:
        model: The serialized SentencePiece model, bytes (or base64 of it, `str`), as
            created by `train`.

    Raises:
        ValueError: If `model` is not a SentencePiece model, or was trained with
            different special pieces or without byte fallback.

    References:
        Kudo, 2018, Subword Regularization, https://arxiv.org/abs/1804.10959
        Kudo and Richardson, 2018, SentencePiece, https://arxiv.org/abs/1808.06226

    Example:
        >>> from keras_attn.text import SentencePieceTokenizer
        >>> tokenizer = SentencePieceTokenizer.train(["a cat", "a dog"], 300)
        >>> ids = tokenizer.tokenize(["a  cat", "a fish"], add_end=True)
        >>> tokenizer.detokenize(ids).numpy().tolist()
        [b'a  cat', b'a fish']
    """

    def __init__(self, model: bytes | str) -> None:
        sentence_piece = SentencePieceModel(model)
        tokens = sentence_piece.tokens
        if tokens[: len(SPECIAL_PIECES)] != SPECIAL_PIECES or "<0xFF>" not in tokens:
            raise ValueError(
                "Expected a SentencePiece model with byte fallback whose first pieces "
                f"are {SPECIAL_PIECES}. Received: a model with {tokens[:4]}"
            )
        super().__init__(tokens)
        self._model = sentence_piece
        self._mark_ids = [
            tokens.index(f"<0x{byte:02X}>") for byte in SPACE_MARK.encode()
        ]

    @classmethod
    def train(
        cls,
        sentences: Iterable[str],
        vocabulary_size: int = 8000,
        *,
        model_type: Literal["unigram", "bpe", "char", "word"] = "unigram",
        **options: Any,
    ) -> Self:
        """Train a SentencePiece model.

        The same sentences result in the same model.

        Args:
            sentences: Iterable of `str`.
            vocabulary_size: Maximum number of pieces: 4 special ones, 256 bytes, the
                characters of the corpus, then longer pieces. A small corpus results in
                a smaller vocabulary; see `vocabulary_size` of the tokenizer.
            model_type: `"unigram"`, `"bpe"`, `"char"` or `"word"`.
            **options: Passed to `sentencepiece.SentencePieceTrainer.train`, for example
                `character_coverage=1.0`. Text is not normalized, unless
                `normalization_rule_name` or `normalization_rule_tsv` is given.

        Returns:
            A `SentencePieceTokenizer`.

        Raises:
            ValueError: If there are no sentences, `vocabulary_size` is too small, or
                an option is invalid.
        """
        from sentencepiece import SentencePieceTrainer

        fixed = sorted(options.keys() & FIXED_OPTIONS.keys())
        if fixed:
            raise ValueError(
                f"Expected options that do not change special ids, bytes or spaces. "
                f"Received: options with {fixed}"
            )
        texts = validate_sentences(sentences, vocabulary_size)
        # A leading space, as added by `_encode`. Characters that the trainer reserves
        # are replaced, because it would skip sentences with them.
        reserved = str.maketrans({SPACE_MARK: " ", "\u2585": " ", "\0": " "})
        texts = [" " + text.translate(reserved) for text in texts]
        model = io.BytesIO()
        trainer_options = {
            "normalization_rule_name": "identity",
            "hard_vocab_limit": False,
            "max_sentence_length": max(10, *(len(text.encode()) for text in texts)),
            "minloglevel": 2,
            **options,
        }
        try:
            SentencePieceTrainer.train(
                sentence_iterator=iter(texts),
                model_writer=model,
                vocab_size=vocabulary_size,
                model_type=model_type,
                **trainer_options,
                **FIXED_OPTIONS,
            )
        except (RuntimeError, OSError, ValueError, TypeError) as error:
            raise ValueError(
                "Expected a vocabulary size and options that are valid for this "
                "corpus. Error of SentencePiece: "
                f"{' '.join(str(error).split())} Received: "
                f"vocabulary_size={vocabulary_size}, model_type={model_type!r}, "
                f"options={options}"
            ) from error
        normalizes = {"normalization_rule_name", "normalization_rule_tsv"} & set(
            options
        )
        suffix = b"" if normalizes else _inert_normalizer()
        return cls(model.getvalue() + suffix)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments, JSON serializable."""
        return {"model": self._model.base64}

    def _encode(self, texts: Tensor) -> tf.RaggedTensor:
        texts = tf.where(
            tf.strings.length(texts) > 0, tf.strings.join([" ", texts]), ""
        )
        # SentencePiece would read U+2581 as a space, so it is encoded as bytes.
        parts = tf.strings.split(texts, SPACE_MARK)
        ids = self._model.create_tokenizer().tokenize(parts.values)
        indices = tf.range(parts.values.shape[0] or tf.size(parts.values, tf.int64))
        is_last = indices + 1 == tf.gather(parts.row_limits(), parts.value_rowids())
        num_mark_ids = tf.where(is_last, tf.constant(0, tf.int64), len(self._mark_ids))
        num_marks = tf.reduce_sum(tf.cast(~is_last, tf.int32))
        mark_ids = tf.tile(tf.constant(self._mark_ids), num_marks[tf.newaxis])
        marks = tf.RaggedTensor.from_row_lengths(  # pyright: ignore[reportAttributeAccessIssue]
            mark_ids, num_mark_ids, validate=False
        )
        ids = tf.concat([ids.with_row_splits_dtype(tf.int64), marks], axis=1)
        return parts.with_values(ids).merge_dims(1, 2)

    def _decode(self, ids: tf.RaggedTensor) -> Tensor:
        texts = self._model.create_tokenizer().detokenize(ids)
        texts = tf.strings.regex_replace(texts, "^ ", "", replace_global=False)
        return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")


def _inert_normalizer() -> bytes:
    """Return the suffix that adds a normalization rule that never applies to a model.

    A model without any rule makes each of its kernels print a line to the console. The
    rule maps U+2581 to a space, and `_encode` removes every U+2581 before. Fields at
    the end of a protocol buffer are merged into earlier ones, so the suffix is a field
    3 (the normalizer) with a field 2 (the rules: a double-array trie and the
    replacement texts).
    """
    trie = [unit ^ 1 for unit in range(256)]
    # The root, the three bytes of U+2581 (label and offset) and the position of the
    # replacement text.
    trie[:5] = [227 << 10, 149 << 10 | 0xE2, 128 << 10 | 0x96, 7 << 10 | 0x181, 1 << 31]
    field = struct.pack("<257I", 4 * len(trie), *trie) + b" \0"
    for number in (2, 3):
        length = bytes([len(field) & 127 | 128, len(field) >> 7])
        field = bytes([number << 3 | 2]) + length + field
    return field
