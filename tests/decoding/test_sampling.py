"""Sampling, against the distribution it draws from."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attn.decoding import Sampling, generate

LOGITS = np.array([-9.0, 1.0, 0.5, 0.0, -0.5, 2.0, -2.0, 1.5], "float32")
V, END = len(LOGITS), 6
ROWS = 4000


def constant_model(logits=LOGITS):
    """Each next token is drawn from the same distribution."""
    target = keras.Input((None,), dtype="int32", name="target")
    layer = keras.layers.Embedding(V, V)
    model = keras.Model(target, layer(target))
    layer.set_weights([np.tile(logits, (V, 1))])
    return model


def drawn(rows=ROWS, max_new_tokens=1, logits=LOGITS, prompt=1, **options):
    found = generate(
        constant_model(logits),
        np.full((rows, 1), prompt, "int32"),
        end_token_id=END,
        max_new_tokens=max_new_tokens,
        strategy=Sampling(**options),
    )
    return {name: ops.convert_to_numpy(value) for name, value in found.items()}


def softmax(logits):
    exp = np.exp(np.asarray(logits, "float64") - np.max(logits))
    return exp / exp.sum()


def chi_squared(token_ids, probabilities):
    """How far the counts are from the expected ones, in deviations from the mean."""
    counts = np.bincount(token_ids.ravel(), minlength=V)
    possible = probabilities > 0
    assert not counts[~possible].any()
    expected = probabilities[possible] * counts.sum()
    statistic = ((counts[possible] - expected) ** 2 / expected).sum()
    freedom = possible.sum() - 1
    return (statistic - freedom) / np.sqrt(2 * freedom)


@pytest.mark.every_backend
@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_frequencies_follow_the_softmax_at_each_temperature(temperature):
    found = drawn(temperature=temperature, seed=3)
    assert chi_squared(found["token_ids"], softmax(LOGITS / temperature)) < 4
    # The test can tell: the other temperatures do not fit.
    assert chi_squared(found["token_ids"], softmax(LOGITS / (1.5 * temperature))) > 15


@pytest.mark.parametrize("top_k", [1, 3, 100])
def test_top_k(top_k):
    kept = np.argsort(-LOGITS)[:top_k]
    expected = np.zeros(V)
    expected[kept] = softmax(LOGITS[kept])
    found = drawn(top_k=top_k, seed=4)["token_ids"]
    if top_k == 1:
        assert (found == LOGITS.argmax()).all()
    else:
        assert chi_squared(found, expected) < 4


@pytest.mark.parametrize("top_p", [0.01, 0.5, 0.9, 1.0])
def test_top_p_keeps_the_fewest_that_reach_it(top_p):
    probabilities = softmax(LOGITS)
    order = np.argsort(-probabilities)
    number = int(np.searchsorted(np.cumsum(probabilities[order]), top_p)) + 1
    kept = order[:number]
    expected = np.zeros(V)
    expected[kept] = softmax(LOGITS[kept])
    found = drawn(top_p=top_p, seed=5)["token_ids"]
    if number == 1:
        assert (found == kept[0]).all()
    else:
        assert chi_squared(found, expected) < 4


def test_top_k_comes_before_top_p():
    """0.46, 0.28, 0.17 and 0.10 of the four: 0.7 of them are two."""
    kept = np.argsort(-LOGITS)[:2]
    found = drawn(top_k=4, top_p=0.7, seed=6)["token_ids"]
    assert set(found.flat) == set(kept)


def test_the_same_seed_gives_the_same_text():
    first, again, other = (
        drawn(rows=20, max_new_tokens=10, seed=seed)["token_ids"] for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_without_a_seed_each_call_draws_anew():
    model = constant_model()
    prompt = np.ones((20, 1), "int32")
    first, second = (
        generate(model, prompt, end_token_id=END, max_new_tokens=9, strategy=Sampling())
        for _ in "ab"
    )
    assert not np.array_equal(
        ops.convert_to_numpy(first["token_ids"]),
        ops.convert_to_numpy(second["token_ids"]),
    )


def test_rows_and_steps_draw_apart():
    found = drawn(rows=300, max_new_tokens=2, seed=7)
    pairs = found["token_ids"][found["lengths"][:, 0] == 2, 0]
    counts = np.zeros((V, V))
    np.add.at(counts, tuple(pairs.T), 1)
    expected = counts.sum(1, keepdims=True) * counts.sum(0) / counts.sum()
    likely = expected > 5
    assert likely.sum() > 8
    deviation = (counts - expected)[likely] / np.sqrt(expected[likely])
    assert np.abs(deviation).max() < 4


def test_the_score_is_the_models_own():
    found = drawn(rows=50, max_new_tokens=5, temperature=2.0, top_k=3, seed=8)
    table = np.log(softmax(LOGITS))
    for tokens, length, score in zip(
        found["token_ids"][:, 0], found["lengths"][:, 0], found["scores"][:, 0]
    ):
        np.testing.assert_allclose(score, table[tokens[:length]].sum(), rtol=1e-4)


def test_a_repetition_penalty_falls_on_prompt_and_generated_tokens():
    """So large a one that no token comes twice, nor the prompt's."""
    logits = np.array([1.0, 4.0, 1.1, 1.2, 1.3, 1.4, -50.0, 1.5], "float32")
    found = drawn(
        rows=200,
        max_new_tokens=5,
        logits=logits,
        repetition_penalty=1e6,
        temperature=0.005,
        seed=9,
    )["token_ids"][:, 0]
    assert (found != 1).all()
    assert (found == [7, 5, 4, 3, 2]).all()
    negative = drawn(rows=200, logits=-logits, repetition_penalty=3.0, seed=9)
    penalized = -logits
    penalized[1] *= 3
    assert chi_squared(negative["token_ids"], softmax(penalized)) < 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"temperature": 0.0}, "temperature=0.0"),
        ({"temperature": -1.0}, "temperature=-1.0"),
        ({"top_p": 0.0}, r"\(0, 1\].*top_p=0.0"),
        ({"top_p": 1.1}, r"\(0, 1\].*top_p=1.1"),
        ({"top_k": 0}, "top_k=0"),
        ({"repetition_penalty": 0.0}, "repetition_penalty=0.0"),
        ({"temperature": "a"}, "temperature='a'"),
        ({"top_p": None}, "top_p=None"),
        ({"seed": 1.5}, "seed=1.5"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        Sampling(**arguments)
