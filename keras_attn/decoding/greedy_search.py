"""The strategy that takes the likeliest token at each step."""

import dataclasses

import keras
from keras import ops

from keras_attn.ops import caches

__all__ = ["GreedySearch"]


@dataclasses.dataclass(frozen=True)
class GreedySearch:
    """Takes the likeliest token at each step.

    A strategy is a value without state of its own: `start` gives the state, `advance`
    maps a state and the logits of the next token to the next state, `results` reads a
    state. `generate` does the rest.

    Example:
        >>> generate(model, inputs, start_token_id=2, end_token_id=3, max_length=64,
        ...          strategy=GreedySearch())
    """

    def start(self, batch_size, max_length):
        """The state before the first token: a dict of tensors."""
        return {
            "token_ids": ops.zeros((batch_size, max_length), dtype="int32"),
            "scores": ops.zeros((batch_size,), dtype="float32"),
            "lengths": ops.zeros((batch_size,), dtype="int32"),
            "finished": ops.zeros((batch_size,), dtype="bool"),
        }

    def advance(self, state, logits, count, end_token_id):
        """The state with one token more.

        Args:
            state: what `start` or `advance` gave.
            logits: `(B, V)`.
            count: int32 scalar, number of tokens so far.
            end_token_id: int.

        Returns:
            A pair of the new state and the tokens to feed next, int32 `(B, 1)`.
        """
        log_probabilities = keras.ops.log_softmax(ops.cast(logits, "float32"), axis=-1)
        running = ops.logical_not(state["finished"])
        # Finished rows go on with padding, which scores nothing.
        tokens = ops.cast(ops.argmax(log_probabilities, axis=-1), "int32")
        tokens = ops.where(running, tokens, 0)
        gain = ops.where(running, ops.max(log_probabilities, axis=-1), 0.0)
        new = ops.expand_dims(tokens, axis=1)
        return {
            "token_ids": caches.write(state["token_ids"], new, count),
            "scores": state["scores"] + gain,
            "lengths": state["lengths"] + ops.cast(running, "int32"),
            "finished": ops.logical_or(
                state["finished"], ops.equal(tokens, end_token_id)
            ),
        }, new

    def results(self, state):
        """Token ids `(B, R, L)`, scores `(B, R)` and lengths `(B, R)`, R = 1."""
        names = ("token_ids", "scores", "lengths")
        return {name: ops.expand_dims(state[name], axis=1) for name in names}
