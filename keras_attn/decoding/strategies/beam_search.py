"""The strategy that carries several hypotheses along and keeps the best."""

import dataclasses

import numpy as np
from keras import ops

from keras_attn.decoding.strategies.base import Strategy
from keras_attn.decoding.strategies.greedy_search import is_any_of
from keras_attn.layers._internal.arguments import number, positive_int

__all__ = ["BeamSearch"]


@dataclasses.dataclass(frozen=True)
class BeamSearch(Strategy):
    """Carries the likeliest hypotheses along, and keeps the best finished ones.

    A hypothesis that ends while it is among the K likeliest is set aside and never
    grown; K others run on. A row stops when no running one can still overtake what is
    to be returned: a log-probability only falls, so the sum of now over the largest
    penalty there can be is a bound. With one beam, it stops at its first end.

    Args:
        num_beams: int K, how many hypotheses run. 1 is greedy search.
        length_penalty: float, the exponent alpha of the length penalty
            `((5 + length) / 6) ** alpha`, by which the summed log-probability of a
            hypothesis is divided. It counts generated tokens, the end token among
            them. 0 for none; above 0 favours longer ones.
        num_return_sequences: int R <= K, how many hypotheses to return.

    Where fewer than R hypotheses exist, the missing ones have length 0 and score
    minus infinity.

    Raises:
        ValueError: for a number outside its range.

    Example:
        >>> generate(model, {"source": ids}, start_token_id=2, end_token_id=3,
        ...          strategy=BeamSearch(4, num_return_sequences=2))

    Reference:
        Wu et al. 2016, "Google's Neural Machine Translation System", section 7
        (https://arxiv.org/abs/1609.08144).
    """

    num_beams: int = 4
    length_penalty: float = 0.6
    num_return_sequences: int = 1

    def __post_init__(self):
        positive_int("num_beams", self.num_beams)
        positive_int("num_return_sequences", self.num_return_sequences)
        number("length_penalty", self.length_penalty)
        if self.num_return_sequences > self.num_beams:
            raise ValueError(
                "`num_return_sequences` must be at most `num_beams`. Received: "
                f"num_return_sequences={self.num_return_sequences}, "
                f"num_beams={self.num_beams}"
            )

    def start(self, prompt, max_length, vocabulary_size, draws=None):
        shape = (ops.shape(prompt)[0], self.num_beams)
        nothing = ops.full(shape, -np.inf, dtype="float32")
        # All hypotheses are one at first, so that only one may grow.
        first = ops.equal(ops.arange(self.num_beams), 0)
        return {
            "token_ids": ops.zeros((*shape, max_length), dtype="int32"),
            "sums": ops.where(first, 0.0, nothing),
            "kept_token_ids": ops.zeros((*shape, max_length), dtype="int32"),
            "kept_scores": nothing,
            "kept_lengths": ops.zeros(shape, dtype="int32"),
            "finished": ops.zeros(shape[:1], dtype="bool"),
        }

    def advance(self, state, logits, log_probabilities, count, end_token_ids):
        beams, vocabulary_size = self.num_beams, log_probabilities.shape[-1]
        max_length = state["token_ids"].shape[-1]
        length = ops.expand_dims(count + 1, 1)
        sums = ops.expand_dims(state["sums"], -1) + log_probabilities
        # Enough to go on with, should every end token follow every hypothesis.
        size = min(beams * (1 + len(end_token_ids)), beams * vocabulary_size)
        sums, place = ops.top_k(ops.reshape(sums, (-1, beams * vocabulary_size)), size)
        place = ops.cast(place, "int32")
        parents, tokens = place // vocabulary_size, place % vocabulary_size
        is_next = ops.equal(ops.arange(max_length), ops.expand_dims(length - 1, -1))
        token_ids = ops.where(
            is_next,
            ops.expand_dims(tokens, -1),
            ops.take_along_axis(state["token_ids"], parents[:, :, None], axis=1),
        )
        # A hypothesis that is cut is a finished one as well.
        ends = ops.logical_or(is_any_of(tokens, end_token_ids), length >= max_length)

        # Those that end, among those kept so far.
        keeps = ops.logical_and(ends, ops.arange(size) < beams)
        scores = ops.where(keeps, sums / self._penalty(length), -np.inf)
        scores = ops.concatenate([state["kept_scores"], scores], axis=1)
        kept_scores, chosen = ops.top_k(scores, beams)
        chosen = ops.cast(chosen, "int32")
        lengths = ops.concatenate(
            [state["kept_lengths"], ops.broadcast_to(length, ops.shape(sums))], axis=1
        )
        kept_token_ids = ops.concatenate([state["kept_token_ids"], token_ids], axis=1)

        # The best of those that do not.
        going, others = ops.top_k(ops.where(ends, -np.inf, sums), beams)
        others = ops.cast(others, "int32")
        # The best that can come of them: no token more, the largest penalty.
        largest = ops.maximum(
            self._penalty(length + 1), self._penalty(ops.full_like(length, max_length))
        )
        worst_returned = kept_scores[:, self.num_return_sequences - 1]
        finished = worst_returned >= ops.max(going / largest, axis=1)
        if beams == 1:
            finished = ops.logical_or(finished, worst_returned > -np.inf)
        new = {
            "token_ids": ops.take_along_axis(token_ids, others[:, :, None], axis=1),
            "sums": going,
            "kept_token_ids": ops.take_along_axis(
                kept_token_ids, chosen[:, :, None], axis=1
            ),
            "kept_scores": kept_scores,
            "kept_lengths": ops.take_along_axis(lengths, chosen, axis=1),
            "finished": finished,
        }
        tokens, parents = (
            ops.take_along_axis(x, others, axis=1) for x in (tokens, parents)
        )
        return new, tokens, parents

    def _penalty(self, length):
        return ((5.0 + ops.cast(length, "float32")) / 6.0) ** self.length_penalty

    def results(self, state):
        scores = state["kept_scores"][:, : self.num_return_sequences]
        lengths = state["kept_lengths"][:, : self.num_return_sequences]
        return {
            "token_ids": state["kept_token_ids"][:, : self.num_return_sequences],
            "scores": scores,
            "lengths": ops.where(scores > -np.inf, lengths, 0),
        }
