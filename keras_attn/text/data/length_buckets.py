"""Batches of examples of similar length: plain index arithmetic, no tensors."""

import numpy as np


def boundaries_up_to(longest):
    """A few lengths, each about half as long again as the one before it."""
    lengths = []
    length = 8
    while length < longest:
        lengths.append(length)
        length = max(length + 8, int(length * 1.5) // 8 * 8)
    return [*lengths, longest]


class Buckets:
    """Groups examples by length, so that a batch needs little padding.

    An example is put in the first bucket whose boundary it fits. Examples left over
    when a bucket's last batch is not full move on to the next longer bucket in use, so
    that at most one batch, of the longest bucket, is not full: every bucket has one
    shape, which XLA compiles once.

    Args:
        lengths: int array `(N,)`, none above the last boundary.
        boundaries: Increasing lengths.
        batch_sizes: The batch size of each bucket.
    """

    def __init__(self, lengths, boundaries, batch_sizes):
        self._bucket_of = np.searchsorted(boundaries, lengths)
        self._sizes = batch_sizes
        self._used = np.unique(self._bucket_of).tolist()

    def batches(self, order):
        """Lists `(bucket, example numbers)`, in the order in which batches fill up."""
        order = np.asarray(order)
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        bucket_in_order = self._bucket_of[order]
        left = np.empty(0, np.int64)
        filled = []
        for bucket in self._used:
            own = np.concatenate([left, order[bucket_in_order == bucket]])
            own = own[np.argsort(place[own])]
            size = self._sizes[bucket]
            full = len(own) - len(own) % size
            filled += [(bucket, own[i : i + size]) for i in range(0, full, size)]
            left = own[full:]
        filled.sort(key=lambda batch: place[batch[1][-1]])
        return filled + [(self._used[-1], left)] * bool(len(left))


def padded(rows, width, padding_id):
    """int rows of different lengths as one int32 array `(B, width)`, padding last."""
    lengths = np.array([len(row) for row in rows])
    result = np.full((len(rows), width), padding_id, np.int32)
    result[np.arange(width) < lengths[:, None]] = np.concatenate(rows)
    return result
