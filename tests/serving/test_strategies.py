"""Translators with each strategy, with and without XLA, compared with `generate`."""

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
    """A translator with beam search, compiled with XLA, which takes a few seconds."""
    return translator(model, tokenizer, STRATEGIES["beam"], jit_compile=True)


def translator(model, tokenizer, strategy, **options):
    options = {"max_new_tokens": LENGTH, "jit_compile": False, **options}
    return Translator(model, tokenizer, strategy=strategy, target="summary", **options)


def served_search(model, tokenizer, strategy):
    text, summary = (
        next(t for t in model.inputs if t.name == n) for n in ("text", "summary")
    )
    return ServedSearch(
        model,
        text,
        summary,
        tokenizer,
        strategy,
        max_new_tokens=LENGTH,
        max_source_length=100,
        padding_id=0,
        jit_compile=True,
    )


def expected(model, tokenizer, strategy, texts):
    results = generate(
        model,
        {"text": tokenizer.tokenize(texts, add_end=True)},
        start_token_id=2,
        end_token_id=3,
        max_new_tokens=LENGTH,
        strategy=strategy,
        target="summary",
    )
    return tokenizer.detokenize(results["token_ids"]).numpy(), results


@pytest.mark.slow
@pytest.mark.parametrize("name", STRATEGIES)
def test_all_hypotheses_equal_those_of_generate(model, tokenizer, beam, name):
    strategy = STRATEGIES[name]
    served = beam if name == "beam" else translator(model, tokenizer, strategy)
    texts, results = expected(model, tokenizer, strategy, TEXTS)
    assert len(set(texts[:, 0])) > 3
    several = served.n_best(tf.constant(TEXTS))
    np.testing.assert_array_equal(several["texts"], texts)
    np.testing.assert_allclose(several["scores"], results["scores"], rtol=1e-4)
    best = served.translate(tf.constant(TEXTS))
    np.testing.assert_array_equal(best["text"], texts[:, 0])
    np.testing.assert_allclose(best["score"], results["scores"][:, 0], rtol=1e-4)
    ids = tokenizer.tokenize(TEXTS, add_end=True).to_tensor()
    ids = served.translate_ids(tf.cast(ids, tf.int32))
    np.testing.assert_array_equal(ids["token_ids"], results["token_ids"])
    np.testing.assert_array_equal(ids["lengths"], results["lengths"])


@pytest.mark.slow
def test_best_hypothesis_is_first_and_blank_texts_have_one(beam):
    results = beam.n_best(tf.constant([*TEXTS, "", " "]))
    scores = results["scores"].numpy()
    assert (scores[:-2, 0] > scores[:-2, 1]).all() and np.isfinite(scores[:-2]).all()
    assert results["texts"].numpy()[-2:].tolist() == [[b"", b""]] * 2
    np.testing.assert_array_equal(scores[-2:], [[0, -np.inf]] * 2)


@pytest.mark.slow
def test_outputs_do_not_depend_on_the_bucket(beam):
    """Padded to (1, 16) alone, and to (8, 32) in a batch with others."""
    batched = beam.n_best(tf.constant([TEXTS[0], *["가" * 17] * 5]))
    alone = beam.n_best(tf.constant(TEXTS[:1]))
    np.testing.assert_array_equal(batched["texts"][:1], alone["texts"])
    np.testing.assert_allclose(batched["scores"][:1], alone["scores"], rtol=1e-4)


@pytest.mark.slow
def test_empty_batch(beam):
    assert beam([]) == []
    for output in beam.n_best(tf.constant([], tf.string)).values():
        assert output.shape == (0, 2)
    assert beam.translate_ids(tf.zeros([0, 0], tf.int32))["lengths"].shape == (0, 2)
    assert beam.encode(tf.zeros([0, 3], tf.int32))["hidden_states"].shape == (0, 3, 8)
    results = beam.translate_ids(tf.zeros([2, 0], tf.int32))
    assert np.isfinite(results["scores"]).all()


def test_few_shapes_are_compiled(model, tokenizer):
    search = served_search(model, tokenizer, Sampling())
    shapes = set()

    def record(ids, draws):
        shapes.add((tuple(ids.shape), tuple(draws.shape)))
        return {"index": tf.range(ids.shape[0])}

    search._loops = [record]
    for batch_size in (0, 1, 2, 3, 5, 7, 9, 16, 17):
        for length in (0, 1, 15, 16, 17, 33, 64, 65, 100):
            results = search(tf.ones([batch_size, length], tf.int32))
            assert results["index"].numpy().tolist() == list(range(batch_size))
    assert {ids for ids, _ in shapes} == {
        (batch_size, length)
        for batch_size in (1, 2, 4, 8, 16, 32)
        for length in (16, 32, 64, 100)
    }
    assert all(draws == (ids[0], LENGTH) for ids, draws in shapes)


@pytest.mark.slow
def test_sampling_draws_new_numbers_unless_it_has_a_seed(model, tokenizer):
    """With a seed, the numbers are the same for every padding of the batch."""
    unseeded = translator(model, tokenizer, Sampling(temperature=9.0))
    outputs = {tuple(unseeded(TEXTS)) for _ in range(4)}
    assert len(outputs) == 4
    search = served_search(model, tokenizer, STRATEGIES["sampling"])
    recorded = []
    search._loops = [lambda ids, draws: recorded.append(draws.numpy()) or {}]
    for batch_size in (3, 4, 3):
        search(tf.ones([batch_size, 2], tf.int32))
    np.testing.assert_array_equal(recorded[0], recorded[2])
    np.testing.assert_array_equal(recorded[0][:3], recorded[1][:3])
    np.testing.assert_array_equal(recorded[0][3], recorded[0][0])
    draws = STRATEGIES["sampling"].draw(4, LENGTH)
    np.testing.assert_array_equal(recorded[1], draws)


@pytest.mark.slow
def test_source_of_fixed_length(tokenizer):
    fixed = other_names(tokenizer.vocabulary_size, fixed_length=12)
    free = other_names(tokenizer.vocabulary_size)
    free.set_weights(fixed.get_weights())
    truncated = translator(free, tokenizer, None, max_source_length=12)
    served = translator(fixed, tokenizer, None)
    texts = [*TEXTS, KOREAN[0] * 9]
    assert served(texts) == truncated(texts)
    states = served.encode(tf.constant([[5, 6, 3]]))
    assert states["hidden_states"].shape == (1, 12, 8)
    assert int(tf.reduce_sum(tf.cast(states["padding_mask"], tf.int32))) == 3
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="too many tokens per text"
    ):
        served.translate_ids(tf.ones([1, 13], tf.int32))


def test_bad_arguments(model, tokenizer, tokenizers):
    for options, message in (
        (
            {"target": None},
            "`target` must be the name.*'summary', 'text'.*target='target'",
        ),
        ({"strategy": "beam"}, "`strategy` must be a strategy of.*strategy='beam'"),
        (
            {"max_new_tokens": 0},
            "`max_new_tokens` must be.*at least 1. Received: max_new_tokens=0",
        ),
        ({"max_source_length": 1}, "at least 2.*Received: max_source_length=1"),
        ({"jit_compile": "yes"}, "`jit_compile` must be.*jit_compile='yes'"),
    ):
        options = {"target": "summary", "max_new_tokens": LENGTH, **options}
        with pytest.raises(ValueError, match=message):
            Translator(model, tokenizer, **options)
    with pytest.raises(ValueError, match="target tokenizer's vocabulary must fit"):
        Translator(model, tokenizer, tokenizers["source"], target="summary")
