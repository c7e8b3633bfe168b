"""Text in, text out, in the process that has the Keras model."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from small_translator import KOREAN, make

from keras_attn import layers
from keras_attn.decoding import generate
from keras_attn.serving import Translator

LENGTH, SOURCE_LENGTH = 10, 20
ODD = {
    "empty": b"",
    "spaces": b" \t \n",
    "emoji": "😀👩‍👩‍👧".encode(),
    "long": "가나다 ".encode() * 2500,
    "not UTF-8": b"\xff\xfe\xea\xb0",
}


@pytest.fixture(scope="module")
def translator(model, tokenizers):
    return Translator(
        model,
        tokenizers["source"],
        tokenizers["target"],
        max_new_tokens=LENGTH,
        max_source_length=SOURCE_LENGTH,
    )


def by_hand(model, tokenizers, texts):
    """The same through `generate`, with padding, end tokens and cuts made in Python."""
    rows = [ids[: SOURCE_LENGTH - 1] for ids in tokenizers["source"].tokenize(texts)]
    source = np.zeros((len(rows), max(map(len, rows)) + 1), "int32")
    for row, ids in zip(source, rows):
        row[: len(ids)], row[len(ids)] = ids, 3
    found = generate(
        model,
        {"source": source},
        start_token_id=2,
        end_token_id=3,
        max_new_tokens=LENGTH,
    )
    texts = tokenizers["target"].detokenize(found["token_ids"][:, 0])
    return [text.decode() for text in texts.numpy()], found["scores"][:, 0].numpy()


def test_it_is_generate_between_two_tokenizers(translator, model, tokenizers):
    texts = [*KOREAN, "나", KOREAN[0] * 20]
    expected, scores = by_hand(model, tokenizers, texts)
    assert len(set(expected)) > 3
    assert translator(texts) == expected
    found = translator.translate(tf.constant(texts))
    np.testing.assert_allclose(found["score"], scores, rtol=1e-5)


def test_every_batch_gets_as_many_answers(translator):
    assert translator([]) == []
    assert len(translator(KOREAN[:1])) == 1
    with pytest.raises(ValueError, match="list of str. Received: texts='나'"):
        translator("나")


@pytest.mark.parametrize("kind", ODD)
def test_an_odd_text_leaves_the_others_alone(translator, kind):
    alone = translator.translate(tf.constant(KOREAN))
    beside = translator.translate(tf.constant([KOREAN[0], ODD[kind], *KOREAN[1:]]))
    keep = [0, 2, 3]
    assert tf.gather(beside["text"], keep).numpy().tolist() == (
        alone["text"].numpy().tolist()
    )
    np.testing.assert_allclose(
        tf.gather(beside["score"], keep), alone["score"], rtol=1e-4
    )
    text, score = beside["text"][1].numpy(), float(beside["score"][1])
    text.decode()
    assert np.isfinite(score)
    if kind in ("empty", "spaces"):
        assert (text, score) == (b"", 0.0)
    else:
        assert score < 0


def test_a_text_is_cut_to_its_first_tokens(translator, tokenizers):
    text = KOREAN[0] * 20
    ids = tokenizers["source"].tokenize([text])[0, : SOURCE_LENGTH - 1]
    cut = tokenizers["source"].detokenize(ids).numpy().decode()
    assert tokenizers["source"].tokenize(cut).shape == (SOURCE_LENGTH - 1,)
    assert translator([text]) == translator([cut]) == translator([text + KOREAN[1]])


def test_it_uses_the_weights_of_the_moment(tokenizers):
    sizes = [tokenizers[name].vocabulary_size for name in ("source", "target")]
    model = make(*sizes)
    translator = Translator(
        model,
        tokenizers["source"],
        tokenizers["target"],
        max_new_tokens=LENGTH,
        max_source_length=SOURCE_LENGTH,
    )
    before = translator(KOREAN)
    model.set_weights(make(*sizes, seed=17).get_weights())
    after = translator(KOREAN)
    assert after != before
    assert after == by_hand(model, tokenizers, KOREAN)[0]


def test_a_tokenizer_that_does_not_fit(tokenizers):
    source, target = tokenizers["source"], tokenizers["target"]
    for sizes, side, size in (
        ((source.vocabulary_size - 1, 400), "source", source.vocabulary_size),
        ((400, target.vocabulary_size - 1), "target", target.vocabulary_size),
    ):
        message = f"{side} tokenizer.*{size - 1} ids.*vocabulary_size={size}"
        with pytest.raises(ValueError, match=message):
            Translator(make(*sizes), source, target)


def test_as_many_source_tokens_as_there_are_learned_positions(tokenizers):
    """A longer source is cut, or the learned positions would not reach."""
    tokenizer = tokenizers["word"]
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    embedding = layers.TokenEmbedding(tokenizer.vocabulary_size, 8)
    encoded = layers.PositionEmbedding(8)(embedding(source))
    decoded = layers.TransformerDecoder(8, 2)(embedding(target), encoded)
    logits = embedding(decoded, reverse=True)
    model = keras.Model({"source": source, "target": target}, logits)
    translator = Translator(model, tokenizer, max_new_tokens=3)
    text = " ".join([KOREAN[0]] * 5)
    cut = tokenizer.detokenize(tokenizer.tokenize(text)[:7]).numpy().decode()
    assert translator([text]) == translator([cut])
