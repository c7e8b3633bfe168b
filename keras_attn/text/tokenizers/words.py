"""Where a text is cut into words, and how words are joined to a text again."""

import tensorflow as tf

_SPACE = r"[\s\pZ\p{Cc}]+"
_SIGN = r"[\pP\pS]"
_LETTER = r"[\pL\pM\pN]"
# Signs that do not cut: "don't", "well-known", "3.14", "10,000". Each is hidden as a
# control character for a while; the text has none left by then.
_KEPT = [
    (rf"({_LETTER})'({_LETTER})", "\x01", "'"),
    (rf"({_LETTER})’({_LETTER})", "\x02", "’"),
    (rf"({_LETTER})-({_LETTER})", "\x03", "-"),
    (r"(\pN)\.(\pN)", "\x04", "."),
    (r"(\pN),(\pN)", "\x05", ","),
]


def split_words(texts):
    """String `(N,)` to ragged `(N, None)`: words, and punctuation one by one."""
    replace = tf.strings.regex_replace
    texts = replace(texts, _SPACE, " ")
    for pattern, hidden, _ in _KEPT:
        # Twice: a match takes the letter that the next match would begin with.
        texts = replace(texts, pattern, rf"\1{hidden}\2")
        texts = replace(texts, pattern, rf"\1{hidden}\2")
    texts = replace(texts, _SIGN, r" \0 ")
    for _, hidden, sign in _KEPT:
        texts = replace(texts, hidden, sign)
    return tf.strings.split(texts)


def join_words(words):
    """Ragged `(N, None)` to string `(N,)`, without spaces around punctuation.

    No space before `. , ! ? ; : % ) ] }` and their like, none after `( [ {` and
    opening quotation marks, none inside a pair of straight quotation marks, none around
    the full-width signs of Chinese and Japanese.
    """
    replace = tf.strings.regex_replace
    texts = tf.strings.reduce_join(words, axis=-1, separator=" ")
    texts = replace(texts, r" ([.,!?;:%…。、，！？：；\p{Pe}\p{Pf}])", r"\1")
    texts = replace(texts, r"([。、，！？：；\p{Ps}\p{Pi}¿¡]) ", r"\1")
    return replace(texts, '" ([^"]*) "', r'"\1"')
