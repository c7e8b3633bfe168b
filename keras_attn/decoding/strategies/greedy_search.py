"""The strategy that takes the likeliest token at each step."""

import dataclasses

from keras import ops

from keras_attn.decoding.strategies.base import Strategy
from keras_attn.ops import kv_cache

__all__ = ["GreedySearch"]


@dataclasses.dataclass(frozen=True)
class OneByOne(Strategy):
    """Base of the strategies that settle each token as they go."""

    def choose(self, state, logits, count):
        """The next tokens, int32 `(B,)`, from `(B, V)` logits."""
        raise NotImplementedError

    def start(self, prompt, max_length, vocabulary_size, draws=None):
        batch_size = ops.shape(prompt)[0]
        return {
            "token_ids": ops.zeros((batch_size, max_length), dtype="int32"),
            "scores": ops.zeros((batch_size,), dtype="float32"),
            "lengths": ops.zeros((batch_size,), dtype="int32"),
            "finished": ops.zeros((batch_size,), dtype="bool"),
        }

    def advance(self, state, logits, log_probabilities, count, end_token_ids):
        tokens = self.choose(state, logits[:, 0], count)
        gain = ops.take_along_axis(log_probabilities[:, 0], tokens[:, None], axis=1)
        lengths = count + 1
        new = {
            **state,
            "token_ids": kv_cache.put(state["token_ids"], tokens, count),
            "scores": state["scores"] + gain[:, 0],
            "lengths": lengths,
            "finished": ops.logical_or(
                is_any_of(tokens, end_token_ids),
                lengths >= state["token_ids"].shape[1],
            ),
        }
        return new, tokens[:, None], None

    def results(self, state):
        names = ("token_ids", "scores", "lengths")
        return {name: ops.expand_dims(state[name], axis=1) for name in names}


@dataclasses.dataclass(frozen=True)
class GreedySearch(OneByOne):
    """Takes the likeliest token at each step.

    The score of a row is the sum of its tokens' log-probabilities.

    Example:
        >>> generate(model, inputs, start_token_id=2, end_token_id=3, max_length=64,
        ...          strategy=GreedySearch())
    """

    def choose(self, state, logits, count):
        return ops.cast(ops.argmax(logits, axis=-1), "int32")


def is_any_of(tokens, token_ids):
    """Where `tokens` are one of `token_ids`, a tuple of ints."""
    found = ops.zeros_like(tokens, dtype="bool")
    for token_id in token_ids:
        found = ops.logical_or(found, ops.equal(tokens, token_id))
    return found
