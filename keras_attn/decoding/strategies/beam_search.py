"""Beam search: several hypotheses at a time."""

import dataclasses

import numpy as np
from keras import ops

from keras_attn._types import Tensor
from keras_attn.decoding.strategies.base import State, Strategy, is_any_of
from keras_attn.layers._internal.arguments import number, positive_int

__all__ = ["BeamSearch"]


@dataclasses.dataclass(frozen=True)
class BeamSearch(Strategy):
    """Beam search: extends the K most probable hypotheses at each step.

    A hypothesis that ends while it is among the K most probable is finished and not
    extended further; K others continue. A batch element is finished when no active
    hypothesis can surpass those that are to be returned: a log-probability only falls,
    so the current sum divided by the largest possible penalty is a bound. With one
    beam, the search stops at the first end token.

    If there are fewer than R hypotheses, the missing ones have length 0 and a score of
    minus infinity.

    Args:
        num_beams: int K, number of beams. 1 is greedy search.
        length_penalty: float, the exponent alpha of the length penalty
            `((5 + length) / 6) ** alpha`, which divides the sum of the
            log-probabilities of a hypothesis. The length counts generated tokens, the
            end token included. 0: no penalty; above 0 favours longer ones.
        num_return_sequences: int R <= K, number of hypotheses to return.

    Raises:
        ValueError: for a number outside its range.

    Example:
        >>> from keras_attn import decoding, models
        >>> model = models.causal_language_model(
        ...     20, num_layers=1, hidden_dim=8, intermediate_dim=16, num_heads=2
        ... )
        >>> strategy = decoding.BeamSearch(num_beams=3, num_return_sequences=2)
        >>> result = decoding.generate(
        ...     model, [[5, 6]], max_new_tokens=4, end_token_id=1, strategy=strategy
        ... )
        >>> tuple(result["token_ids"].shape), tuple(result["scores"].shape)
        ((1, 2, 4), (1, 2))

    Reference:
        Wu et al. 2016, "Google's Neural Machine Translation System", section 7
        (https://arxiv.org/abs/1609.08144).
    """

    num_beams: int = 4
    length_penalty: float = 0.6
    num_return_sequences: int = 1

    def __post_init__(self) -> None:
        positive_int("num_beams", self.num_beams)
        positive_int("num_return_sequences", self.num_return_sequences)
        number("length_penalty", self.length_penalty)
        if self.num_return_sequences > self.num_beams:
            raise ValueError(
                "`num_return_sequences` must be at most `num_beams`. Received: "
                f"num_return_sequences={self.num_return_sequences}, "
                f"num_beams={self.num_beams}"
            )

    def start(
        self,
        prompt: Tensor,
        max_new_tokens: int,
        vocabulary_size: int,
        draws: Tensor | None = None,
    ) -> State:
        shape = (ops.shape(prompt)[0], self.num_beams)
        minus_infinity = ops.full(shape, -np.inf, dtype="float32")
        # All beams are equal at first: only one of them may be extended.
        first = ops.equal(ops.arange(self.num_beams), 0)
        return {
            "token_ids": ops.zeros((*shape, max_new_tokens), dtype="int32"),
            "sums": ops.where(first, 0.0, minus_infinity),
            "finished_token_ids": ops.zeros((*shape, max_new_tokens), dtype="int32"),
            "finished_scores": minus_infinity,
            "finished_lengths": ops.zeros(shape, dtype="int32"),
            "finished": ops.zeros(shape[:1], dtype="bool"),
        }

    def advance(
        self,
        state: State,
        logits: Tensor,
        log_probabilities: Tensor,
        count: Tensor,
        end_token_ids: tuple[int, ...],
    ) -> tuple[State, Tensor, Tensor | None]:
        beams, vocabulary_size = self.num_beams, log_probabilities.shape[-1]
        max_new_tokens = state["token_ids"].shape[-1]
        length = ops.expand_dims(count + 1, 1)
        sums = ops.expand_dims(state["sums"], -1) + log_probabilities
        # K hypotheses must remain even if every end token follows every beam.
        size = min(beams * (1 + len(end_token_ids)), beams * vocabulary_size)
        sums, index = ops.top_k(ops.reshape(sums, (-1, beams * vocabulary_size)), size)
        index = ops.cast(index, "int32")
        parents, tokens = index // vocabulary_size, index % vocabulary_size
        is_next = ops.equal(ops.arange(max_new_tokens), ops.expand_dims(length - 1, -1))
        token_ids = ops.where(
            is_next,
            ops.expand_dims(tokens, -1),
            ops.take_along_axis(state["token_ids"], parents[:, :, None], axis=1),
        )
        # A hypothesis that reaches the maximum length is finished as well.
        ends = ops.logical_or(
            is_any_of(tokens, end_token_ids), length >= max_new_tokens
        )
        finished = self._finished(state, sums, token_ids, ends, length)

        # The best hypotheses that do not end.
        active_sums, active = ops.top_k(ops.where(ends, -np.inf, sums), beams)
        active = ops.cast(active, "int32")
        # The bound on their final scores: no further loss, and the largest penalty.
        largest_penalty = ops.maximum(
            self._penalty(length + 1),
            self._penalty(ops.full_like(length, max_new_tokens)),
        )
        worst_returned = finished["finished_scores"][:, self.num_return_sequences - 1]
        is_finished = worst_returned >= ops.max(active_sums / largest_penalty, axis=1)
        if beams == 1:
            is_finished = ops.logical_or(is_finished, worst_returned > -np.inf)
        new = {
            **finished,
            "token_ids": ops.take_along_axis(token_ids, active[:, :, None], axis=1),
            "sums": active_sums,
            "finished": is_finished,
        }
        tokens, parents = (
            ops.take_along_axis(x, active, axis=1) for x in (tokens, parents)
        )
        return new, tokens, parents

    def _finished(
        self,
        state: State,
        sums: Tensor,
        token_ids: Tensor,
        ends: Tensor,
        length: Tensor,
    ) -> State:
        """Return the best finished hypotheses, with those that end at this step."""
        beams, size = self.num_beams, sums.shape[1]
        is_candidate = ops.logical_and(ends, ops.arange(size) < beams)
        scores = ops.where(is_candidate, sums / self._penalty(length), -np.inf)
        scores = ops.concatenate([state["finished_scores"], scores], axis=1)
        scores, chosen = ops.top_k(scores, beams)
        chosen = ops.cast(chosen, "int32")
        lengths = ops.concatenate(
            [state["finished_lengths"], ops.broadcast_to(length, ops.shape(sums))],
            axis=1,
        )
        token_ids = ops.concatenate([state["finished_token_ids"], token_ids], axis=1)
        return {
            "finished_token_ids": ops.take_along_axis(
                token_ids, chosen[:, :, None], axis=1
            ),
            "finished_scores": scores,
            "finished_lengths": ops.take_along_axis(lengths, chosen, axis=1),
        }

    def _penalty(self, length: Tensor) -> Tensor:
        return ((5.0 + ops.cast(length, "float32")) / 6.0) ** self.length_penalty

    def results(self, state: State) -> State:
        scores = state["finished_scores"][:, : self.num_return_sequences]
        lengths = state["finished_lengths"][:, : self.num_return_sequences]
        return {
            "token_ids": state["finished_token_ids"][:, : self.num_return_sequences],
            "scores": scores,
            "lengths": ops.where(scores > -np.inf, lengths, 0),
        }
