"""`TextGenerator` in the process that has the Keras model."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from small_models import language_model, other_names
from small_translator import ENGLISH, KOREAN

from keras_attn.decoding import BeamSearch, generate
from keras_attn.serving import TextGenerator

LENGTH, PROMPT_LENGTH = 6, 40
PROMPTS = ["", KOREAN[1], KOREAN[0] * 9, "I go", ENGLISH[0] * 2]
BEAM = BeamSearch(2, num_return_sequences=2)


@pytest.fixture(scope="module")
def tokenizer(tokenizers):
    return tokenizers["source"]


@pytest.fixture(scope="module")
def model(tokenizer):
    return language_model(tokenizer.vocabulary_size)


@pytest.fixture(scope="module")
def generator(model, tokenizer):
    return TextGenerator(
        model,
        tokenizer,
        BEAM,
        max_new_tokens=LENGTH,
        max_prompt_length=PROMPT_LENGTH,
        jit_compile=False,
    )


def prompt_ids(tokenizer, text):
    ids = tokenizer.tokenize(text).numpy().tolist()
    return [2, *ids[-(PROMPT_LENGTH - 1) :]]


def reference(model, tokenizer, texts):
    """Continue each prompt with `generate`, and remove the prompts in Python."""
    continuations, scores, all_ids = [], [], []
    for text in texts:
        ids = prompt_ids(tokenizer, text)
        results = generate(
            model,
            {"token_ids": np.array([ids])},
            end_token_id=3,
            max_new_tokens=LENGTH,
            strategy=BEAM,
        )
        before = tokenizer.detokenize(ids).numpy()
        new_ids = results["token_ids"].numpy()[0]
        full = [tokenizer.detokenize([*ids, *new]).numpy() for new in new_ids.tolist()]
        assert all(text.startswith(before) for text in full)
        continuations.append([text[len(before) :] for text in full])
        scores.append(results["scores"].numpy()[0])
        all_ids.append(new_ids)
    return continuations, np.array(scores), np.array(all_ids)


@pytest.fixture(scope="module")
def expected(model, tokenizer):
    return reference(model, tokenizer, PROMPTS)


@pytest.mark.slow
def test_continuations_equal_those_of_generate(generator, expected):
    """All lengths in one batch, the longest prompt truncated to its last tokens."""
    continuations, scores, ids = expected
    assert len({tuple(hypotheses[0]) for hypotheses in ids.tolist()}) > 3
    results = generator.n_best(tf.constant(PROMPTS))
    assert results["texts"].numpy().tolist() == continuations
    np.testing.assert_allclose(results["scores"], scores, rtol=1e-4)
    best = generator.generate(tf.constant(PROMPTS))
    assert best["text"].numpy().tolist() == [texts[0] for texts in continuations]
    np.testing.assert_allclose(best["score"], scores[:, 0], rtol=1e-4)


@pytest.mark.slow
def test_prefill_of_different_lengths(generator, expected):
    """The shortest prompt of a batch selects one of three loops."""
    continuations = expected[0]
    for indices in ([2], [2, 4], [0]):
        texts = generator([PROMPTS[i] for i in indices])
        assert texts == [continuations[i][0].decode() for i in indices]


@pytest.mark.slow
def test_prompts_of_ids(generator, expected, tokenizer):
    """Padded at the end. A prompt of zeros is an empty one."""
    prompts = [prompt_ids(tokenizer, text) for text in PROMPTS]
    prompts[0] = []
    ids = np.zeros((len(prompts), PROMPT_LENGTH + 3), "int32")
    for i, prompt in enumerate(prompts):
        ids[i, : len(prompt)] = prompt
    results = generator.generate_ids(tf.constant(ids))
    np.testing.assert_array_equal(results["token_ids"], expected[2])
    none = generator.generate_ids(tf.zeros([1, 0], tf.int32))
    np.testing.assert_array_equal(none["token_ids"], expected[2][:1])


def test_long_prompts_are_truncated_to_first_and_last_ids(generator):
    ids = np.arange(5, 5 + 3 * PROMPT_LENGTH, dtype="int32")[None]
    truncated = np.concatenate([ids[:, :1], ids[:, 1 - PROMPT_LENGTH :]], axis=1)
    long, short = (generator.generate_ids(tf.constant(x)) for x in (ids, truncated))
    np.testing.assert_array_equal(long["token_ids"], short["token_ids"])


def test_unusual_prompts(generator):
    assert generator([]) == []
    unusual = [
        b"\xff\xfe\xea\xb0",
        b"\x00",
        b" ",
        "😀👩‍👩‍👧\u2581".encode(),
        b"a" * 10_000,
    ]
    results = generator.generate(tf.constant([KOREAN[1].encode(), *unusual]))
    assert results["text"][0].numpy().decode() == generator(KOREAN[1:2])[0]
    for text in results["text"].numpy():
        text.decode()
    assert np.isfinite(results["score"]).all()


@pytest.mark.slow
def test_prompt_and_continuation_make_one_text(tokenizers):
    """A space between the two belongs to the continuation, in every tokenizer."""
    for kind in ("source", "word", "character", "word piece"):
        tokenizer = tokenizers[kind]
        ids = tokenizer.tokenize("I go to school.").numpy()
        # A bigram model of one sentence.
        order = [2, *ids.tolist(), 3]
        if len(set(order)) < len(order):
            order = [*dict.fromkeys(order[:-1]), 3]
        text = tokenizer.detokenize(order).numpy().decode()
        size = tokenizer.vocabulary_size
        table = np.zeros((size, size), "float32")
        for before, after in itertools.pairwise(order):
            table[before, after] = 9.0
        target = keras.Input((None,), dtype="int32", name="target")
        bigrams = keras.layers.Embedding(size, size)
        model = keras.Model(target, bigrams(target))
        bigrams.set_weights([table])
        options = {"max_prompt_length": 8, "jit_compile": False}
        generator = TextGenerator(model, tokenizer, max_new_tokens=20, **options)
        start = tokenizer.detokenize(order[:3]).numpy().decode()
        if tokenizer.tokenize(start).numpy().tolist() == order[1:3]:
            assert start + generator([start])[0] == text
        assert generator([""]) == [text]


@pytest.mark.slow
def test_learned_positions_limit_the_prompt(tokenizers):
    tokenizer = tokenizers["character"]
    model = language_model(tokenizer.vocabulary_size, max_length=12)
    generator = TextGenerator(model, tokenizer, max_new_tokens=6, jit_compile=False)
    assert len(tokenizer.tokenize(KOREAN[1])) > 6
    ids = [2, *tokenizer.tokenize(KOREAN[1] * 3).numpy()[-6:]]
    results = generate(
        model, {"token_ids": np.array([ids])}, end_token_id=3, max_new_tokens=6
    )
    text = tokenizer.detokenize(results["token_ids"][0, 0]).numpy().decode()
    assert generator([KOREAN[1] * 3]) == [text]
    with pytest.raises(ValueError, match="in the 12 positions.*max_new_tokens=12"):
        TextGenerator(model, tokenizer, max_new_tokens=12)


def test_bad_arguments(model, tokenizer):
    for options, message in (
        ({"target": "x"}, "`target` must be the name.*'token_ids'.*target='x'"),
        ({"strategy": 3}, "`strategy` must be a strategy of.*strategy=3"),
        (
            {"max_new_tokens": 0},
            "`max_new_tokens`.*at least 1. Received: max_new_tokens=0",
        ),
        ({"max_prompt_length": 1}, "at least 2.*Received: max_prompt_length=1"),
    ):
        with pytest.raises(ValueError, match=message):
            TextGenerator(model, tokenizer, **options)
    with pytest.raises(ValueError, match="one input.*'text'"):
        TextGenerator(other_names(90), tokenizer)
    small = language_model(tokenizer.vocabulary_size - 1)
    with pytest.raises(ValueError, match="text tokenizer's vocabulary must fit"):
        TextGenerator(small, tokenizer)
