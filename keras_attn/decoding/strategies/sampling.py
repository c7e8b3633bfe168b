"""The strategy that draws each token at random."""

import dataclasses
import random

import keras
from keras import ops

from keras_attn.decoding.strategies.greedy_search import OneByOne
from keras_attn.layers._internal.arguments import is_int, number, positive_int

__all__ = ["Sampling"]


@dataclasses.dataclass(frozen=True)
class Sampling(OneByOne):
    """Draws each token from the model's distribution, sharpened or cut.

    In this order: the repetition penalty, the temperature, top-k, top-p.

    Args:
        temperature: float > 0, divides the logits: below 1 sharpens, above 1 flattens.
        top_k: int, only the so many likeliest tokens are drawn from; None for all.
        top_p: float in (0, 1], only the fewest likeliest tokens whose probabilities
            sum to at least this are drawn from.
        repetition_penalty: float > 0; the logit of a token that is there already (in
            the prompt as well) is divided by it where positive and multiplied where
            negative. 1 changes nothing, above 1 discourages.
        seed: int, the same one gives the same text; None draws anew at each call.

    The score of a row is the sum of its tokens' log-probabilities under the model
    itself, before any of these.

    Raises:
        ValueError: for a number outside its range.

    Example:
        >>> generate(model, {"target": prompt}, end_token_id=3,
        ...          strategy=Sampling(temperature=0.8, top_p=0.95, seed=1))

    Reference:
        Holtzman et al. 2020, "The Curious Case of Neural Text Degeneration"
        (https://arxiv.org/abs/1904.09751), top-p; Fan et al. 2018
        (https://arxiv.org/abs/1805.04833), top-k; Keskar et al. 2019
        (https://arxiv.org/abs/1909.05858), the penalty.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    seed: int | None = None

    def __post_init__(self):
        positive_int("top_k", self.top_k, optional=True)
        for name in ("temperature", "repetition_penalty"):
            number(name, getattr(self, name), least=0, what="a positive number")
        number("top_p", self.top_p, least=0, most=1, what="a number in (0, 1]")
        if self.seed is not None and not is_int(self.seed):
            raise ValueError(
                f"`seed` must be an int or None. Received: seed={self.seed!r}"
            )

    def draw(self, batch_size, max_length):
        seed = random.getrandbits(31) if self.seed is None else self.seed
        # All numbers at once, row by row: a row's do not depend on how many follow.
        return keras.random.uniform((batch_size, max_length), seed=seed)

    def start(self, prompt, max_length, vocabulary_size, draws=None):
        if draws is None:
            draws = self.draw(ops.shape(prompt)[0], max_length)
        state = super().start(prompt, max_length, vocabulary_size)
        state["draws"] = draws
        if self.repetition_penalty != 1.0:
            present = ops.one_hot(prompt, vocabulary_size, dtype="bool")
            state["present"] = ops.any(present, axis=1)
        return state

    def advance(self, state, logits, log_probabilities, count, end_token_ids):
        new, tokens, parents = super().advance(
            state, logits, log_probabilities, count, end_token_ids
        )
        if "present" in state:
            present = ops.one_hot(tokens[:, 0], logits.shape[-1], dtype="bool")
            new["present"] = ops.logical_or(state["present"], present)
        return new, tokens, parents

    def choose(self, state, logits, count):
        if "present" in state:
            penalty = self.repetition_penalty
            penalized = ops.where(logits > 0, logits / penalty, logits * penalty)
            logits = ops.where(state["present"], penalized, logits)
        logits = logits / self.temperature
        order = None
        if self.top_k is not None or self.top_p < 1.0:
            # Likeliest first, so that the kept ones are the first ones.
            size = min(self.top_k or logits.shape[-1], logits.shape[-1])
            logits, order = ops.top_k(logits, size)
        # Not `softmax`, of which Keras warns where only one token is kept.
        probabilities = ops.exp(ops.log_softmax(logits, axis=-1))
        upto = ops.cumsum(probabilities, axis=-1)
        total = upto[:, -1:]
        if self.top_p < 1.0:
            # A token is kept while those before it do not reach `top_p`.
            before = ops.pad(upto[:, :-1], [[0, 0], [1, 0]])
            kept = ops.where(before < self.top_p, upto, 0.0)
            total = ops.max(kept, axis=-1, keepdims=True)
        # The first token at which the sum passes the drawn share of it.
        draw = ops.take_along_axis(state["draws"], count[:, None], axis=1) * total
        tokens = ops.argmax(ops.cast(upto > draw, "int32"), axis=-1)[:, None]
        if order is not None:
            tokens = ops.take_along_axis(order, tokens, axis=1)
        return ops.cast(tokens[:, 0], "int32")
