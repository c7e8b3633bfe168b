"""Greedy search: the most probable token at each step."""

import dataclasses

from keras import ops

from keras_attn._types import Tensor
from keras_attn.decoding.strategies.base import State, TokenwiseStrategy

__all__ = ["GreedySearch"]


@dataclasses.dataclass(frozen=True)
class GreedySearch(TokenwiseStrategy):
    """Greedy search: takes the most probable token at each step.

    The score of a sequence is the sum of the log-probabilities of its tokens.

    Example:
        >>> from keras_attn import decoding, models
        >>> model = models.causal_language_model(
        ...     20, num_layers=1, hidden_dim=8, intermediate_dim=16, num_heads=2
        ... )
        >>> result = decoding.generate(
        ...     model, [[5, 6]], max_new_tokens=4, strategy=decoding.GreedySearch()
        ... )
        >>> tuple(result["token_ids"].shape)
        (1, 1, 4)
    """

    def choose(self, state: State, logits: Tensor, count: Tensor) -> Tensor:
        return ops.cast(ops.argmax(logits, axis=-1), "int32")
