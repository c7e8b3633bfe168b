import base64
import io

import pytest
import sentencepiece
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_attn.text import SentencePieceTokenizer
from keras_attn.text.tokenizers.sentence_piece import _inert_normalizer

SENTENCES = ["나는 학교에 간다.", "a cat sat on a mat", "cats and dogs"] * 5
TOKENIZER = SentencePieceTokenizer.train(SENTENCES, 320)
# Characters that SentencePiece, or a careless tokenizer, treats specially.
TRICKY = st.text(st.sampled_from("▁▅ \t\n\r\0a나\ufeff\u3000\u00a0<>/s😀\u200d\u0301"))


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(st.lists(st.text() | TRICKY, min_size=1, max_size=7))
def test_lossless(texts):
    ids = TOKENIZER.tokenize(texts)
    back = [text.decode() for text in TOKENIZER.detokenize(ids).numpy()]
    assert back == texts
    assert 1 not in ids.values.numpy()


@settings(max_examples=30, deadline=None)
@given(st.binary(max_size=30))
def test_invalid_bytes_become_replacement_characters(data):
    back = TOKENIZER.detokenize(TOKENIZER.tokenize(data)).numpy().decode()
    assert back.replace("\ufffd", "") == data.decode("utf-8", "replace").replace(
        "\ufffd", ""
    )


@pytest.mark.parametrize("model_type", ["unigram", "bpe", "char", "word"])
def test_same_ids_as_the_sentencepiece_package(model_type):
    tokenizer = SentencePieceTokenizer.train(SENTENCES, 310, model_type=model_type)
    model = base64.b64decode(tokenizer.get_config()["model"])
    reference = sentencepiece.SentencePieceProcessor(model_proto=model)
    assert reference.vocab_size() == tokenizer.vocabulary_size
    texts = ["cats sat", "  a  mat ", "나는 dogs", "뷁 unseen\tzebra"]
    # The leading space makes the first word equal to later ones.
    expected = [reference.encode(" " + text) for text in texts]
    assert tokenizer.tokenize(texts).to_list() == expected
    assert tokenizer.pieces(texts[0]) == [reference.id_to_piece(i) for i in expected[0]]


def test_first_word_is_tokenized_as_later_ones():
    assert TOKENIZER.tokenize("cat cat").numpy().tolist() == (
        TOKENIZER.tokenize("cat").numpy().tolist() * 2
    )


def test_small_corpus_results_in_a_smaller_vocabulary():
    assert SentencePieceTokenizer.train(["ab"], 8000).vocabulary_size < 300


def test_unusual_training_sentences_are_not_skipped():
    # The trainer skips sentences with U+2585 and those of more than 4192 bytes.
    tokenizer = SentencePieceTokenizer.train(
        ["ab▅q", "cd▁\0x", "z" * 5000], 300, character_coverage=1.0
    )
    assert set("abcdqxz") <= set(tokenizer.tokens())


def test_training_options():
    tokenizer = SentencePieceTokenizer.train(
        SENTENCES, 320, normalization_rule_name="nmt_nfkc_cf"
    )
    back = tokenizer.detokenize(tokenizer.tokenize("ＣＡＴ"))
    assert back.numpy() == b"cat"
    with pytest.raises(ValueError, match="options with .'bos_id'"):
        SentencePieceTokenizer.train(SENTENCES, 320, bos_id=9)
    with pytest.raises(ValueError, match="vocabulary_size=50"):
        SentencePieceTokenizer.train(SENTENCES, 50)
    with pytest.raises(ValueError, match="model_type='best'"):
        SentencePieceTokenizer.train(SENTENCES, 320, model_type="best")
    with pytest.raises(ValueError, match="'nonsense': 1"):
        SentencePieceTokenizer.train(SENTENCES, 320, nonsense=1)


def test_model_of_a_different_form():
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES),
        model_writer=model,
        vocab_size=30,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    with pytest.raises(ValueError, match="byte fallback.*Received"):
        SentencePieceTokenizer(model.getvalue())
    with pytest.raises(ValueError, match="Expected a serialized SentencePiece model"):
        SentencePieceTokenizer(b"nonsense")


def test_inert_normalizer_equals_the_output_of_the_trainer(tmp_path):
    rules = tmp_path / "rules.tsv"
    rules.write_text("2581\t20\n")
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES),
        model_writer=model,
        vocab_size=30,
        hard_vocab_limit=False,
        minloglevel=2,
        normalization_rule_tsv=str(rules),
    )
    # Without the two headers, each of a field number and a length.
    assert _inert_normalizer()[6:] in model.getvalue()


@pytest.mark.slow
def test_quiet(capfd):
    for _ in range(7):
        tokenizer = SentencePieceTokenizer.train(SENTENCES, 320)
        tokenizer.detokenize(tokenizer.tokenize(["a cat"]))
    tf.function(tokenizer.tokenize)(tf.constant(["a cat"]))
    assert capfd.readouterr() == ("", "")
