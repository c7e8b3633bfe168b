"""WordPiece as published with BERT, to the id."""

import tensorflow as tf
import tensorflow_text as tf_text

from keras_attn.text.tokenizers.tokenizer import UNKNOWN_TEXT, Tokenizer
from keras_attn.text.tokenizers.word_piece import join_pieces

# A longer word is unknown as a whole.
LONGEST_WORD = 100
_SPACE = r"[\t\n\r\pZ]"
_DROPPED = r"[\p{Cc}\p{Cf}\p{Co}\x{FFFD}]"
_PUNCTUATION = r"[\pP$+<=>^`|~]"
_CHINESE = (
    r"[\x{3400}-\x{4DBF}\x{4E00}-\x{9FFF}\x{F900}-\x{FAFF}\x{20000}-\x{2A6DF}"
    r"\x{2A700}-\x{2B81F}\x{2B920}-\x{2CEAF}\x{2F800}-\x{2FA1F}]"
)


class BertTokenizer(Tokenizer):
    """Subwords with the vocabulary of a published BERT model.

    Gives the ids of the `BertTokenizer` of `transformers`, with two exceptions: text
    that spells a special token, such as `[SEP]`, is cut as any other text is; and of
    some characters that Unicode got after 2015, accents and punctuation are told by
    what they are now.

    Korean words stay whole where accents are kept. Where they are stripped, syllables
    are broken up into their letters, as `transformers` does. `detokenize` as in
    `WordPieceTokenizer`.

    Args:
        vocabulary: List of distinct `str`, by id.
        special_ids: Dict of the special ids, see `Tokenizer.special_ids`.
        lower_case: Whether texts are put in lower case.
        strip_accents: Whether accents are taken off; None: in lower case only.
        split_chinese: Whether each Chinese character is a word.

    References:
        Devlin et al., 2019, BERT, https://arxiv.org/abs/1810.04805

    Example:
        tokenizer = load_published_tokenizer("all-MiniLM-L6-v2")
        tokenizer.pieces("A café", add_start=True)  # ["[CLS]", "a", "cafe"]
    """

    def __init__(
        self,
        vocabulary,
        special_ids,
        lower_case=True,
        strip_accents=None,
        split_chinese=True,
    ):
        super().__init__(vocabulary, special_ids)
        if len(set(self.tokens())) < self.vocabulary_size or "" in self.tokens():
            raise ValueError(
                "Expected a vocabulary of distinct str, none of them empty. Received: "
                f"vocabulary={self.tokens()[:6]}..."
            )
        self.lower_case = bool(lower_case)
        self.strip_accents = strip_accents
        self.split_chinese = bool(split_chinese)
        self._unknown = self.id_to_token(self.unknown_id)
        self._pieces = tf_text.FastWordpieceTokenizer(
            self.tokens(),
            token_out_type=tf.int32,
            unknown_token=self._unknown,
            max_bytes_per_word=4 * LONGEST_WORD,
            no_pretokenization=True,
        )
        texts = self.tokens()
        texts[self.unknown_id] = UNKNOWN_TEXT
        self._texts = tf.constant(texts)

    def get_config(self):
        return {
            "vocabulary": self.tokens(),
            "special_ids": self.special_ids,
            "lower_case": self.lower_case,
            "strip_accents": self.strip_accents,
            "split_chinese": self.split_chinese,
        }

    def _encode(self, texts):
        texts = tf.strings.regex_replace(self._normalized(texts), _PUNCTUATION, r" \0 ")
        words = tf.strings.split(texts)
        length = tf.strings.length(words.values, unit="UTF8_CHAR")
        known = tf.where(length > LONGEST_WORD, self._unknown, words.values)
        ids = self._pieces.tokenize(known).with_row_splits_dtype(words.row_splits.dtype)
        return words.with_values(ids).merge_dims(1, 2)

    def _normalized(self, texts):
        texts = tf.strings.regex_replace(texts, _SPACE, " ")
        texts = tf.strings.regex_replace(texts, _DROPPED, "")
        if self.split_chinese:
            texts = tf.strings.regex_replace(texts, _CHINESE, r" \0 ")
        strip = self.lower_case if self.strip_accents is None else self.strip_accents
        if strip:
            texts = tf_text.normalize_utf8(texts, "NFD")
            texts = tf.strings.regex_replace(texts, r"\p{Mn}", "")
        if self.lower_case:
            # The one letter whose lower case depends on what is around it.
            texts = tf.strings.regex_replace(texts, "Σ", "σ")
            texts = tf.strings.lower(texts, encoding="utf-8")
        return texts

    def _decode(self, ids):
        return join_pieces(tf.gather(self._texts, ids))
