"""WordPiece tokenizer of published BERT models."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

import tensorflow as tf
import tensorflow_text as tf_text

from keras_attn._types import Tensor
from keras_attn.text.tokenizers.tokenizer import UNKNOWN_TEXT, Tokenizer
from keras_attn.text.tokenizers.word_piece import join_pieces

# A word with more characters is tokenized to the unknown token.
MAX_WORD_LENGTH = 100
_SPACE = r"[\t\n\r\pZ]"
_REMOVED = r"[\p{Cc}\p{Cf}\p{Co}\x{FFFD}]"
_PUNCTUATION = r"[\pP$+<=>^`|~]"
_CHINESE = (
    r"[\x{3400}-\x{4DBF}\x{4E00}-\x{9FFF}\x{F900}-\x{FAFF}\x{20000}-\x{2A6DF}"
    r"\x{2A700}-\x{2B81F}\x{2B920}-\x{2CEAF}\x{2F800}-\x{2FA1F}]"
)


class BertTokenizer(Tokenizer):
    """Tokenizer of subwords with the vocabulary of a published BERT model.

    The ids are those of the `BertTokenizer` of `transformers`, with two exceptions. The
    string of a special token in a text, such as `[SEP]`, is tokenized as ordinary text.
    For some characters that were added to Unicode after 2015, accents and punctuation
    are classified by a newer version of Unicode.

    Korean words stay intact if accents are kept. If accents are stripped, syllables are
    decomposed into their letters, as in `transformers`. `detokenize` works as in
    `WordPieceTokenizer`.

    Args:
        vocabulary: List of distinct `str`, by id.
        special_ids: Dict of the special ids, see `Tokenizer.special_ids`.
        lower_case: Whether to convert texts to lower case.
        strip_accents: Whether to strip accents. Default: the value of `lower_case`.
        split_chinese: Whether each Chinese character is a word.

    Raises:
        ValueError: If the tokens are not distinct or one of them is empty.

    Reference:
        Devlin et al., 2019, BERT, https://arxiv.org/abs/1810.04805

    Example:
        >>> from keras_attn.text import BertTokenizer
        >>> vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "cafe", "##s"]
        >>> special_ids = {"start_token_id": 2, "end_token_id": 3}
        >>> tokenizer = BertTokenizer(vocabulary, special_ids)
        >>> tokenizer.pieces("A café", add_start=True, add_end=True)
        ['[CLS]', 'a', 'cafe', '[SEP]']
        >>> tokenizer.detokenize(tokenizer.tokenize(["a cafes"])).numpy().tolist()
        [b'a cafes']
    """

    def __init__(
        self,
        vocabulary: Iterable[str],
        special_ids: Mapping[str, int | None],
        lower_case: bool = True,
        strip_accents: bool | None = None,
        split_chinese: bool = True,
    ) -> None:
        super().__init__(vocabulary, special_ids)
        if len(set(self.tokens())) < self.vocabulary_size or "" in self.tokens():
            raise ValueError(
                "Expected a vocabulary of distinct, non-empty str. Received: "
                f"vocabulary={self.tokens()[:6]}..."
            )
        self.lower_case: bool = bool(lower_case)
        self.strip_accents = strip_accents
        self.split_chinese: bool = bool(split_chinese)
        unknown_id = cast(int, self.unknown_id)
        self._unknown = self.id_to_token(unknown_id)
        self._pieces = tf_text.FastWordpieceTokenizer(
            self.tokens(),
            token_out_type=tf.int32,  # pyright: ignore[reportArgumentType]
            unknown_token=self._unknown,
            max_bytes_per_word=4 * MAX_WORD_LENGTH,
            no_pretokenization=True,
        )
        texts = self.tokens()
        texts[unknown_id] = UNKNOWN_TEXT
        self._texts = tf.constant(texts)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments, JSON serializable."""
        return {
            "vocabulary": self.tokens(),
            "special_ids": self.special_ids,
            "lower_case": self.lower_case,
            "strip_accents": self.strip_accents,
            "split_chinese": self.split_chinese,
        }

    def _encode(self, texts: Tensor) -> tf.RaggedTensor:
        texts = tf.strings.regex_replace(self._normalize(texts), _PUNCTUATION, r" \0 ")
        words = tf.strings.split(texts)
        length = tf.strings.length(words.values, unit="UTF8_CHAR")
        values = tf.where(length > MAX_WORD_LENGTH, self._unknown, words.values)
        ids = self._pieces.tokenize(values)
        ids = ids.with_row_splits_dtype(words.row_splits.dtype)
        return words.with_values(ids).merge_dims(1, 2)

    def _normalize(self, texts: Tensor) -> Tensor:
        texts = tf.strings.regex_replace(texts, _SPACE, " ")
        texts = tf.strings.regex_replace(texts, _REMOVED, "")
        if self.split_chinese:
            texts = tf.strings.regex_replace(texts, _CHINESE, r" \0 ")
        strip = self.lower_case if self.strip_accents is None else self.strip_accents
        if strip:
            texts = tf_text.normalize_utf8(texts, "NFD")
            texts = tf.strings.regex_replace(texts, r"\p{Mn}", "")
        if self.lower_case:
            # The only letter whose lower case depends on its neighbors.
            texts = tf.strings.regex_replace(texts, "Σ", "σ")
            texts = tf.strings.lower(texts, encoding="utf-8")
        return texts

    def _decode(self, ids: tf.RaggedTensor) -> Tensor:
        return join_pieces(tf.gather(self._texts, ids))
