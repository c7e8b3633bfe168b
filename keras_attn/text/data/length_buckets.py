"""Batches of examples of similar length: index arithmetic in NumPy."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike


def default_boundaries(max_length: int) -> list[int]:
    """Return increasing lengths up to `max_length`, each about 1.5 times the last."""
    lengths = []
    length = 8
    while length < max_length:
        lengths.append(length)
        length = max(length + 8, int(length * 1.5) // 8 * 8)
    return [*lengths, max_length]


class Buckets:
    """Groups of examples of similar length, so that batches need little padding.

    An example belongs to the first bucket whose boundary is not below its length. The
    examples that do not fill the last batch of a bucket move to the next longer bucket
    in use. Therefore at most one batch, of the longest bucket, is smaller than the
    others, and each bucket has a single shape, which XLA compiles once.

    Args:
        lengths: int array `(N,)`, none above the last boundary.
        boundaries: Increasing lengths.
        batch_sizes: The batch size of each bucket.
    """

    def __init__(
        self, lengths: ArrayLike, boundaries: Sequence[int], batch_sizes: Sequence[int]
    ) -> None:
        self._bucket_of = np.searchsorted(boundaries, lengths)
        self._batch_sizes = batch_sizes
        self._used: list[int] = np.unique(self._bucket_of).tolist()

    def batches(self, order: ArrayLike) -> list[tuple[int, np.ndarray]]:
        """Group the examples into batches.

        Args:
            order: int array `(N,)`, a permutation of the indices of the examples.

        Returns:
            A list of `(bucket, indices)`, in the order in which `order` fills the
            batches.
        """
        order = np.asarray(order)
        position = np.empty(len(order), np.int64)
        position[order] = np.arange(len(order))
        bucket_in_order = self._bucket_of[order]
        remainder = np.empty(0, np.int64)
        full_batches = []
        for bucket in self._used:
            members = np.concatenate([remainder, order[bucket_in_order == bucket]])
            members = members[np.argsort(position[members])]
            size = self._batch_sizes[bucket]
            end = len(members) - len(members) % size
            full_batches += [
                (bucket, members[i : i + size]) for i in range(0, end, size)
            ]
            remainder = members[end:]
        full_batches.sort(key=lambda batch: position[batch[1][-1]])
        return full_batches + [(self._used[-1], remainder)] * bool(len(remainder))


def pad(sequences: Sequence[np.ndarray], length: int, padding_id: int) -> np.ndarray:
    """Stack sequences of different lengths, padded at the end.

    Args:
        sequences: int arrays, `B` of them.
        length: Length to pad to.
        padding_id: The value of the padding.

    Returns:
        int32 array `(B, length)`.
    """
    lengths = np.array([len(sequence) for sequence in sequences])
    result = np.full((len(sequences), length), padding_id, np.int32)
    result[np.arange(length) < lengths[:, None]] = np.concatenate(sequences)
    return result
