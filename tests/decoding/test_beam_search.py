"""Beam search, against the scores of all sequences there are."""

import functools
import itertools

import keras
import numpy as np
import pytest
import stacked_models
from keras import ops
from tensors import fill_weights

from keras_attn import layers
from keras_attn.decoding import BeamSearch, GreedySearch, generate

VOCABULARY, END, LENGTH = 4, 3, 4
PROMPTS = np.array([[1, 2], [3, 1], [2, 2]], "int32")


@functools.cache
def language_model(seed):
    target = keras.Input((None,), dtype="int32", name="target")
    x = keras.layers.Embedding(VOCABULARY, 8)(target)
    x = layers.TransformerDecoder(12, 2)(layers.PositionEmbedding(8)(x))
    x = keras.layers.Dense(VOCABULARY)(x)
    return fill_weights(keras.Model({"target": target}, x), seed)


def found_by(model, inputs, strategy, **options):
    options = {"end_token_id": END, "max_new_tokens": LENGTH, **options}
    found = generate(model, inputs, strategy=strategy, **options)
    return {name: ops.convert_to_numpy(value) for name, value in found.items()}


def log_softmax(logits):
    logits = logits.astype("float64")
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def penalty(length, alpha):
    return ((5 + length) / 6) ** alpha


def best_of_all(model, prompt, alpha, count, ends=(END,)):
    """The best `count` of all sequences, as pairs of score and tokens."""
    sequences = [
        tokens
        for length in range(1, LENGTH + 1)
        for tokens in itertools.product(range(VOCABULARY), repeat=length)
        if not set(tokens[:-1]) & set(ends) and (tokens[-1] in ends or length == LENGTH)
    ]
    ids = np.zeros((len(sequences), len(prompt) + LENGTH), "int32")
    ids[:, : len(prompt)] = prompt
    for row, tokens in zip(ids, sequences):
        row[len(prompt) : len(prompt) + len(tokens)] = tokens
    logits = ops.convert_to_numpy(model({"target": ids}))
    table = log_softmax(logits)[:, len(prompt) - 1 :]
    scores = [
        sum(row[place, token] for place, token in enumerate(tokens))
        / penalty(len(tokens), alpha)
        for row, tokens in zip(table, sequences)
    ]
    return sorted(zip(scores, sequences), reverse=True)[:count]


def hypotheses(found, row):
    return [
        (score, tuple(tokens[:length]))
        for score, tokens, length in zip(
            found["scores"][row], found["token_ids"][row], found["lengths"][row]
        )
    ]


def assert_same(found, expected):
    assert [tokens for _, tokens in found] == [tokens for _, tokens in expected]
    np.testing.assert_allclose(
        [score for score, _ in found], [score for score, _ in expected], atol=1e-5
    )


@pytest.mark.parametrize(("seed", "alpha"), [(0, 0.0), (1, 0.6), (0, 2.0), (1, -1.0)])
def test_wide_enough_it_finds_the_best_of_all_sequences(seed, alpha):
    model = language_model(seed)
    found = found_by(model, {"target": PROMPTS}, BeamSearch(64, alpha, 6))
    assert found["token_ids"].shape == (3, 6, LENGTH)
    lengths = set()
    for row, prompt in enumerate(PROMPTS):
        expected = best_of_all(model, prompt, alpha, 6)
        assert_same(hypotheses(found, row), expected)
        lengths |= {len(tokens) for _, tokens in expected}
    assert len(lengths) > 1 or alpha > 0, "some must end early and some late"


def every_kind_of_cache():
    """Layers whose keys and values hypotheses share, and layers that have their own."""
    target = keras.Input((None,), dtype="int32", name="target")
    x = keras.layers.Embedding(stacked_models.V, 8, mask_zero=True)(target)
    for layer in (
        layers.TransformerDecoder(12, 2),
        layers.MultiHeadSelfAttention(
            4,
            num_key_value_heads=2,
            key_dim=4,
            position=layers.RotaryPositionEmbedding(),
        ),
        layers.DotProductAttention("general"),
        layers.MultiHeadSelfAttention(2, position=layers.AlibiPositionBias()),
        layers.MultiHeadSelfAttention(2, sliding_window=3),
        layers.LinearSelfAttention(2),
        keras.layers.GRU(8, return_sequences=True),
    ):
        options = {}
        if not isinstance(layer, (layers.TransformerDecoder, keras.layers.GRU)):
            options["use_causal_mask"] = True
        args = (x, x) if isinstance(layer, layers.DotProductAttention) else (x,)
        x = x + layer(*args, **options)
    x = keras.layers.Dense(stacked_models.V)(x)
    return fill_weights(keras.Model({"target": target}, x), seed=3)


