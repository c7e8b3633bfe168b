"""Sampling: each token is drawn at random."""

import dataclasses
import random
from typing import Any

import keras
from keras import ops

from keras_attn._types import Tensor
from keras_attn.decoding.strategies.base import State, TokenwiseStrategy
from keras_attn.layers._internal.arguments import is_int, number, positive_int

__all__ = ["Sampling"]


@dataclasses.dataclass(frozen=True)
class Sampling(TokenwiseStrategy):
    """Sampling: draws each token from the distribution of the model.

    The distribution is modified in this order: repetition penalty, temperature, top-k,
    top-p. The score of a sequence is the sum of the log-probabilities of its tokens
    under the unmodified distribution.

    Args:
        temperature: float > 0, divides the logits: below 1 sharpens, above 1 flattens.
        top_k: int, draws from this number of most probable tokens; None: from all.
        top_p: float in (0, 1], draws from the smallest set of most probable tokens
            whose probabilities sum to at least this.
        repetition_penalty: float > 0; the logit of a token that occurs already (in the
            prompt as well) is divided by it if positive and multiplied if negative. 1:
            no penalty; above 1 discourages repetition.
        seed: int, the same seed gives the same text; None: a new one for each call.

    Raises:
        ValueError: for a number outside its range.

    Example:
        >>> from keras_attn import decoding, models
        >>> model = models.causal_language_model(
        ...     20, num_layers=1, hidden_dim=8, intermediate_dim=16, num_heads=2
        ... )
        >>> strategy = decoding.Sampling(temperature=0.8, top_p=0.95, seed=1)
        >>> result = decoding.generate(
        ...     model, [[5, 6]], max_new_tokens=4, strategy=strategy
        ... )
        >>> tuple(result["token_ids"].shape)
        (1, 1, 4)

    Reference:
        Top-p: Holtzman et al. 2020, "The Curious Case of Neural Text Degeneration"
        (https://arxiv.org/abs/1904.09751). Top-k: Fan et al. 2018
        (https://arxiv.org/abs/1805.04833). Repetition penalty: Keskar et al. 2019
        (https://arxiv.org/abs/1909.05858).
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    seed: int | None = None

    def __post_init__(self) -> None:
        positive_int("top_k", self.top_k, optional=True)
        for name in ("temperature", "repetition_penalty"):
            number(name, getattr(self, name), 0, expected="a positive number")
        number("top_p", self.top_p, 0, 1, expected="a number in (0, 1]")
        if self.seed is not None and not is_int(self.seed):
            raise ValueError(
                f"`seed` must be an int or None. Received: seed={self.seed!r}"
            )

    def without_seed(self) -> "Sampling":
        return dataclasses.replace(self, seed=None)

    def draw(self, batch_size: Any, max_new_tokens: int) -> Tensor | None:
        seed = random.getrandbits(31) if self.seed is None else self.seed
        # All numbers of a batch element in a row: they do not depend on the batch size.
        return keras.random.uniform((batch_size, max_new_tokens), seed=seed)

    def start(
        self,
        prompt: Tensor,
        max_new_tokens: int,
        vocabulary_size: int,
        draws: Tensor | None = None,
    ) -> State:
        if draws is None:
            draws = self.draw(ops.shape(prompt)[0], max_new_tokens)
        state = super().start(prompt, max_new_tokens, vocabulary_size)
        state["draws"] = draws
        if self.repetition_penalty != 1.0:
            present = ops.one_hot(prompt, vocabulary_size, dtype="bool")
            state["present"] = ops.any(present, axis=1)
        return state

    def advance(
        self,
        state: State,
        logits: Tensor,
        log_probabilities: Tensor,
        count: Tensor,
        end_token_ids: tuple[int, ...],
    ) -> tuple[State, Tensor, Tensor | None]:
        new, tokens, parents = super().advance(
            state, logits, log_probabilities, count, end_token_ids
        )
        if "present" in state:
            present = ops.one_hot(tokens[:, 0], logits.shape[-1], dtype="bool")
            new["present"] = ops.logical_or(state["present"], present)
        return new, tokens, parents

    def choose(self, state: State, logits: Tensor, count: Tensor) -> Tensor:
        if "present" in state:
            penalty = self.repetition_penalty
            penalized = ops.where(logits > 0, logits / penalty, logits * penalty)
            logits = ops.where(state["present"], penalized, logits)
        logits = logits / self.temperature
        order = None
        if self.top_k is not None or self.top_p < 1.0:
            # Most probable first, so that the tokens to draw from are the first ones.
            size = min(self.top_k or logits.shape[-1], logits.shape[-1])
            logits, order = ops.top_k(logits, size)
        # Not `softmax`, for which Keras warns if there is only one token.
        probabilities = ops.exp(ops.log_softmax(logits, axis=-1))
        cumulative = ops.cumsum(probabilities, axis=-1)
        total = cumulative[:, -1:]
        if self.top_p < 1.0:
            # A token is kept if the tokens before it do not reach `top_p`.
            before = ops.pad(cumulative[:, :-1], [[0, 0], [1, 0]])
            kept = ops.where(before < self.top_p, cumulative, 0.0)
            total = ops.max(kept, axis=-1, keepdims=True)
        # The first token at which the cumulative sum exceeds the drawn share of it.
        draw = ops.take_along_axis(state["draws"], count[:, None], axis=1) * total
        tokens = ops.argmax(ops.cast(cumulative > draw, "int32"), axis=-1)[:, None]
        if order is not None:
            tokens = ops.take_along_axis(order, tokens, axis=1)
        return ops.cast(tokens[:, 0], "int32")
