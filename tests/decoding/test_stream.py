"""Tokens as they come, against those of `generate`."""

import types

import numpy as np
import pytest
from keras import ops
from test_constraints import PROMPTS

from keras_attn.decoding import BeamSearch, Sampling, generate, stream

END = 3
CASES = {
    "greedy": {},
    "sampling": {"strategy": Sampling(seed=1)},
    "prompts of different lengths": {"inputs": {"target": PROMPTS}},
    "prefix": {"prefix": [5, 7]},
    "never ending": {"end_token_id": None},
}


@pytest.mark.slow
@pytest.mark.on_pytorch
@pytest.mark.parametrize("case", CASES)
def test_the_tokens_are_those_of_generate(language_model, case):
    arguments = {
        "inputs": {"target": PROMPTS[:, :1]},
        "end_token_id": END,
        "max_new_tokens": 6,
        **CASES[case],
    }
    found = generate(language_model, **arguments)
    columns = list(stream(language_model, **arguments))
    for column in columns:
        assert column.shape == (4,) and column.dtype == np.int32
    streamed = np.stack(columns, axis=1)
    expected = ops.convert_to_numpy(found["token_ids"])[:, 0]
    for tokens, whole in zip(streamed, expected, strict=True):
        np.testing.assert_array_equal(tokens[tokens > 0], whole[whole > 0])


@pytest.mark.slow
def test_each_token_comes_before_the_next_is_thought_of(translator):
    source = np.array([[3, 4, 5]], "int32")
    arguments = dict(start_token_id=2, end_token_id=None, max_new_tokens=10**4)
    tokens = stream(translator, {"source": source}, **arguments)
    assert isinstance(tokens, types.GeneratorType)
    # All ten thousand would take minutes.
    first = [next(tokens).item() for _ in range(3)]
    found = generate(
        translator, {"source": source}, start_token_id=2, max_new_tokens=3
    )["token_ids"]
    assert first == ops.convert_to_numpy(found)[0, 0].tolist()


def test_no_rows_give_no_tokens(language_model):
    assert not [
        *stream(language_model, {"target": np.ones((0, 3), "int32")}, max_new_tokens=4)
    ]


def test_errors_come_at_once(language_model):
    prompt = {"target": PROMPTS[:, :1]}
    with pytest.raises(ValueError, match="must decide each token before the next"):
        stream(language_model, prompt, max_new_tokens=4, strategy=BeamSearch(2))
    with pytest.raises(ValueError, match="`end_token_id` must be in"):
        stream(language_model, prompt, end_token_id=10**6)