@pytest.mark.slow
@pytest.mark.every_backend
def test_scores_are_those_of_the_whole_model():
    """Each hypothesis has its own past, and what is fed of a longer prompt."""
    model, length = every_kind_of_cache(), 9
    prompts = np.array([[1, 5, 2, 7], [4, 6, 0, 0], [9, 0, 0, 0]], "int32")
    lengths = (prompts > 0).sum(axis=1)
    found = found_by(
        model, prompts, BeamSearch(4, 0.6, 4), max_new_tokens=length, end_token_id=11
    )
    changes = 0
    for row, before in enumerate(lengths):
        ids = np.zeros((4, before + length), "int32")
        ids[:, :before] = prompts[row, :before]
        ids[:, before:] = found["token_ids"][row]
        table = log_softmax(ops.convert_to_numpy(model({"target": ids})))
        for tokens, scores, score in zip(
            hypotheses(found, row), table[:, before - 1 :], found["scores"][row]
        ):
            picked = [scores[place, token] for place, token in enumerate(tokens[1])]
            expected = sum(picked) / penalty(len(picked), 0.6)
            np.testing.assert_allclose(score, expected, rtol=1e-4)
        firsts = found["token_ids"][row, :, :-1]
        changes += len(np.unique(firsts, axis=0)) > 1
    assert changes, "hypotheses that differ before their last token"


@pytest.mark.every_backend
def test_several_end_tokens():
    model = language_model(0)
    found = found_by(
        model, {"target": PROMPTS}, BeamSearch(64, 0.6, 4), end_token_id=(END, 1)
    )
    for row, prompt in enumerate(PROMPTS):
        expected = best_of_all(model, prompt, 0.6, 4, ends=(END, 1))
        assert_same(hypotheses(found, row), expected)


@pytest.mark.parametrize("alpha", [0.0, 2.0])
def test_one_beam_is_greedy_search(translator, alpha):
    source = np.random.default_rng(5).integers(1, stacked_models.V, (6, 5))
    options = {"start_token_id": 2, "max_new_tokens": 12}
    greedy = found_by(translator, {"source": source}, GreedySearch(), **options)
    beam = found_by(translator, {"source": source}, BeamSearch(1, alpha), **options)
    np.testing.assert_array_equal(beam["token_ids"], greedy["token_ids"])
    np.testing.assert_array_equal(beam["lengths"], greedy["lengths"])
    assert len(set(greedy["lengths"].flat)) > 1
    np.testing.assert_allclose(
        beam["scores"], greedy["scores"] / penalty(greedy["lengths"], alpha), rtol=1e-5
    )


@pytest.mark.slow
def test_more_beams_find_no_worse_ones(translator):
    source = np.random.default_rng(6).integers(1, stacked_models.V, (20, 5))
    options = {"start_token_id": 2, "max_new_tokens": 12}
    scores = [
        found_by(translator, {"source": source}, BeamSearch(n), **options)["scores"]
        for n in (1, 4, 24)
    ]
    means = [score.mean() for score in scores]
    assert means == sorted(means) and means[0] < means[1]


@pytest.mark.slow
def test_a_row_does_not_depend_on_its_batch(translator):
    source = np.random.default_rng(7).integers(1, stacked_models.V, (5, 5))
    options = {"start_token_id": 2, "max_new_tokens": 12}
    strategy = BeamSearch(3, num_return_sequences=3)
    together = found_by(translator, {"source": source}, strategy, **options)
    for row in range(5):
        alone = found_by(
            translator, {"source": source[row : row + 1]}, strategy, **options
        )
        np.testing.assert_array_equal(alone["token_ids"][0], together["token_ids"][row])
        np.testing.assert_allclose(alone["scores"][0], together["scores"][row], 1e-4)


def constant_model():
    """All tokens are equally likely, always."""
    target = keras.Input((None,), dtype="int32", name="target")
    layer = keras.layers.Embedding(
        VOCABULARY, VOCABULARY, embeddings_initializer="zeros"
    )
    return keras.Model(target, layer(target))


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_the_score_counts_generated_tokens_with_the_end_token(alpha):
    """Whatever the prompt, which is not counted."""
    token = -np.log(VOCABULARY)
    for prompt_length in (1, 5):
        prompt = np.ones((1, prompt_length), "int32")
        found = found_by(constant_model(), prompt, BeamSearch(16, alpha, 16))
        expected = token * found["lengths"] / penalty(found["lengths"], alpha)
        np.testing.assert_allclose(found["scores"], expected, rtol=1e-5)
        assert set(found["lengths"].flat) >= {1, 2}


def test_where_there_are_fewer_hypotheses_than_asked_for():
    found = found_by(
        language_model(0),
        {"target": PROMPTS},
        BeamSearch(64, 0.6, 64),
        max_new_tokens=1,
    )
    assert (found["lengths"] > 0).sum(axis=1).tolist() == [VOCABULARY] * 3
    assert np.isneginf(found["scores"][:, VOCABULARY:]).all()
    assert not found["token_ids"][:, VOCABULARY:].any()


@pytest.mark.slow
def test_xla_finds_the_same(translator):
    source = np.random.default_rng(8).integers(1, stacked_models.V, (3, 5))
    options = {"start_token_id": 2, "max_new_tokens": 8}
    plain, compiled = (
        found_by(
            translator, {"source": source}, BeamSearch(3), jit_compile=jit, **options
        )
        for jit in (False, True)
    )
    np.testing.assert_array_equal(plain["token_ids"], compiled["token_ids"])
    np.testing.assert_allclose(plain["scores"], compiled["scores"], rtol=1e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_beams": 0}, "num_beams=0"),
        ({"num_return_sequences": 0}, "num_return_sequences=0"),
        ({"num_beams": 2, "num_return_sequences": 3}, "at most.*=3.*num_beams=2"),
        ({"length_penalty": float("nan")}, "length_penalty=nan"),
        ({"length_penalty": None}, "length_penalty=None"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        BeamSearch(**arguments)
