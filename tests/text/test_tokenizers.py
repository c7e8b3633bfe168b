"""Properties of all tokenizers."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_attn import text
from keras_attn.text.load import CLASSES

SENTENCE = "The cat sat on the 매트 위에 앉았다."
DIFFICULT = [
    "",
    "   ",
    "😀👩‍👩‍👧",
    "x" * 10_000,
    "가 " * 5_000,
    b"\xff\xfe a \xed\xa0\x80",
    "▁a▁▁",
    " a  b\t\n",
    "[PAD] [UNK] [START] [END] <pad> <s> </s> <unk> <0x41>",
    "\0\x01\x02",
    "\ud800",
    "the cat",
]


def decoded(strings):
    return [string.decode() for string in strings.numpy()]


def test_special_ids_and_tokens(tokenizer):
    assert tokenizer.padding_id == 0
    assert tokenizer.unknown_id == 1
    assert tokenizer.start_token_id == 2
    assert tokenizer.end_token_id == 3
    tokens = tokenizer.tokens()
    assert len(tokens) == len(set(tokens)) == tokenizer.vocabulary_size
    assert tokens[7] == tokenizer.id_to_token(7)
    with pytest.raises(ValueError, match="token_id=-1"):
        tokenizer.id_to_token(-1)


def test_shapes_and_dtypes(tokenizer):
    ids = tokenizer.tokenize([SENTENCE, "", "cat"])
    assert isinstance(ids, tf.RaggedTensor)
    assert ids.dtype == tf.int32
    assert ids.shape.as_list() == [3, None]
    assert ids[1].shape == (0,)
    one = tokenizer.tokenize(SENTENCE)
    assert one.dtype == tf.int32
    np.testing.assert_array_equal(one, ids[0])
    assert tokenizer.detokenize(ids).shape == (3,)
    assert tokenizer.detokenize(one).shape == ()
    assert tokenizer.tokenize([]).shape.as_list() == [0, None]


def test_max_length_includes_start_and_end(tokenizer):
    texts = [SENTENCE, "", "cat"]
    rows = tokenizer.tokenize(texts).to_list()
    ids = tokenizer.tokenize(texts, add_start=True, add_end=True, max_length=4)
    assert ids.to_list() == [[2, *row[:2], 3] for row in rows]
    assert tokenizer.tokenize(SENTENCE, max_length=3).numpy().tolist() == rows[0][:3]
    assert tokenizer.tokenize(texts, max_length=0).to_list() == [[], [], []]
    with pytest.raises(ValueError, match="at least 2, for start and end.*max_length=1"):
        tokenizer.tokenize(texts, add_start=True, add_end=True, max_length=1)


def test_round_trip_of_known_words(tokenizer):
    ids = tokenizer.tokenize([SENTENCE])
    assert 1 not in ids.values.numpy()
    assert decoded(tokenizer.detokenize(ids)) == [SENTENCE]


def test_pieces_are_labels(tokenizer):
    pieces = tokenizer.pieces("the cat", add_end=True)
    assert pieces[-1] == tokenizer.tokens()[3]
    assert "".join(pieces[:-1]).replace("▁", "").replace(" ", "") == "thecat"
    with pytest.raises(ValueError, match="a single text"):
        tokenizer.pieces(["the"])


def test_start_and_end(tokenizer):
    plain = tokenizer.tokenize(["cat", ""]).to_list()
    assert tokenizer.tokenize(["cat", ""], add_start=True).to_list() == [
        [2, *plain[0]],
        [2],
    ]
    both = tokenizer.tokenize(["cat", ""], add_start=True, add_end=True)
    assert both.to_list() == [[2, *plain[0], 3], [2, 3]]
    assert tokenizer.tokenize("cat", add_end=True).numpy().tolist() == [*plain[0], 3]


def test_detokenize_drops_special_ids_and_all_after_the_end(tokenizer):
    cat = tokenizer.tokenize("cat").numpy().tolist()
    dog = tokenizer.tokenize("dog").numpy().tolist()
    rows = [[2, *cat, 3, *dog, 3], [0, 2, *dog, 0, 0], [3, *cat], [], [3]]
    expected = ["cat", "dog", "", "", ""]
    assert decoded(tokenizer.detokenize(rows)) == expected
    ragged = tf.ragged.constant(rows, dtype=tf.int32)
    assert decoded(tokenizer.detokenize(ragged)) == expected
    assert decoded(tokenizer.detokenize(ragged.to_tensor())) == expected
    assert decoded(tokenizer.detokenize(ragged.to_tensor().numpy())) == expected


def test_detokenize_of_hypotheses(tokenizer):
    cat = tokenizer.tokenize("cat")
    ids = tf.tile(cat[tf.newaxis, tf.newaxis], [5, 3, 1])
    texts = tokenizer.detokenize(ids)
    assert texts.shape == (5, 3)
    assert set(texts.numpy().ravel()) == {b"cat"}
    assert (
        tokenizer.detokenize(tf.zeros([4, 0], tf.int64)).numpy().tolist() == [b""] * 4
    )
    nested = tf.ragged.constant([[cat.numpy().tolist()], []], dtype=tf.int32)
    assert tokenizer.detokenize(nested).to_list() == [[b"cat"], []]


def test_texts_do_not_affect_each_other(tokenizer):
    together = tokenizer.tokenize(DIFFICULT).to_list()
    for row, text_ in zip(together, DIFFICULT, strict=True):
        assert tokenizer.tokenize(text_).numpy().tolist() == row
        assert not {0, 2, 3} & set(row)
        assert all(0 <= i < tokenizer.vocabulary_size for i in row)
    assert decoded(tokenizer.detokenize(together))[-1] == "the cat"


@pytest.mark.parametrize("data", [b"the\xff cat", b"\xe2\x96", b"\xf0\x9f\x98 cat\xc3"])
def test_bytes_that_are_not_utf8_are_replacement_characters(tokenizer, data):
    valid = tf.strings.unicode_transcode(data, "UTF-8", "UTF-8", errors="replace")
    assert "\ufffd" in valid.numpy().decode()
    ids = tokenizer.tokenize(valid).numpy().tolist()
    assert tokenizer.tokenize(data).numpy().tolist() == ids


def test_ids_outside_the_vocabulary(tokenizer):
    size = tokenizer.vocabulary_size
    for bad in (size, -1, 2**40):
        with pytest.raises(ValueError, match=f"ids with {bad}"):
            tokenizer.detokenize([[5], [6, bad]])
    # Ids after the end id are ignored.
    tokenizer.detokenize([[5, 3, size]])

    @tf.function
    def in_graph(ids):
        return tokenizer.detokenize(ids)

    unknown = in_graph(tf.constant([[1]])).numpy()
    for bad in (size, -1):
        np.testing.assert_array_equal(in_graph(tf.constant([[bad]])), unknown)
    assert "⁇" in unknown[0].decode()


@pytest.mark.parametrize("ids", [3, 1.5, [[0.5]], [["a"]], "a", [[True]], None])
def test_ids_of_an_invalid_type(tokenizer, ids):
    with pytest.raises(ValueError, match="integers.*Received: ids="):
        tokenizer.detokenize(ids)


@pytest.mark.parametrize("texts", [3, [["a"]], ["a", 1], [None], np.zeros([2, 2])])
def test_texts_of_an_invalid_type(tokenizer, texts):
    with pytest.raises(ValueError, match="Expected .*Received: texts="):
        tokenizer.tokenize(texts)


def test_same_in_graph_with_unknown_shapes(tokenizer):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def both(texts):
        ids = tokenizer.tokenize(texts, add_start=True, add_end=True)
        dense = ids.to_tensor()
        return ids, tokenizer.detokenize(dense)

    for texts in (["the cat", "", SENTENCE], DIFFICULT, [SENTENCE]):
        expected = tokenizer.tokenize(texts, add_start=True, add_end=True)
        ids, back = both(
            tf.constant(
                [
                    str.encode(t, "utf-8", "surrogatepass") if isinstance(t, str) else t
                    for t in texts
                ]
            )
        )
        assert ids.to_list() == expected.to_list()
        np.testing.assert_array_equal(back, tokenizer.detokenize(expected))


def test_seeds_do_not_affect_tokenizers(tokenizer):
    expected = tokenizer.tokenize([SENTENCE])

    @tf.function
    def traced(texts):
        return tokenizer.detokenize(tokenizer.tokenize(texts))

    dataset = tf.data.Dataset.from_tensors([SENTENCE]).repeat(3)
    dataset = dataset.map(tokenizer.tokenize).map(tokenizer.detokenize)
    running = iter(dataset)
    assert decoded(traced(tf.constant([SENTENCE]))) == [SENTENCE]
    assert decoded(next(running)) == [SENTENCE]
    for set_seed in (keras.utils.set_random_seed, tf.random.set_seed):
        set_seed(7)
        assert tokenizer.tokenize([SENTENCE]).to_list() == expected.to_list()
        assert decoded(tokenizer.detokenize(expected)) == [SENTENCE]
        assert decoded(traced(tf.constant([SENTENCE]))) == [SENTENCE]
        assert [decoded(texts) for texts in dataset] == [[SENTENCE]] * 3
        assert decoded(next(running)) == [SENTENCE]


def test_training_is_deterministic(tokenizer):
    sentences = ["the cat", "나는 학교에 간다", "a cat and a dog"] * 4
    size = 320
    one = type(tokenizer).train(sentences, size)
    two = type(tokenizer).train(iter(sentences), vocabulary_size=size)
    assert one.fingerprint == two.fingerprint != tokenizer.fingerprint
    assert one.vocabulary_size <= size


@pytest.mark.parametrize(
    "sentences, size, message",
    [
        ([], 300, "at least one non-blank"),
        (["", " "], 300, "at least one non-blank"),
        ("one text", 300, "iterable of sentences"),
        (["a", 3], 300, "3 at index 1"),
        (["a"], 3, "vocabulary_size=3"),
        (["a"], 5.5, "vocabulary_size=5.5"),
    ],
)
def test_invalid_training_sentences(tokenizer, sentences, size, message):
    with pytest.raises(ValueError, match=message):
        type(tokenizer).train(sentences, size)


def test_save_and_load(tokenizer, tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text("something older")
    tokenizer.save(path)
    assert [file.name for file in tmp_path.iterdir()] == ["tokenizer.json"]
    for loaded in (type(tokenizer).load(path), text.load_tokenizer(str(path))):
        assert type(loaded) is type(tokenizer)
        assert loaded.fingerprint == tokenizer.fingerprint
        assert loaded.tokens() == tokenizer.tokens()
        ids = tokenizer.tokenize(DIFFICULT).to_list()
        assert loaded.tokenize(DIFFICULT).to_list() == ids
        np.testing.assert_array_equal(loaded.detokenize(ids), tokenizer.detokenize(ids))


def test_load_of_a_different_class(trained, tmp_path):
    path = tmp_path / "words.json"
    trained["WordTokenizer"].save(path)
    with pytest.raises(
        ValueError, match="of CharacterTokenizer, but it is one of WordTok"
    ):
        text.CharacterTokenizer.load(path)


def test_every_class_can_be_loaded():
    classes = {getattr(text, name) for name in text.__all__ if "Tokenizer" in name}
    assert set(CLASSES.values()) == classes - {text.Tokenizer}
    assert all(name == cls.__name__ for name, cls in CLASSES.items())


def test_load_of_an_existing_file(tmp_path):
    path = tmp_path / "file"
    config = {"vocabulary": ["[PAD]", "[UNK]", "[START]", "[END]", "a", "b"]}
    content = {"format": "keras_attn.tokenizer", "version": 1}
    content |= {"class": "CharacterTokenizer", "config": config}
    path.write_text(json.dumps(content))
    assert text.load_tokenizer(path).tokenize("ba").numpy().tolist() == [5, 4]
    with pytest.raises(ValueError, match="of Tokenizer, but.*`load_tokenizer` loads"):
        text.Tokenizer.load(path)


def test_load_of_an_invalid_file(trained, tmp_path):
    path = tmp_path / "file"
    with pytest.raises(FileNotFoundError, match="Received: path="):
        text.load_tokenizer(path)
    trained["WordTokenizer"].save(path)
    good = json.loads(path.read_text())
    for content in (
        b"",
        b"\xff\xfe",
        b"[1]",
        b"{}",
        json.dumps(good | {"version": 99}).encode(),
        json.dumps(good | {"class": "Layer"}).encode(),
        json.dumps(good | {"config": {"vocabulary": ["a"]}}).encode(),
        json.dumps(good | {"class": "SentencePieceTokenizer"}).encode(),
    ):
        path.write_bytes(content)
        with pytest.raises(
            ValueError, match="Expected a file written by the `save` method"
        ):
            text.load_tokenizer(path)
    with pytest.raises(
        ValueError, match="Expected a file written by the `save` method"
    ):
        text.load_tokenizer(tmp_path)


def test_failed_save_writes_no_file(trained, tmp_path, monkeypatch):
    tokenizer = trained["WordTokenizer"]
    with pytest.raises(FileNotFoundError, match="existing folder"):
        tokenizer.save(tmp_path / "no" / "file")
    with pytest.raises(IsADirectoryError, match="it is a folder"):
        tokenizer.save(tmp_path)
    monkeypatch.setattr(type(tokenizer), "get_config", lambda self: {"a": object()})
    with pytest.raises(TypeError):
        tokenizer.save(tmp_path / "file")
    assert list(tmp_path.iterdir()) == []
