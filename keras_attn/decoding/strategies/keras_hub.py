"""Samplers of `keras_hub` (`keras_nlp`) as decoding strategies."""

import dataclasses
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_attn._types import Tensor
from keras_attn.decoding.strategies.base import State, Strategy, TokenwiseStrategy
from keras_attn.decoding.strategies.beam_search import BeamSearch

__all__ = ["SamplerStrategy", "strategy_of_sampler"]


def strategy_of_sampler(sampler: Any) -> Strategy:
    """Return the strategy of a sampler object of `keras_hub`.

    Args:
        sampler: a sampler object of `keras_hub.samplers`, or of a class derived from
            one. A `BeamSampler` becomes a `BeamSearch` without length penalty.

    Raises:
        ValueError: for any other object, for a sampler that does not choose token by
            token from probabilities, such as `ContrastiveSampler`, and for a beam
            sampler with a temperature or with methods of its own.
    """
    # By its methods, since the import of `keras_hub` takes seconds.
    if not hasattr(sampler, "compute_probabilities"):
        raise ValueError(
            "`strategy` must be a strategy of `keras_attn.decoding`, such as "
            "`GreedySearch()`, or a sampler object of `keras_hub.samplers`. "
            f"Received: strategy={sampler!r}"
        )
    if hasattr(sampler, "num_beams"):
        return _beam_search(sampler)
    if "get_next_token" not in _methods_of_subclasses(type(sampler)):
        raise ValueError(
            "A sampler must implement `get_next_token`, which chooses from "
            f"probabilities. Received: strategy={sampler!r}"
        )
    return SamplerStrategy(sampler)


def _beam_search(sampler: Any) -> BeamSearch:
    """Return the beam search of a `BeamSampler`."""
    if sampler.temperature != 1.0:
        raise ValueError(
            "A `BeamSampler` must have temperature 1.0; scale the logits of the model, "
            "or use `keras_attn.decoding.BeamSearch`. "
            f"Received: temperature={sampler.temperature}"
        )
    if type(sampler).__name__ != "BeamSampler":
        raise ValueError(
            "A beam search must be a `BeamSampler`, not a subclass with methods of its "
            f"own; use `keras_attn.decoding.BeamSearch`. Received: strategy={sampler!r}"
        )
    num_return_sequences = sampler.num_beams if sampler.return_all_beams else 1
    return BeamSearch(sampler.num_beams, 0.0, num_return_sequences)


def _methods_of_subclasses(cls: type) -> set[str]:
    """Return the names that `cls` defines, without those of the base `Sampler`."""
    subclasses = (base for base in cls.__mro__ if base.__name__ != "Sampler")
    return {name for base in subclasses for name in vars(base)}


@dataclasses.dataclass(frozen=True)
class SamplerStrategy(TokenwiseStrategy):
    """A strategy that calls a sampler for each token.

    The score of a sequence is the sum of the log-probabilities of its tokens under the
    model. A sampler draws for all batch elements at once, so that the tokens of one
    depend on its index in the batch.
    """

    sampler: Any

    def draw(self, batch_size: Any, max_new_tokens: int) -> Tensor | None:
        generator = getattr(self.sampler, "seed_generator", None)
        if generator is None:
            return None
        # One seed per token, drawn before the loop: a compiled loop cannot change the
        # state of the generator on every backend. The next call draws other seeds.
        start = ops.convert_to_numpy(generator.next()).astype("uint32")
        seeds = np.random.default_rng(start).integers(1, 2**31, (max_new_tokens, 2))
        seeds = np.broadcast_to(seeds, (batch_size, max_new_tokens, 2))
        return ops.convert_to_tensor(seeds.astype("int32"))

    def start(
        self,
        prompt: Tensor,
        max_new_tokens: int,
        vocabulary_size: int,
        draws: Tensor | None = None,
    ) -> State:
        state = super().start(prompt, max_new_tokens, vocabulary_size)
        return state if draws is None else {**state, "seeds": draws}

    def choose(self, state: State, logits: Tensor, count: Tensor) -> Tensor:
        probabilities = self.sampler.compute_probabilities(logits)
        if "seeds" not in state:
            return ops.cast(self.sampler.get_next_token(probabilities), "int32")
        variable = self.sampler.seed_generator.state
        seed = ops.take(state["seeds"][0], ops.max(count), axis=0)
        mapping = [(variable, ops.cast(seed, variable.dtype))]
        with keras.StatelessScope(state_mapping=mapping):
            return ops.cast(self.sampler.get_next_token(probabilities), "int32")
