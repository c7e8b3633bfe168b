"""Translators with each strategy, with XLA and without: the same as `generate`."""

import numpy as np
import pytest
import tensorflow as tf
from small_models import other_names
from small_translator import ENGLISH, KOREAN

from keras_attn.decoding import BeamSearch, GreedySearch, Sampling, generate
from keras_attn.serving import Translator
from keras_attn.serving.search import ServedSearch

LENGTH = 6
TEXTS = [*KOREAN, "나", ENGLISH[0] * 2]
STRATEGIES = {
    "greedy": GreedySearch(),
    "beam": BeamSearch(3, num_return_sequences=2),
    "sampling": Sampling(temperature=2.0, top_k=20, seed=5),
}


@pytest.fixture(scope="module")
def tokenizer(tokenizers):
    return tokenizers["character"]


@pytest.fixture(scope="module")
def model(tokenizer):
    return other_names(tokenizer.vocabulary_size)


@pytest.fixture(scope="module")
def beam(model, tokenizer):
    """Compiled, which takes a while."""
    return translator(model, tokenizer, STRATEGIES["beam"], jit_compile=True)


def translator(model, tokenizer, strategy, **options):
    options = {"max_length": LENGTH, "jit_compile": False, **options}
    return Translator(model, tokenizer, strategy=strategy, target="summary", **options)


def expected(model, tokenizer, strategy, texts):
    found = generate(
        model,
        {"text": tokenizer.tokenize(texts, add_end=True)},
        start_token_id=2,
        end_token_id=3,
        max_new_tokens=LENGTH,
        strategy=strategy,
        target="summary",
    )
    return tokenizer.detokenize(found["token_ids"]).numpy(), found


@pytest.mark.parametrize("name", STRATEGIES)
def test_all_hypotheses_are_those_of_generate(model, tokenizer, beam, name):
    strategy = STRATEGIES[name]
    served = beam if name == "beam" else translator(model, tokenizer, strategy)
    texts, found = expected(model, tokenizer, strategy, TEXTS)
    assert len(set(texts[:, 0])) > 3
    several = served.n_best(tf.constant(TEXTS))
    np.testing.assert_array_equal(several["texts"], texts)
    np.testing.assert_allclose(several["scores"], found["scores"], rtol=1e-4)
    best = served.translate(tf.constant(TEXTS))
    np.testing.assert_array_equal(best["text"], texts[:, 0])
    np.testing.assert_allclose(best["score"], found["scores"][:, 0], rtol=1e-4)
    ids = tokenizer.tokenize(TEXTS, add_end=True).to_tensor()
    ids = served.translate_ids(tf.cast(ids, tf.int32))
    np.testing.assert_array_equal(ids["token_ids"], found["token_ids"])
    np.testing.assert_array_equal(ids["lengths"], found["lengths"])


def test_the_best_come_first_and_blank_texts_give_one(beam):
    found = beam.n_best(tf.constant([*TEXTS, "", " "]))
    scores = found["scores"].numpy()
    assert (scores[:-2, 0] > scores[:-2, 1]).all() and np.isfinite(scores[:-2]).all()
    assert found["texts"].numpy()[-2:].tolist() == [[b"", b""]] * 2
    np.testing.assert_array_equal(scores[-2:], [[0, -np.inf]] * 2)


def test_no_answer_depends_on_its_bucket(beam):
    """Alone (1 row, 16 places), and beside others (8 rows, 32 places)."""
    beside = beam.n_best(tf.constant([TEXTS[0], *["가" * 17] * 5]))
    alone = beam.n_best(tf.constant(TEXTS[:1]))
    np.testing.assert_array_equal(beside["texts"][:1], alone["texts"])
    np.testing.assert_allclose(beside["scores"][:1], alone["scores"], rtol=1e-4)


def test_no_text_no_answer(beam):
    assert beam([]) == []
    for rows in (beam.n_best(tf.constant([], tf.string))).values():
        assert rows.shape == (0, 2)
    assert beam.translate_ids(tf.zeros([0, 0], tf.int32))["lengths"].shape == (0, 2)
    assert beam.encode(tf.zeros([0, 3], tf.int32))["hidden_states"].shape == (0, 3, 8)
    found = beam.translate_ids(tf.zeros([2, 0], tf.int32))
    assert np.isfinite(found["scores"]).all()


