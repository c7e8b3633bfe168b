"""Word, WordPiece and character tokenizers: splitting and joining."""

import pytest
import tensorflow as tf
import tensorflow_text as tf_text
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_attn.text import CharacterTokenizer, WordPieceTokenizer, WordTokenizer
from keras_attn.text.tokenizers.word_splitting import join_words, split_words


@pytest.mark.parametrize(
    "text, words, joined",
    [
        ("A cat, a dog.", ["A", "cat", ",", "a", "dog", "."], None),
        ("Don't! It's Ann’s", ["Don't", "!", "It's", "Ann’s"], None),
        ("a-b-c 'x' -y", ["a-b-c", "'", "x", "'", "-", "y"], "a-b-c ' x ' - y"),
        ("3.14 or 1,000.5.", ["3.14", "or", "1,000.5", "."], None),
        ("end.Start", ["end", ".", "Start"], "end. Start"),
        ("(yes) [no]", ["(", "yes", ")", "[", "no", "]"], None),
        ('say "yes" now', ["say", '"', "yes", '"', "now"], None),
        ("¿Qué? «oui»", ["¿", "Qué", "?", "«", "oui", "»"], None),
        ("나는 간다.", ["나는", "간다", "."], None),
        ("好，吗？", ["好", "，", "吗", "？"], "好，吗？"),
        ("  \t a\u3000b\u00a0c\x01d\n", ["a", "b", "c", "d"], "a b c d"),
        ("", [], ""),
        ("😀x", ["😀", "x"], "😀 x"),
    ],
)
def test_split_and_join(text, words, joined):
    split = split_words(tf.constant([text]))
    assert [word.decode() for word in split.to_list()[0]] == words
    assert join_words(split).numpy()[0].decode() == (text if joined is None else joined)


@settings(max_examples=60, deadline=None)
@given(st.text())
def test_splitting_loses_only_spaces(text):
    words = split_words(tf.constant([text])).values.numpy()
    expected = "".join(c for c in text if not c.isspace() and not "\x00" <= c < " ")
    expected = expected.translate(dict.fromkeys(range(127, 160)))
    assert b"".join(words).decode() == expected


def test_word_vocabulary_by_frequency():
    tokenizer = WordTokenizer.train(["b a c", "c b", "c d"], 7)
    assert tokenizer.tokens()[4:] == ["c", "b", "a"]
    assert tokenizer.tokenize("a d c").numpy().tolist() == [6, 1, 4]
    assert tokenizer.detokenize([[6, 1, 4]]).numpy()[0].decode() == "a ⁇ c"


def test_word_lower_case():
    tokenizer = WordTokenizer.train(["Ünd 한국 A"], 20, lower_case=True)
    assert tokenizer.detokenize(tokenizer.tokenize(["ÜND 한국 a"])).numpy()[
        0
    ].decode() == ("ünd 한국 a")
    assert WordTokenizer.from_config(tokenizer.get_config()).lower_case is True


@pytest.mark.parametrize("lower_case", [False, True])
def test_word_piece_ids_are_those_of_bert(lower_case):
    sentences = ["Walking dogs walked, unwalked!", "강아지가 걷는다", "É été"] * 4
    tokenizer = WordPieceTokenizer.train(sentences, 150, lower_case=lower_case)
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(
            tokenizer.tokens(), tf.range(tokenizer.vocabulary_size, dtype=tf.int64)
        ),
        1,
    )
    reference = tf_text.BertTokenizer(table, token_out_type=tf.int64, lower_case=False)
    texts = ["walking unwalked", "강아지가 walks!", "été ✓ dog", ""]
    expected = reference.tokenize(texts).merge_dims(1, 2)
    assert tokenizer.tokenize(texts).to_list() == expected.to_list()
    back = tokenizer.detokenize(tokenizer.tokenize(["walked,  강아지가 걷는다 été!"]))
    assert back.numpy()[0].decode() == "walked, 강아지가 걷는다 été!"


def test_word_piece_preserves_hangul_syllables():
    for lower_case in (False, True):
        tokenizer = WordPieceTokenizer.train(
            ["한국어 한국"] * 5, 60, lower_case=lower_case
        )
        letters = "".join(tokenizer.tokens()[4:])
        assert set(letters) == set("한국어#")


def test_word_piece_size_is_a_limit():
    sentences = ["".join(chr(0xAC00 + i + j) for i in range(3)) for j in range(200)]
    assert 8 < WordPieceTokenizer.train(sentences, 40).vocabulary_size <= 40


ALPHABET = "abc \t\n\0나😀\u200d\u0301\ufeff\U0010ffff"
CHARACTERS = CharacterTokenizer.train([ALPHABET], 5000)


@settings(max_examples=60, deadline=None)
@given(st.text(ALPHABET))
def test_characters_are_lossless(text):
    ids = CHARACTERS.tokenize(text)
    assert [CHARACTERS.tokens()[i] for i in ids.numpy()] == list(text)
    assert CHARACTERS.detokenize(ids).numpy().decode() == text


def test_unseen_characters():
    tokenizer = CharacterTokenizer.train(["cab"], 6)
    assert tokenizer.tokens()[4:] == ["a", "b"]
    ids = tokenizer.tokenize("bz\U0010ffff\0a")
    assert ids.numpy().tolist() == [5, 1, 1, 1, 4]
    assert tokenizer.detokenize(ids).numpy().decode() == "b⁇⁇⁇a"


@pytest.mark.parametrize("cls", [WordTokenizer, WordPieceTokenizer, CharacterTokenizer])
@pytest.mark.parametrize(
    "vocabulary",
    [
        [],
        ["a", "b"],
        ["[PAD]", "[UNK]", "[START]", "[END]", "a", "a"],
        ["[PAD]", "[UNK]", "[START]", "[END]", 3],
    ],
)
def test_bad_vocabulary(cls, vocabulary):
    with pytest.raises(ValueError, match="Received: vocabulary="):
        cls(vocabulary)


def test_long_character():
    with pytest.raises(ValueError, match="with 'ab'"):
        CharacterTokenizer(["[PAD]", "[UNK]", "[START]", "[END]", "ab"])
