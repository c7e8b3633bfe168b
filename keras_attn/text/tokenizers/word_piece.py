"""WordPiece tokenizer."""

from collections.abc import Iterable
from typing import Any, Self, cast

import tensorflow as tf
import tensorflow_text as tf_text

from keras_attn._types import Tensor
from keras_attn.text.tokenizers.tokenizer import UNKNOWN_TEXT, Tokenizer
from keras_attn.text.tokenizers.vocabulary import (
    SPECIAL_TOKENS,
    validate_sentences,
    validate_vocabulary,
)
from keras_attn.text.tokenizers.word_splitting import join_words

# Prefix of a piece that continues a word.
_CONTINUATION = "##"


class WordPieceTokenizer(Tokenizer):
    """Tokenizer of subwords as in BERT: longest match first, `##` before inner pieces.

    Texts are first split at spaces and punctuation. `detokenize` joins words with
    single spaces, without spaces around punctuation. Runs of spaces and control
    characters are lost, and a word of more than 100 bytes, or with a character that is
    not in the vocabulary, is restored as ⁇. Hangul syllables and accents are preserved,
    even with `lower_case` (unlike the uncased models of BERT, which strip accents and
    decompose syllables).

    Args:
        vocabulary: List of distinct `str`: `[PAD]`, `[UNK]`, `[START]`, `[END]`, then
            pieces.
        lower_case: Whether to convert texts to lower case first.

    Raises:
        ValueError: If `vocabulary` is not of this form.

    References:
        Schuster and Nakajima, 2012, Japanese and Korean Voice Search.
        Song et al., 2021, Fast WordPiece Tokenization,
        https://arxiv.org/abs/2012.15524

    Example:
        >>> from keras_attn.text import WordPieceTokenizer
        >>> vocabulary = ["[PAD]", "[UNK]", "[START]", "[END]", "walk", "##s", "##ed"]
        >>> tokenizer = WordPieceTokenizer(vocabulary)
        >>> tokenizer.pieces("walks walked")
        ['walk', '##s', 'walk', '##ed']
        >>> tokenizer.detokenize(tokenizer.tokenize(["walks"])).numpy().tolist()
        [b'walks']
    """

    def __init__(self, vocabulary: Iterable[str], lower_case: bool = False) -> None:
        vocabulary = validate_vocabulary(vocabulary)
        super().__init__(vocabulary)
        self.lower_case: bool = bool(lower_case)
        self._tokenizer: Any = tf_text.FastBertTokenizer(
            vocabulary,
            token_out_type=tf.int32,  # pyright: ignore[reportArgumentType]
            unknown_token=vocabulary[cast(int, self.unknown_id)],
            lower_case_nfd_strip_accents=False,
        )
        first = len(SPECIAL_TOKENS)
        self._texts = tf.constant(["", UNKNOWN_TEXT, "", "", *vocabulary[first:]])

    @classmethod
    def train(
        cls,
        sentences: Iterable[str],
        vocabulary_size: int = 8000,
        *,
        lower_case: bool = False,
        **options: Any,
    ) -> Self:
        """Train a tokenizer with the WordPiece learner of tensorflow_text.

        The learner is written in Python and slow: about 40 s for 10,000 long Korean
        sentences. The same sentences result in the same vocabulary.

        Args:
            sentences: Iterable of `str`.
            vocabulary_size: Maximum number of tokens, including the 4 special ones.
                The learner may stop up to 5% below it, and a small corpus results in a
                smaller vocabulary.
            lower_case: See the class.
            **options: Options of the learner, for example `max_unique_chars`, the size
                of the alphabet (default: a quarter of the vocabulary, since each letter
                takes two tokens).

        Returns:
            A `WordPieceTokenizer`.

        Raises:
            ValueError: If there are no sentences, or `vocabulary_size` is too small.
        """
        # Only training needs it.
        from tensorflow_text.tools.wordpiece_vocab import bert_vocab_from_dataset

        texts = validate_sentences(sentences, vocabulary_size, min_vocabulary_size=8)
        dataset = tf.data.Dataset.from_tensor_slices(texts).batch(1024)
        if lower_case:
            dataset = dataset.map(_lower)
        learner_options = {
            "max_unique_chars": (vocabulary_size - len(SPECIAL_TOKENS)) // 4,
            "lower_thresh": 2,
            **options,
        }
        vocabulary = bert_vocab_from_dataset.bert_vocab_from_dataset(
            dataset,
            vocabulary_size,
            SPECIAL_TOKENS,
            bert_tokenizer_params={"lower_case": False},
            learn_params=learner_options,
        )
        try:
            return cls(vocabulary[:vocabulary_size], lower_case)
        except RuntimeError as error:  # no piece that begins a word is left
            raise ValueError(
                "Expected a vocabulary size that is large enough for these sentences. "
                f"Received: vocabulary_size={vocabulary_size}"
            ) from error

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments, JSON serializable."""
        return {"vocabulary": self.tokens(), "lower_case": self.lower_case}

    def _encode(self, texts: Tensor) -> tf.RaggedTensor:
        return self._tokenizer.tokenize(_lower(texts) if self.lower_case else texts)

    def _decode(self, ids: tf.RaggedTensor) -> Tensor:
        return join_pieces(tf.gather(self._texts, ids))


def join_pieces(pieces: tf.RaggedTensor) -> Tensor:
    """Join WordPiece pieces to texts.

    Args:
        pieces: Ragged string tensor `(N, None)`.

    Returns:
        String tensor `(N,)`.
    """
    texts = tf.strings.reduce_join(pieces, axis=-1, separator=" ")
    texts = tf.strings.regex_replace(texts, f"(^| ){_CONTINUATION}", "")
    return join_words(tf.strings.split(texts, " "))


def _lower(texts: Tensor) -> Tensor:
    return tf.strings.lower(texts, encoding="utf-8")
