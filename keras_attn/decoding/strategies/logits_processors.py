"""Which tokens may follow, whatever the strategy."""

import dataclasses

import numpy as np
from keras import ops

__all__ = ["Constraints"]


@dataclasses.dataclass(frozen=True)
class Constraints:
    """Rules that every strategy keeps to.

    Attributes:
        end_token_ids: tuple of ints, the tokens that end a row.
        min_length: int, before that many tokens no row ends.
        banned_token_ids: tuple of ints, never chosen.
    """

    end_token_ids: tuple
    min_length: int = 0
    banned_token_ids: tuple = ()

    def apply(self, logits, count, prefix=None):
        """`logits` with minus infinity where a token may not follow.

        Args:
            logits: `(B, K, V)`.
            count: int32 `(B,)`, how many tokens each row has been given.
            prefix: int32 `(B, F)`, the tokens each row must begin with, and -1 after
                those of a shorter one; or None.
        """
        vocabulary_size = logits.shape[-1]
        if self.banned_token_ids:
            logits = ops.where(
                _one_of(self.banned_token_ids, vocabulary_size), -np.inf, logits
            )
        if self.min_length > 1:
            is_end = _one_of(self.end_token_ids, vocabulary_size)
            too_short = ops.reshape(count + 1 < self.min_length, (-1, 1, 1))
            logits = ops.where(ops.logical_and(too_short, is_end), -np.inf, logits)
        if prefix is not None:
            length = ops.shape(prefix)[1]
            place = ops.clip(count, 0, length - 1)[:, None]
            token = ops.take_along_axis(prefix, place, axis=1)
            given = ops.logical_and(count[:, None] < length, token >= 0)
            others = ops.not_equal(ops.arange(vocabulary_size), token)
            forbidden = ops.expand_dims(ops.logical_and(given, others), 1)
            logits = ops.where(forbidden, -np.inf, logits)
        return logits


def _one_of(token_ids, vocabulary_size):
    """Bool `(V,)`, True at the given ids."""
    found = np.zeros(vocabulary_size, bool)
    found[list(token_ids)] = True
    return ops.convert_to_tensor(found)
