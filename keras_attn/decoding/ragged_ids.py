"""Ids in rows of several lengths: TensorFlow's ragged tensors, and nested lists."""

import numpy as np

__all__ = ["absent_id", "filled", "ragged_rows"]


def ragged_rows(values):
    """The rows of a ragged tensor, or of lists of several lengths; else None."""
    if hasattr(values, "to_tensor") and hasattr(values, "to_list"):
        return values.to_list()
    if not isinstance(values, (list, tuple)):
        return None
    if not all(isinstance(row, (list, tuple, np.ndarray)) for row in values):
        return None
    if len({len(row) for row in values}) < 2 or any(
        np.ndim(entry) for row in values for entry in row
    ):
        return None
    return [list(row) for row in values]


def filled(rows, filling):
    """The rows as lists of one length."""
    longest = max(map(len, rows), default=0)
    return [[*row, *[filling] * (longest - len(row))] for row in rows]


def absent_id(rows, bound):
    """An id below `bound` that is in none of the rows; 0 if it is none, or all are.

    Else the last there is: the same for most rows, as a search is compiled for it.
    """
    present = {token_id for row in rows for token_id in row}
    return next((i for i in (0, *reversed(range(bound))) if i not in present), 0)
