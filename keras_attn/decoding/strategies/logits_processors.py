"""Constraints on the tokens that may follow, independent of the strategy."""

import dataclasses

import keras
import numpy as np
from keras import ops

from keras_attn._types import Tensor

__all__ = ["TokenConstraints", "default_banned_token_ids"]


@dataclasses.dataclass(frozen=True)
class TokenConstraints:
    """The tokens that end a hypothesis, and those that are forbidden.

    Attributes:
        end_token_ids: ids that end a hypothesis.
        min_new_tokens: int, no end token among this number of first tokens.
        banned_token_ids: ids that are never generated.
    """

    end_token_ids: tuple[int, ...]
    min_new_tokens: int = 0
    banned_token_ids: tuple[int, ...] = ()

    def apply(
        self, logits: Tensor, count: Tensor, prefix: Tensor | None = None
    ) -> Tensor:
        """Return `logits` with minus infinity for the tokens that are forbidden.

        Args:
            logits: floats `(B, K, V)`.
            count: int32 `(B,)`, number of tokens generated so far.
            prefix: int32 `(B, F)`, the tokens that each sequence must begin with, -1
                after the end of a shorter one; or None.
        """
        vocabulary_size = logits.shape[-1]
        if self.banned_token_ids:
            is_banned = _one_of(self.banned_token_ids, vocabulary_size)
            logits = ops.where(is_banned, -np.inf, logits)
        if self.min_new_tokens > 0:
            is_end = _one_of(self.end_token_ids, vocabulary_size)
            too_short = ops.reshape(count < self.min_new_tokens, (-1, 1, 1))
            logits = ops.where(ops.logical_and(too_short, is_end), -np.inf, logits)
        if prefix is not None:
            length = ops.shape(prefix)[1]
            index = ops.clip(count, 0, length - 1)[:, None]
            token = ops.take_along_axis(prefix, index, axis=1)
            is_forced = ops.logical_and(count[:, None] < length, token >= 0)
            is_other = ops.not_equal(ops.arange(vocabulary_size), token)
            is_forbidden = ops.expand_dims(ops.logical_and(is_forced, is_other), 1)
            logits = ops.where(is_forbidden, -np.inf, logits)
        return logits


def default_banned_token_ids(model: keras.Model) -> tuple[int, ...]:
    """Return the ids that a model itself excludes, as published models may do."""
    return tuple(getattr(model, "banned_token_ids", ()))


def _one_of(token_ids: tuple[int, ...], vocabulary_size: int) -> Tensor:
    """Return bool `(V,)`, True at the given ids."""
    result = np.zeros(vocabulary_size, bool)
    result[list(token_ids)] = True
    return ops.convert_to_tensor(result)
