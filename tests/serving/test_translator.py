"""`Translator` in the process that has the Keras model."""

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


def reference(model, tokenizers, texts):
    """Translate with `generate`, after tokenizing and padding the texts in Python."""
    rows = [ids[: SOURCE_LENGTH - 1] for ids in tokenizers["source"].tokenize(texts)]
    source = np.zeros((len(rows), max(map(len, rows)) + 1), "int32")
    for row, ids in zip(source, rows):
        row[: len(ids)], row[len(ids)] = ids, 3
    results = generate(
        model,
        {"source": source},
        start_token_id=2,
        end_token_id=3,
        max_new_tokens=LENGTH,
    )
    texts = tokenizers["target"].detokenize(results["token_ids"][:, 0])
    return [text.decode() for text in texts.numpy()], results["scores"][:, 0].numpy()


@pytest.mark.slow
def test_translations_equal_those_of_generate(translator, model, tokenizers):
    texts = [*KOREAN, "나", KOREAN[0] * 20]
    expected, scores = reference(model, tokenizers, texts)
    assert len(set(expected)) > 3
    assert translator(texts) == expected
    results = translator.translate(tf.constant(texts))
    np.testing.assert_allclose(results["score"], scores, rtol=1e-5)


@pytest.mark.slow
def test_tokens_that_the_model_excludes_are_not_written(tokenizers):
    sizes = [tokenizers[side].vocabulary_size for side in ("source", "target")]
    model = make(*sizes)
    options = {"max_new_tokens": LENGTH, "max_source_length": SOURCE_LENGTH}
    sides = (tokenizers["source"], tokenizers["target"])
    before = Translator(model, *sides, **options)(KOREAN[:1])
    source = sides[0].tokenize(KOREAN[:1], add_end=True).to_tensor()
    result = generate(
        model, {"source": source}, start_token_id=2, end_token_id=3, max_new_tokens=1
    )
    model.banned_token_ids = (int(result["token_ids"][0, 0, 0]),)
    after = Translator(model, *sides, **options)(KOREAN[:1])
    assert after != before
    assert after == reference(model, tokenizers, KOREAN[:1])[0]


def test_number_of_translations(translator):
    assert translator([]) == []
    assert len(translator(KOREAN[:1])) == 1
    with pytest.raises(ValueError, match="list of str. Received: texts='나'"):
        translator("나")


@pytest.mark.parametrize("kind", ODD)
def test_an_unusual_text_does_not_affect_the_others(translator, kind):
    alone = translator.translate(tf.constant(KOREAN))
    batched = translator.translate(tf.constant([KOREAN[0], ODD[kind], *KOREAN[1:]]))
    others = [0, 2, 3]
    assert tf.gather(batched["text"], others).numpy().tolist() == (
        alone["text"].numpy().tolist()
    )
    np.testing.assert_allclose(
        tf.gather(batched["score"], others), alone["score"], rtol=1e-4
    )
    text, score = batched["text"][1].numpy(), float(batched["score"][1])
    text.decode()
    assert np.isfinite(score)
    if kind in ("empty", "spaces"):
        assert (text, score) == (b"", 0.0)
    else:
        assert score < 0


def test_a_text_is_truncated_to_its_first_tokens(translator, tokenizers):
    text = KOREAN[0] * 20
    ids = tokenizers["source"].tokenize([text])[0, : SOURCE_LENGTH - 1]
    truncated = tokenizers["source"].detokenize(ids).numpy().decode()
    assert tokenizers["source"].tokenize(truncated).shape == (SOURCE_LENGTH - 1,)
    assert (
        translator([text]) == translator([truncated]) == translator([text + KOREAN[1]])
    )


@pytest.mark.slow
def test_the_current_weights_are_used(tokenizers):
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
    assert after == reference(model, tokenizers, KOREAN)[0]


def test_a_tokenizer_that_does_not_fit_the_model(tokenizers):
    source, target = tokenizers["source"], tokenizers["target"]
    for sizes, side, size in (
        ((source.vocabulary_size - 1, 400), "source", source.vocabulary_size),
        ((400, target.vocabulary_size - 1), "target", target.vocabulary_size),
    ):
        message = f"{side} tokenizer.*{size - 1} ids.*vocabulary_size={size}"
        with pytest.raises(ValueError, match=message):
            Translator(make(*sizes), source, target)


@pytest.mark.slow
def test_a_source_is_truncated_to_the_learned_positions(tokenizers):
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
    truncated = tokenizer.detokenize(tokenizer.tokenize(text)[:7]).numpy().decode()
    assert translator([text]) == translator([truncated])
