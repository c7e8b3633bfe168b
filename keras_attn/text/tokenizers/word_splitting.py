"""Splitting of texts into words and joining of words to texts."""

import tensorflow as tf

from keras_attn._types import Tensor

_SPACE = r"[\s\pZ\p{Cc}]+"
_SIGN = r"[\pP\pS]"
_LETTER = r"[\pL\pM\pN]"
# Signs inside a word: "don't", "well-known", "3.14", "10,000". Each is replaced by a
# control character while the text is split; at that point the text contains none.
_INNER_SIGNS = [
    (rf"({_LETTER})'({_LETTER})", "\x01", "'"),
    (rf"({_LETTER})’({_LETTER})", "\x02", "’"),
    (rf"({_LETTER})-({_LETTER})", "\x03", "-"),
    (r"(\pN)\.(\pN)", "\x04", "."),
    (r"(\pN),(\pN)", "\x05", ","),
]


def split_words(texts: Tensor) -> tf.RaggedTensor:
    """Split texts into words and single punctuation signs.

    Args:
        texts: String tensor `(N,)`, valid UTF-8.

    Returns:
        Ragged string tensor `(N, None)`.
    """
    replace = tf.strings.regex_replace
    texts = replace(texts, _SPACE, " ")
    for pattern, placeholder, _ in _INNER_SIGNS:
        # Twice, because matches that share a letter overlap: "a-b-c".
        texts = replace(texts, pattern, rf"\1{placeholder}\2")
        texts = replace(texts, pattern, rf"\1{placeholder}\2")
    texts = replace(texts, _SIGN, r" \0 ")
    for _, placeholder, sign in _INNER_SIGNS:
        texts = replace(texts, placeholder, sign)
    return tf.strings.split(texts)


def join_words(words: tf.RaggedTensor) -> Tensor:
    """Join words with single spaces, without spaces around punctuation.

    There is no space before `. , ! ? ; : % ) ] }` and similar signs, none after
    `( [ {` and opening quotation marks, none inside a pair of straight quotation marks
    and none around the full-width signs of Chinese and Japanese.

    Args:
        words: Ragged string tensor `(N, None)`.

    Returns:
        String tensor `(N,)`.
    """
    replace = tf.strings.regex_replace
    texts = tf.strings.reduce_join(words, axis=-1, separator=" ")
    texts = replace(texts, r" ([.,!?;:%…。、，！？：；\p{Pe}\p{Pf}])", r"\1")
    texts = replace(texts, r"([。、，！？：；\p{Ps}\p{Pi}¿¡]) ", r"\1")
    return replace(texts, '" ([^"]*) "', r'"\1"')
