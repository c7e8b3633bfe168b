"""Prompts in, continuations out, in the process that has the Keras model."""

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


def by_hand(model, tokenizer, texts):
    """The same, a prompt at a time, with texts cut in Python."""
    answers, scores, all_ids = [], [], []
    for text in texts:
        ids = prompt_ids(tokenizer, text)
        found = generate(
            model,
            {"target": np.array([ids])},
            end_token_id=3,
            max_new_tokens=LENGTH,
            strategy=BEAM,
        )
        before = tokenizer.detokenize(ids).numpy()
        rows = found["token_ids"].numpy()[0]
        whole = [tokenizer.detokenize([*ids, *row]).numpy() for row in rows.tolist()]
        assert all(text.startswith(before) for text in whole)
        answers.append([text[len(before) :] for text in whole])
        scores.append(found["scores"].numpy()[0])
        all_ids.append(rows)
    return answers, np.array(scores), np.array(all_ids)


@pytest.fixture(scope="module")
def expected(model, tokenizer):
    return by_hand(model, tokenizer, PROMPTS)


def test_it_is_generate_after_each_prompt(generator, expected):
    """All lengths in one batch, the longest cut to its last tokens."""
    answers, scores, ids = expected
    assert len({tuple(rows[0]) for rows in ids.tolist()}) > 3
    found = generator.n_best(tf.constant(PROMPTS))
    assert found["texts"].numpy().tolist() == answers
    np.testing.assert_allclose(found["scores"], scores, rtol=1e-4)
    best = generator.generate(tf.constant(PROMPTS))
    assert best["text"].numpy().tolist() == [answer[0] for answer in answers]
    np.testing.assert_allclose(best["score"], scores[:, 0], rtol=1e-4)


def test_long_prompts_go_in_at_once(generator, expected):
    """As many tokens as all have, so that the batch chooses among three loops."""
    answers = expected[0]
    for chosen in ([2], [2, 4], [0]):
        found = generator([PROMPTS[i] for i in chosen])
        assert found == [answers[i][0].decode() for i in chosen]


def test_prompts_of_ids(generator, expected, tokenizer):
    """Padded at the end; a row of zeros is an empty prompt."""
    rows = [prompt_ids(tokenizer, text) for text in PROMPTS]
    rows[0] = []
    ids = np.zeros((len(rows), PROMPT_LENGTH + 3), "int32")
    for row, given in zip(ids, rows):
        row[: len(given)] = given
    found = generator.generate_ids(tf.constant(ids))
    np.testing.assert_array_equal(found["token_ids"], expected[2])
    none = generator.generate_ids(tf.zeros([1, 0], tf.int32))
    np.testing.assert_array_equal(none["token_ids"], expected[2][:1])


def test_long_ids_keep_the_first_and_the_last(generator):
    row = np.arange(5, 5 + 3 * PROMPT_LENGTH, dtype="int32")[None]
    cut = np.concatenate([row[:, :1], row[:, 1 - PROMPT_LENGTH :]], axis=1)
    long, short = (generator.generate_ids(tf.constant(x)) for x in (row, cut))
    np.testing.assert_array_equal(long["token_ids"], short["token_ids"])


def test_odd_prompts(generator):
    assert generator([]) == []
    odd = [b"\xff\xfe\xea\xb0", b"\x00", b" ", "😀👩‍👩‍👧\u2581".encode(), b"a" * 10_000]
    found = generator.generate(tf.constant([KOREAN[1].encode(), *odd]))
    assert found["text"][0].numpy().decode() == generator(KOREAN[1:2])[0]
    for text in found["text"].numpy():
        text.decode()
    assert np.isfinite(found["score"]).all()


def test_prompt_and_continuation_make_one_text(tokenizers):
    """A space between the two belongs to the continuation, in every tokenizer."""
    for kind in ("source", "word", "character", "word piece"):
        tokenizer = tokenizers[kind]
        whole = tokenizer.tokenize("I go to school.").numpy()
        # A "model" that says by heart what follows: the next id is the last plus one.
        order = [2, *whole.tolist(), 3]
        if len(set(order)) < len(order):
            order = [*dict.fromkeys(order[:-1]), 3]
        text = tokenizer.detokenize(order).numpy().decode()
        size = tokenizer.vocabulary_size
        table = np.zeros((size, size), "float32")
        for before, after in itertools.pairwise(order):
            table[before, after] = 9.0
        target = keras.Input((None,), dtype="int32", name="target")
        by_heart = keras.layers.Embedding(size, size)
        model = keras.Model(target, by_heart(target))
        by_heart.set_weights([table])
        options = {"max_prompt_length": 8, "jit_compile": False}
        generator = TextGenerator(model, tokenizer, max_new_tokens=20, **options)
        start = tokenizer.detokenize(order[:3]).numpy().decode()
        if tokenizer.tokenize(start).numpy().tolist() == order[1:3]:
            assert start + generator([start])[0] == text
        assert generator([""]) == [text]


def test_learned_positions_leave_room_for_so_much_prompt(tokenizers):
    tokenizer = tokenizers["character"]
    model = language_model(tokenizer.vocabulary_size, max_length=12)
    generator = TextGenerator(model, tokenizer, max_new_tokens=6, jit_compile=False)
    assert len(tokenizer.tokenize(KOREAN[1])) > 6
    ids = [2, *tokenizer.tokenize(KOREAN[1] * 3).numpy()[-6:]]
    found = generate(
        model, {"target": np.array([ids])}, end_token_id=3, max_new_tokens=6
    )
    text = tokenizer.detokenize(found["token_ids"][0, 0]).numpy().decode()
    assert generator([KOREAN[1] * 3]) == [text]
    with pytest.raises(ValueError, match="in the 12 positions.*max_length=12"):
        TextGenerator(model, tokenizer, max_new_tokens=12)


def test_bad_arguments(model, tokenizer):
    for options, message in (
        ({"target": "x"}, "`target` must name.*'target'.*target='x'"),
        ({"strategy": 3}, "`strategy` must be one of.*strategy=3"),
        ({"max_length": 0}, "`max_length`.*at least 1. Received: max_length=0"),
        ({"max_prompt_length": 1}, "at least 2.*Received: max_prompt_length=1"),
    ):
        with pytest.raises(ValueError, match=message):
            TextGenerator(model, tokenizer, **options)
    with pytest.raises(ValueError, match="one input.*'text'"):
        TextGenerator(other_names(90), tokenizer)
    small = language_model(tokenizer.vocabulary_size - 1)
    with pytest.raises(ValueError, match="text tokenizer's vocabulary must fit"):
        TextGenerator(small, tokenizer)