def test_shapes_to_compile_are_few(model, tokenizer):
    text, summary = (
        next(t for t in model.inputs if t.name == n) for n in ("text", "summary")
    )
    search = ServedSearch(
        model, text, summary, tokenizer, 0, Sampling(), LENGTH, 100, True
    )
    shapes = set()

    def record(ids, draws):
        shapes.add((tuple(ids.shape), tuple(draws.shape)))
        return {"row": tf.range(ids.shape[0])}

    search._loops = [record]
    for rows in (0, 1, 2, 3, 5, 7, 9, 16, 17):
        for length in (0, 1, 15, 16, 17, 33, 64, 65, 100):
            found = search(tf.ones([rows, length], tf.int32))
            assert found["row"].numpy().tolist() == list(range(rows))
    assert {ids for ids, _ in shapes} == {
        (rows, length) for rows in (1, 2, 4, 8, 16, 32) for length in (16, 32, 64, 100)
    }
    assert all(draws == (ids[0], LENGTH) for ids, draws in shapes)


def test_sampling_draws_anew_for_each_request(model, tokenizer):
    """And the same, with a seed, though the batch be padded."""
    anew = translator(model, tokenizer, Sampling(temperature=9.0))
    answers = {tuple(anew(TEXTS)) for _ in range(4)}
    assert len(answers) == 4
    search = ServedSearch(
        model,
        *(next(t for t in model.inputs if t.name == n) for n in ("text", "summary")),
        tokenizer,
        0,
        STRATEGIES["sampling"],
        LENGTH,
        100,
        True,
    )
    given = []
    search._loops = [lambda ids, draws: given.append(draws.numpy()) or {}]
    for rows in (3, 4, 3):
        search(tf.ones([rows, 2], tf.int32))
    np.testing.assert_array_equal(given[0], given[2])
    np.testing.assert_array_equal(given[0][:3], given[1][:3])
    np.testing.assert_array_equal(given[0][3], given[0][0])
    drawn = STRATEGIES["sampling"].draw(4, LENGTH)
    np.testing.assert_array_equal(given[1], drawn)


def test_a_source_of_fixed_length(tokenizer):
    fixed = other_names(tokenizer.vocabulary_size, fixed_length=12)
    free = other_names(tokenizer.vocabulary_size)
    free.set_weights(fixed.get_weights())
    cut = translator(free, tokenizer, None, max_source_length=12)
    served = translator(fixed, tokenizer, None)
    texts = [*TEXTS, KOREAN[0] * 9]
    assert served(texts) == cut(texts)
    states = served.encode(tf.constant([[5, 6, 3]]))
    assert states["hidden_states"].shape == (1, 12, 8)
    assert int(tf.reduce_sum(tf.cast(states["padding_mask"], tf.int32))) == 3
    with pytest.raises(tf.errors.InvalidArgumentError, match="too many tokens a row"):
        served.translate_ids(tf.ones([1, 13], tf.int32))


def test_bad_arguments(model, tokenizer, tokenizers):
    for options, message in (
        ({"target": None}, "`target` must name.*'summary', 'text'.*target='target'"),
        ({"strategy": "beam"}, "`strategy` must be one of.*strategy='beam'"),
        ({"max_length": 0}, "`max_length` must be.*at least 1. Received: max_length=0"),
        ({"max_source_length": 1}, "at least 2.*Received: max_source_length=1"),
        ({"jit_compile": "yes"}, "`jit_compile` must be.*jit_compile='yes'"),
    ):
        options = {"target": "summary", "max_length": LENGTH, **options}
        with pytest.raises(ValueError, match=message):
            Translator(model, tokenizer, **options)
    with pytest.raises(ValueError, match="target tokenizer's vocabulary must fit"):
        Translator(model, tokenizer, tokenizers["source"], target="summary")
