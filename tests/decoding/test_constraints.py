"""Prompts of different lengths, and rules on what may follow, for every strategy."""

import numpy as np
import pytest
from keras import ops
from stacked_models import V

from keras_attn.decoding import BeamSearch, GreedySearch, Sampling, generate

END, LENGTH = 3, 8
STRATEGIES = {
    "greedy": GreedySearch(),
    "beam": BeamSearch(3, num_return_sequences=2),
    "sampling": Sampling(seed=1),
}
PROMPTS = np.array(
    [[1, 4, 6, 2, 8], [5, 0, 0, 0, 0], [7, 9, 0, 0, 0], [2, 2, 2, 2, 0]], "int32"
)


def found_by(model, inputs, strategy="greedy", **options):
    options = {"end_token_id": END, "max_new_tokens": LENGTH, **options}
    found = generate(model, inputs, strategy=STRATEGIES[strategy], **options)
    return {name: ops.convert_to_numpy(value) for name, value in found.items()}


@pytest.fixture(params=STRATEGIES)
def strategy(request):
    return request.param


@pytest.mark.slow
def test_prompts_of_different_lengths_are_continued_as_if_alone(
    language_model, strategy
):
    together = found_by(language_model, {"target": PROMPTS}, strategy)
    assert together["lengths"].min() > 0
    for row in (1, 2) if strategy != "sampling" else (0,):
        # (A row's random numbers are those of its place in the batch.)
        prompt = PROMPTS[row]
        prompt = prompt[prompt > 0][None]
        alone = found_by(language_model, {"target": prompt}, strategy)
        for name in ("token_ids", "lengths"):
            np.testing.assert_array_equal(alone[name][0], together[name][row])
        np.testing.assert_allclose(alone["scores"][0], together["scores"][row], 1e-4)


@pytest.mark.slow
@pytest.mark.on_pytorch
def test_prompts_of_different_lengths_beside_a_source(translator):
    source = np.random.default_rng(5).integers(1, V, (4, 5)).astype("int32")
    together = found_by(translator, {"source": source, "target": PROMPTS}, "beam")
    for row in (0, 1):
        prompt = PROMPTS[row]
        inputs = {"source": source[row : row + 1], "target": prompt[prompt > 0][None]}
        alone = found_by(translator, inputs, "beam")
        np.testing.assert_array_equal(alone["token_ids"][0], together["token_ids"][row])


@pytest.fixture(scope="module")
def ends(language_model):
    """The end token, and two that greedy search would generate in the middle."""
    free = found_by(language_model, {"target": PROMPTS})["token_ids"]
    return (END, int(free[0, 0, 1]), int(free[2, 0, 2]))


def test_any_of_several_end_tokens_ends_a_row(language_model, strategy, ends):
    found = found_by(language_model, {"target": PROMPTS}, strategy, end_token_id=ends)
    assert found["lengths"].min() < LENGTH
    for tokens, length in zip(
        found["token_ids"].reshape(-1, LENGTH), found["lengths"].flat
    ):
        assert not set(tokens[: length - 1]) & set(ends)
        assert tokens[length - 1] in ends or length == LENGTH
        assert not tokens[length:].any()


def test_no_row_ends_before_its_minimum_length(language_model, strategy, ends):
    options = {"end_token_id": ends, "min_new_tokens": 3}
    found = found_by(language_model, {"target": PROMPTS}, strategy, **options)
    assert found["lengths"].min() >= 4
    assert not np.isin(found["token_ids"][:, :, :3], ends).any()


@pytest.mark.slow
def test_banned_tokens_are_never_generated(language_model, strategy):
    free = found_by(language_model, {"target": PROMPTS}, strategy)
    banned = sorted(set(free["token_ids"].flat) - {0, END})[:3]
    found = found_by(
        language_model, {"target": PROMPTS}, strategy, banned_token_ids=banned
    )
    assert not np.isin(found["token_ids"], banned).any()
    assert np.isfinite(found["scores"]).all()


def test_a_prefix_comes_first_and_scores(language_model, strategy):
    prefix = np.array([[6, 1, 8], [4, 0, 0], [0, 0, 0], [10, 12, 0]])
    found = found_by(language_model, {"target": PROMPTS}, strategy, prefix=prefix)
    for row, tokens in enumerate(prefix):
        given = tokens[tokens > 0]
        assert (found["token_ids"][row, :, : len(given)] == given).all()
    free = found_by(language_model, {"target": PROMPTS}, strategy)
    if strategy != "sampling":
        for name, value in found.items():
            np.testing.assert_allclose(value[2], free[name][2], rtol=1e-5)
    if strategy == "greedy":
        longer = np.array([[1, 4, 6, 2, 8, 6, 1, 8]])
        rest = found_by(language_model, {"target": longer}, max_new_tokens=LENGTH - 3)
        np.testing.assert_array_equal(
            found["token_ids"][0, 0, 3:], rest["token_ids"][0, 0]
        )
        assert found["scores"][0] < rest["scores"][0]


def test_one_prefix_for_all_rows(language_model):
    found = found_by(language_model, {"target": PROMPTS}, prefix=[6, 1])
    assert (found["token_ids"][:, 0, :2] == [6, 1]).all()


def test_a_start_token_may_be_the_padding_id(translator):
    source = np.random.default_rng(5).integers(1, V, (2, 5)).astype("int32")
    bare = found_by(translator, {"source": source}, start_token_id=0)
    prompt = np.zeros((2, 1), "int32")
    given = found_by(translator, {"source": source, "target": prompt})
    np.testing.assert_array_equal(bare["token_ids"], given["token_ids"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"banned_token_ids": [V]}, r"\[0, 13\).*banned_token_id=13"),
        ({"end_token_id": (3, -1)}, r"\[0, 13\).*end_token_id=-1"),
        ({"min_new_tokens": -1}, "min_new_tokens=-1"),
        ({"prefix": [V]}, r"`prefix` must be in \[0, 13\).*id=13"),
        ({"prefix": np.ones((3, 2), "int32")}, r"\(4, F\).*shape=\(3, 2\)"),
        ({"strategy": "beam search"}, "strategy='beam search'"),
    ],
)
def test_bad_input(language_model, options, message):
    with pytest.raises(ValueError, match=message):
        generate(
            language_model,
            {"target": PROMPTS},
            **{"end_token_id": END, "max_new_tokens": LENGTH, **options},
        )


@pytest.mark.parametrize("prompt", [[[1, 0, 2], [1, 2, 0]], [[0, 1, 0, 1]] * 2])
def test_padding_inside_a_prompt(language_model, prompt):
    with pytest.raises(ValueError, match="padding.*at its end.*Received: target="):
        found_by(language_model, {"target": np.array(prompt)})
