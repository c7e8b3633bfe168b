"""WordPiece: the subwords of BERT."""

import tensorflow as tf
import tensorflow_text as tf_text

from keras_attn.text.tokenizers import training_texts, words
from keras_attn.text.tokenizers.tokenizer import UNKNOWN_TEXT, Tokenizer

_CONTINUED = "##"


class WordPieceTokenizer(Tokenizer):
    """Subwords as BERT cuts them: longest match first, `##` before an inner piece.

    Texts are cut at spaces and punctuation before. `detokenize` joins words with single
    spaces and leaves none around punctuation; runs of spaces and control characters are
    lost, and a word with a character that is not in the vocabulary, or of more than 100
    bytes, comes back as ⁇. Hangul syllables stay whole and accents stay in place, with
    `lower_case` too (unlike BERT's own uncased models, which strip accents and break
    syllables up).

    Args:
        vocabulary: List of distinct `str`: `[PAD]`, `[UNK]`, `[START]`, `[END]`, then
            pieces.
        lower_case: Whether texts are put in lower case first.

    References:
        Schuster and Nakajima, 2012, Japanese and Korean Voice Search.
        Song et al., 2021, Fast WordPiece Tokenization,
        https://arxiv.org/abs/2012.15524

    Example:
        tokenizer = WordPieceTokenizer.train(["walks", "walked", "talks"] * 9, 60)
        tokenizer.pieces("walks")
    """

    def __init__(self, vocabulary, lower_case=False):
        vocabulary = training_texts.checked_vocabulary(vocabulary)
        super().__init__(vocabulary)
        self.lower_case = bool(lower_case)
        self._tokenizer = tf_text.FastBertTokenizer(
            vocabulary,
            token_out_type=tf.int32,
            unknown_token=vocabulary[self.unknown_id],
            lower_case_nfd_strip_accents=False,
        )
        first = len(training_texts.SPECIAL_TOKENS)
        self._texts = tf.constant(["", UNKNOWN_TEXT, "", "", *vocabulary[first:]])

    @classmethod
    def train(cls, sentences, vocabulary_size=8000, *, lower_case=False, **options):
        """Learns the pieces with tensorflow_text's own learner.

        The learner is plain Python and slow: about 40 s for 10,000 long Korean
        sentences. The same sentences give the same vocabulary.

        Args:
            sentences: Iterable of `str`.
            vocabulary_size: The largest number of tokens, the 4 special ones included.
                The learner stops up to 5% below it, and a small corpus gives fewer.
            lower_case: See the class.
            **options: For the learner, for example `max_unique_chars`, the size of the
                alphabet (a quarter of the vocabulary by default: each letter takes two
                tokens).

        Raises:
            ValueError: If the sentences are empty, or the vocabulary is too small.
        """
        # Imported here, since nothing but training needs it.
        from tensorflow_text.tools.wordpiece_vocab import bert_vocab_from_dataset

        texts = training_texts.checked_sentences(sentences, vocabulary_size, 8)
        special = training_texts.SPECIAL_TOKENS
        dataset = tf.data.Dataset.from_tensor_slices(texts).batch(1024)
        if lower_case:
            dataset = dataset.map(_lower)
        settings = {
            "max_unique_chars": (vocabulary_size - len(special)) // 4,
            "lower_thresh": 2,
            **options,
        }
        vocabulary = bert_vocab_from_dataset.bert_vocab_from_dataset(
            dataset,
            vocabulary_size,
            special,
            bert_tokenizer_params={"lower_case": False},
            learn_params=settings,
        )
        try:
            return cls(vocabulary[:vocabulary_size], lower_case)
        except RuntimeError as error:  # no piece that begins a word is left
            raise ValueError(
                "The vocabulary is too small for these sentences. "
                f"Received: vocabulary_size={vocabulary_size}"
            ) from error

    def get_config(self):
        return {"vocabulary": self.tokens(), "lower_case": self.lower_case}

    def _encode(self, texts):
        return self._tokenizer.tokenize(_lower(texts) if self.lower_case else texts)

    def _decode(self, ids):
        return join_pieces(tf.gather(self._texts, ids))


def join_pieces(pieces):
    """Ragged `(N, None)` to string `(N,)`: inner pieces put to the words before."""
    texts = tf.strings.reduce_join(pieces, axis=-1, separator=" ")
    texts = tf.strings.regex_replace(texts, f"(^| ){_CONTINUED}", "")
    return words.join_words(tf.strings.split(texts, " "))


def _lower(texts):
    return tf.strings.lower(texts, encoding="utf-8")
