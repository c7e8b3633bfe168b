"""SentencePiece: subwords learnt from raw text, without loss."""

import io
import struct

import tensorflow as tf

from keras_attn.text.tokenizers import training_texts
from keras_attn.text.tokenizers.sentence_piece_kernel import SentencePieceKernel
from keras_attn.text.tokenizers.tokenizer import UNKNOWN_TEXT, Tokenizer

SPECIAL_PIECES = ["<pad>", "<unk>", "<s>", "</s>"]
# SentencePiece writes a space as this character.
SPACE_MARK = "\u2581"
# Options of the trainer that the rest of this file relies on.
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
    """Subwords of a unigram language model, or of byte pair encoding.

    The default choice: it needs no rule for any language, and `detokenize` gives back
    exactly the text that was tokenized, whatever it holds: runs of spaces, tabs, line
    ends, Hangul, emoji, characters never seen in training (they are spelled in bytes)
    and even U+2581, the character that SentencePiece itself uses for a space.

    A word is tokenized the same at the start of a text as after a space.

    Args:
        model: The serialized SentencePiece model, bytes (or base64 of it, str), as
            `train` makes it.

    References:
        Kudo, 2018, Subword Regularization, https://arxiv.org/abs/1804.10959
        Kudo and Richardson, 2018, SentencePiece, https://arxiv.org/abs/1808.06226

    Example:
        tokenizer = SentencePieceTokenizer.train(["a cat", "a dog"], 300)
        ids = tokenizer.tokenize(["a cat"], add_end=True)
        tokenizer.detokenize(ids)  # [b"a cat"]
    """

    def __init__(self, model):
        kernel = SentencePieceKernel(model)
        tokens = kernel.tokens
        if tokens[: len(SPECIAL_PIECES)] != SPECIAL_PIECES or "<0xFF>" not in tokens:
            raise ValueError(
                "Expected a SentencePiece model with byte fallback whose first pieces "
                f"are {SPECIAL_PIECES}. Received: a model with {tokens[:4]}"
            )
        super().__init__(tokens)
        self._kernel = kernel
        self._mark_ids = [
            tokens.index(f"<0x{byte:02X}>") for byte in SPACE_MARK.encode()
        ]

    @classmethod
    def train(cls, sentences, vocabulary_size=8000, *, model_type="unigram", **options):
        """Learns the pieces. The same sentences give the same model.

        Args:
            sentences: Iterable of `str`.
            vocabulary_size: The largest number of pieces: 4 special ones, 256 bytes,
                the characters of the corpus, then longer pieces. A corpus too small
                for that many gives fewer: ask `vocabulary_size` of the result.
            model_type: `"unigram"`, `"bpe"`, `"char"` or `"word"`.
            **options: Passed to `sentencepiece.SentencePieceTrainer.train`, for example
                `character_coverage=1.0`. Text is not normalized unless
                `normalization_rule_name` or `normalization_rule_tsv` says so.

        Raises:
            ValueError: If the sentences are empty, or the vocabulary is too small.
        """
        from sentencepiece import SentencePieceTrainer

        fixed = sorted(options.keys() & FIXED_OPTIONS.keys())
        if fixed:
            raise ValueError(
                f"Expected options that leave special ids, bytes and spaces as they "
                f"are. Received: options with {fixed}"
            )
        texts = training_texts.checked_sentences(sentences, vocabulary_size)
        # A leading space, as `_encode` adds; and no characters that the trainer keeps
        # for itself, or it would drop the sentence.
        reserved = str.maketrans({SPACE_MARK: " ", "\u2585": " ", "\0": " "})
        texts = [" " + text.translate(reserved) for text in texts]
        model = io.BytesIO()
        settings = {
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
                **settings,
                **FIXED_OPTIONS,
            )
        except (RuntimeError, OSError, ValueError, TypeError) as error:
            raise ValueError(
                "Expected a vocabulary size and options that suit this corpus; "
                f"SentencePiece says: {' '.join(str(error).split())} "
                f"Received: vocabulary_size={vocabulary_size}, "
                f"model_type={model_type!r}, options={options}"
            ) from error
        normalized = {"normalization_rule_name", "normalization_rule_tsv"}
        unchanged = not normalized & options.keys()
        return cls(model.getvalue() + _idle_rule() * unchanged)

    def get_config(self):
        return {"model": self._kernel.base64}

    def _encode(self, texts):
        texts = tf.where(
            tf.strings.length(texts) > 0, tf.strings.join([" ", texts]), ""
        )
        # SentencePiece would read U+2581 as a space: spell it in bytes instead.
        parts = tf.strings.split(texts, SPACE_MARK)
        ids = self._kernel.make().tokenize(parts.values)
        followed = tf.range(parts.values.shape[0] or tf.size(parts.values, tf.int64))
        is_last = followed + 1 == tf.gather(parts.row_limits(), parts.value_rowids())
        marks = tf.where(is_last, tf.constant(0, tf.int64), len(self._mark_ids))
        count = tf.reduce_sum(tf.cast(~is_last, tf.int32))
        marks = tf.RaggedTensor.from_row_lengths(
            tf.tile(self._mark_ids, [count]), marks, validate=False
        )
        ids = tf.concat([ids.with_row_splits_dtype(tf.int64), marks], axis=1)
        return parts.with_values(ids).merge_dims(1, 2)

    def _decode(self, ids):
        texts = self._kernel.make().detokenize(ids)
        texts = tf.strings.regex_replace(texts, "^ ", "", replace_global=False)
        return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")


def _idle_rule():
    """What to append to a model to give it one normalization rule that never applies.

    A model without any makes each kernel write a line to the console. The rule reads
    U+2581 as a space, and `_encode` lets no U+2581 through. In a protocol buffer, what
    comes later is merged into what came before: this is a field 3 (the normalizer) with
    a field 2 (the rules, a double-array trie and the texts it points to).
    """
    trie = [unit ^ 1 for unit in range(256)]
    # Root, the three bytes of U+2581 and the place of their text: label and offset.
    trie[:5] = [227 << 10, 149 << 10 | 0xE2, 128 << 10 | 0x96, 7 << 10 | 0x181, 1 << 31]
    field = struct.pack("<257I", 4 * len(trie), *trie) + b" \0"
    for number in (2, 3):
        length = bytes([len(field) & 127 | 128, len(field) >> 7])
        field = bytes([number << 3 | 2]) + length + field
    return field
