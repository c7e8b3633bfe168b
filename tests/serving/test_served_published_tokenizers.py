"""Models with published tokenizers, whose padding id is not 0."""

import keras
import numpy as np
import published_folders as folders
import pytest
import tensorflow as tf
from small_translator import randomize

from keras_attn import layers
from keras_attn.decoding import BeamSearch, generate
from keras_attn.serving import (
    TextGenerator,
    Translator,
    export_language_model,
    export_translator,
)
from keras_attn.text import MarianTokenizer, load_published_tokenizer

LENGTH = 8
BEAM = BeamSearch(2, num_return_sequences=2)
TEXTS = [*folders.KOREAN, "나", "고양이가 " * 9]


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = folders.marian(tmp_path_factory.mktemp("marian"))
    return [load_published_tokenizer(folder, side) for side in ("source", "target")]


@pytest.fixture(scope="module")
def translator(pair):
    """A model that masks the padding id of its source tokenizer."""
    source, target = (
        keras.Input((None,), dtype="int32", name=name) for name in ("source", "target")
    )
    size, width = pair[0].vocabulary_size, 8
    position = layers.SinusoidalPositionEmbedding()
    embedded = layers.TokenEmbedding(size, width, padding_id=pair[0].padding_id)(source)
    encoded = layers.TransformerEncoder(12, 2)(position(embedded))
    embedding = layers.TokenEmbedding(size, width, padding_id=None)
    x = layers.TransformerDecoder(12, 2)(position(embedding(target)), encoded)
    inputs = {"source": source, "target": target}
    model = randomize(keras.Model(inputs, embedding(x, reverse=True)), seed=5)
    table = embedding.embeddings.numpy()
    table[pair[1].end_token_id] *= 3  # so that some hypotheses end
    embedding.embeddings.assign(table)
    return model


@pytest.fixture(scope="module")
def expected(pair, translator):
    """The hypotheses of `generate` for each text alone."""
    source, target = pair
    return [
        generate(
            translator,
            {"source": ids[None]},
            start_token_id=target.start_token_id,
            end_token_id=target.end_token_id,
            max_new_tokens=LENGTH,
            strategy=BEAM,
            padding_id=target.padding_id,
        )
        for ids in source.tokenize(TEXTS, add_end=True)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_translations_equal_those_of_each_text_alone(
    pair, translator, expected, jit_compile
):
    source, target = pair
    options = {"max_new_tokens": LENGTH, "jit_compile": jit_compile, "strategy": BEAM}
    translate = Translator(translator, source, target, **options)
    results = translate.n_best(tf.constant(TEXTS))
    sources = source.tokenize(TEXTS, add_end=True)
    dense = sources.to_tensor(source.padding_id)
    by_ids = translate.translate_ids(dense)
    states = translate.encode(dense)
    assert len(set(results["texts"].numpy().ravel())) > 4
    lengths = set()
    for i, (ids, alone) in enumerate(zip(sources, expected, strict=True)):
        token_ids = alone["token_ids"][0]
        np.testing.assert_array_equal(by_ids["token_ids"][i], token_ids)
        texts = target.detokenize(token_ids).numpy().tolist()
        assert results["texts"][i].numpy().tolist() == texts
        np.testing.assert_allclose(results["scores"][i], alone["scores"][0], 1e-4)
        lengths.update(alone["lengths"].numpy().ravel().tolist())
        mask = states["padding_mask"][i].numpy()
        assert mask.tolist() == [position < len(ids) for position in range(len(mask))]
    assert min(lengths) < LENGTH, "some hypotheses must be padded"


@pytest.mark.slow
def test_a_source_begins_with_the_source_start_id(pair, translator):
    source, target = pair
    with_start = MarianTokenizer.from_config(source.get_config())
    with_start.source_start_id = 5
    options = {"max_new_tokens": LENGTH, "jit_compile": False, "max_source_length": 6}
    served = Translator(translator, with_start, target, **options)
    for text in TEXTS:
        ids = [5, *source.tokenize(text).numpy()[:4], source.end_token_id]
        expected = served.translate_ids(tf.constant([ids]))
        best = served.best(tf.constant([text]))
        np.testing.assert_allclose(best["score"], expected["scores"][:, 0], 1e-5)
        texts = target.detokenize(expected["token_ids"][:, 0])
        assert best["text"].numpy().tolist() == texts.numpy().tolist()


def test_padding_that_the_model_does_not_mask_raises(pair, translator):
    source, target = pair
    other = MarianTokenizer.from_config(source.get_config())
    other.padding_id = 3
    message = f"source tokenizer must pad with .* masks, {source.padding_id}.*=3"
    with pytest.raises(ValueError, match=message):
        Translator(translator, other, target)


@pytest.mark.slow
@pytest.mark.export
def test_an_exported_pair(pair, translator, tmp_path):
    options = {"max_new_tokens": LENGTH, "jit_compile": False}
    path = export_translator(translator, tmp_path / "saved", *pair, **options)
    loaded = tf.saved_model.load(path)
    texts = loaded.signatures["serving_default"](tf.constant(TEXTS))["text"].numpy()
    expected = Translator(translator, *pair, **options)(TEXTS)
    assert [text.decode() for text in texts] == expected


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory):
    return load_published_tokenizer(folders.gpt2(tmp_path_factory.mktemp("gpt2")))


@pytest.fixture(scope="module")
def writer(byte_level):
    target = keras.Input((None,), dtype="int32", name="target")
    embedding = layers.TokenEmbedding(
        byte_level.vocabulary_size, 8, padding_id=None, scale=True
    )
    x = layers.SinusoidalPositionEmbedding()(embedding(target))
    x = layers.TransformerDecoder(12, 2)(x)
    return randomize(keras.Model(target, embedding(x, reverse=True)), seed=3)


PROMPTS = ["", "a cat", "나는 학교에 간다. 한국어를", "the"]


@pytest.mark.slow
def test_continuations_if_start_end_and_padding_are_one_id(byte_level, writer):
    assert set(byte_level.special_ids.values()) == {0, None}
    generator = TextGenerator(
        writer, byte_level, BEAM, LENGTH, max_prompt_length=24, jit_compile=False
    )
    results = generator.n_best(tf.constant(PROMPTS))
    prompts = byte_level.tokenize(PROMPTS, add_start=True)
    by_ids = generator.generate_ids(prompts.to_tensor(0))
    for i, prompt in enumerate(prompts):
        prompt = tf.concat([prompt[:1], prompt[1:][-23:]], axis=0)
        expected = generate(
            writer, prompt[None], end_token_id=0, max_new_tokens=LENGTH, strategy=BEAM
        )["token_ids"][0]
        np.testing.assert_array_equal(by_ids["token_ids"][i], expected)
        before = byte_level.detokenize(prompt).numpy()
        full = tf.concat([tf.tile(prompt[None], [2, 1]), expected], axis=1)
        texts = [text[len(before) :] for text in byte_level.detokenize(full).numpy()]
        assert results["texts"][i].numpy().tolist() == texts
    assert any(results["texts"].numpy().ravel())


def test_export_of_a_tokenizer_that_runs_in_python_raises(byte_level, writer, tmp_path):
    message = "cannot be exported; those of BERT.*JsonTokenizer"
    with pytest.raises(ValueError, match=message):
        export_language_model(
            writer, tmp_path / "saved", byte_level, max_new_tokens=LENGTH
        )
    assert not list(tmp_path.iterdir())
