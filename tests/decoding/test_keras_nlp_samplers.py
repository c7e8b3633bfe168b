"""Samplers of `keras_nlp` as strategies, against the same rules of ours."""

import keras
import keras_nlp
import numpy as np
import pytest
from keras import ops
from test_constraints import PROMPTS
from test_sampling import LOGITS, V, chi_squared, constant_model, softmax

from keras_attn.decoding import BeamSearch, GreedySearch, generate

END = 3
samplers = keras_nlp.samplers


def token_ids(model, strategy, **options):
    options = {"end_token_id": END, "max_new_tokens": 6, **options}
    found = generate(model, {"target": PROMPTS}, strategy=strategy, **options)
    return {name: ops.convert_to_numpy(value) for name, value in found.items()}


@pytest.mark.parametrize(
    ("sampler", "ours"),
    [
        (samplers.GreedySampler(), GreedySearch()),
        (samplers.TopKSampler(k=1, seed=1), GreedySearch()),
        (samplers.BeamSampler(num_beams=3), BeamSearch(3, length_penalty=0.0)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_as_our_own(language_model, sampler, ours):
    found = token_ids(language_model, sampler)
    expected = token_ids(language_model, ours)
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], atol=1e-5)


@pytest.mark.on_pytorch
def test_frequencies():
    """Each token is drawn anew, at a temperature."""
    found = generate(
        constant_model(),
        np.ones((200, 1), "int32"),
        max_new_tokens=20,
        strategy=samplers.RandomSampler(temperature=2.0, seed=5),
    )
    drawn = ops.convert_to_numpy(found["token_ids"])
    assert chi_squared(drawn, softmax(LOGITS / 2.0)) < 4
    assert chi_squared(drawn[:, 0, 0], softmax(LOGITS / 2.0)) < 4
    assert (drawn[:, 0, :-1] != drawn[:, 0, 1:]).any(axis=0).all()


@pytest.mark.slow
def test_a_seed_repeats_and_a_sampler_goes_on(language_model):
    sampler = samplers.TopPSampler(p=0.9, seed=7)
    first, second = (token_ids(language_model, sampler) for _ in range(2))
    again = token_ids(language_model, samplers.TopPSampler(p=0.9, seed=7))
    np.testing.assert_array_equal(first["token_ids"], again["token_ids"])
    assert (first["token_ids"] != second["token_ids"]).any()


def test_a_sampler_of_the_users_own():
    class SecondBest(samplers.Sampler):
        def get_next_token(self, probabilities):
            return keras.ops.argsort(probabilities, axis=-1)[:, -2]

    found = generate(
        constant_model(),
        np.ones((2, 1), "int32"),
        max_new_tokens=3,
        strategy=SecondBest(),
    )
    expected = np.full((2, 1, 3), np.argsort(LOGITS)[-2])
    np.testing.assert_array_equal(ops.convert_to_numpy(found["token_ids"]), expected)
    scores = ops.convert_to_numpy(found["scores"])
    np.testing.assert_allclose(
        scores, 3 * np.log(softmax(LOGITS)[expected[0, 0, 0]]), rtol=1e-5
    )
    assert expected.max() < V


def test_what_is_no_strategy_is_refused(language_model):
    for strategy in (samplers.ContrastiveSampler(), "greedy", samplers.Sampler()):
        with pytest.raises(ValueError, match="Received: strategy="):
            token_ids(language_model, strategy)
