"""Samplers of `keras_nlp` (`keras_hub`) as strategies."""

import dataclasses
import typing

import keras
import numpy as np
from keras import ops

from keras_attn.decoding.strategies.base import Strategy
from keras_attn.decoding.strategies.beam_search import BeamSearch
from keras_attn.decoding.strategies.greedy_search import GreedySearch, OneByOne

__all__ = ["SamplerStrategy", "as_strategy"]


def as_strategy(strategy):
    """A `Strategy` from what a user gives.

    Args:
        strategy: a `Strategy`; None, for `GreedySearch()`; or a sampler object of
            `keras_nlp.samplers`, or of a class of the user's own derived from theirs.
            A `BeamSampler` becomes a `BeamSearch` without length penalty.

    Raises:
        ValueError: for anything else, and for a sampler that does not choose token by
            token from probabilities, as `ContrastiveSampler`.
    """
    if strategy is None:
        return GreedySearch()
    if isinstance(strategy, Strategy):
        return strategy
    # Known by what they can do: `keras_nlp` takes seconds to import.
    if not hasattr(strategy, "compute_probabilities"):
        raise ValueError(
            "`strategy` must be one of `keras_attn.decoding`'s, such as "
            "`GreedySearch()`, or a sampler object of `keras_nlp.samplers`. "
            f"Received: strategy={strategy!r}"
        )
    if hasattr(strategy, "num_beams"):
        return BeamSearch(strategy.num_beams, length_penalty=0.0)
    if "get_next_token" not in _methods_beyond_the_base(type(strategy)):
        raise ValueError(
            "A sampler must have `get_next_token`, which chooses from probabilities. "
            f"Received: strategy={strategy!r}"
        )
    return SamplerStrategy(strategy)


def _methods_beyond_the_base(cls):
    """Names that `cls` or its bases define, save those of the base `Sampler`."""
    own = (base for base in cls.__mro__ if base.__name__ != "Sampler")
    return {name for base in own for name in vars(base)}


@dataclasses.dataclass(frozen=True)
class SamplerStrategy(OneByOne):
    """Lets a sampler choose each token.

    The score of a row is the sum of its tokens' log-probabilities under the model
    itself. A row's tokens depend on its place in the batch, since a sampler draws for
    all rows at once.
    """

    sampler: typing.Any

    def draw(self, batch_size, max_length):
        generator = getattr(self.sampler, "seed_generator", None)
        if generator is None:
            return None
        # A seed for each token, drawn beforehand: a compiled loop cannot change the
        # generator's state on every backend. The next call starts from another one.
        start = ops.convert_to_numpy(generator.next()).astype("uint32")
        seeds = np.random.default_rng(start).integers(1, 2**31, (max_length, 2))
        seeds = np.broadcast_to(seeds, (batch_size, max_length, 2))
        return ops.convert_to_tensor(seeds.astype("int32"))

    def start(self, prompt, max_length, vocabulary_size, draws=None):
        state = super().start(prompt, max_length, vocabulary_size)
        return state if draws is None else {**state, "seeds": draws}

    def choose(self, state, logits, count):
        probabilities = self.sampler.compute_probabilities(logits)
        if "seeds" not in state:
            return ops.cast(self.sampler.get_next_token(probabilities), "int32")
        variable = self.sampler.seed_generator.state
        seed = ops.take(state["seeds"][0], ops.max(count), axis=0)
        mapping = [(variable, ops.cast(seed, variable.dtype))]
        with keras.StatelessScope(state_mapping=mapping):
            return ops.cast(self.sampler.get_next_token(probabilities), "int32")
