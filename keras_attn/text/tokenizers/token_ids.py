"""Tensors of strings and of token ids: conversions, special ids."""

import numpy as np
import tensorflow as tf


def to_strings(texts):
    """A string tensor of rank 0 or 1 from `str`, a list of `str`, or a tensor."""
    if isinstance(texts, str | bytes):
        tensor = tf.constant(_encoded(texts))
    elif isinstance(texts, list | tuple):
        if not all(isinstance(text, str | bytes) for text in texts):
            if not all(tf.is_tensor(text) for text in texts):
                raise ValueError(
                    f"Expected a list of str. Received: texts={_shortened(texts)}"
                )
            tensor = tf.convert_to_tensor(texts)
        else:
            tensor = tf.constant([_encoded(t) for t in texts], tf.string, [len(texts)])
    elif isinstance(texts, tf.RaggedTensor):
        tensor = None
    else:
        tensor = tf.convert_to_tensor(texts)
    if tensor is None or tensor.dtype != tf.string or tensor.shape.rank not in (0, 1):
        raise ValueError(
            "Expected text as a string tensor of rank 0 or 1, or a list of str. "
            f"Received: texts={_shortened(texts)}"
        )
    return tensor


def _encoded(text):
    # A lone surrogate is not valid text, but no reason to fail: it is cleaned later.
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text


def to_integers(ids):
    """An int64 `tf.Tensor` or `tf.RaggedTensor` of rank 1 or more."""
    received = ids
    try:
        if isinstance(ids, list | tuple) and not any(map(tf.is_tensor, ids)):
            # int64, so that a too large id is found and named later.
            ids = tf.ragged.constant(_nested_lists(ids), dtype=tf.int64)
        elif isinstance(ids, list | tuple):
            ids = tf.ragged.stack(list(ids))
        elif not isinstance(ids, tf.RaggedTensor):
            ids = tf.convert_to_tensor(ids)
        rank = ids.shape.rank
        whole = ids.dtype.is_integer
    except (TypeError, ValueError, OverflowError):
        rank = None
        whole = False
    if not whole or not rank:
        raise ValueError(
            "Expected token ids as whole numbers: a list of lists, or a tensor of a "
            f"known rank of at least 1. Received: ids={_shortened(received)}"
        )
    return tf.cast(ids, tf.int64)


def _nested_lists(ids):
    if isinstance(ids, np.ndarray):
        return _nested_lists(ids.tolist())
    if isinstance(ids, list | tuple):
        return [_nested_lists(i) for i in ids]
    if isinstance(ids, bool) or not isinstance(ids, int | np.integer):
        raise TypeError
    return int(ids)


def _shortened(value):
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def add_special(ids, start=None, end=None):
    """Puts an id before and after each row of a ragged `(N, None)`; None adds none."""
    rows = ids.nrows(out_type=tf.int32)
    parts = [ids]
    if start is not None:
        parts.insert(0, tf.fill([rows, 1], tf.constant(start, ids.dtype)))
    if end is not None:
        parts.append(tf.fill([rows, 1], tf.constant(end, ids.dtype)))
    return tf.concat(parts, axis=1) if len(parts) > 1 else ids


def strip_special(ids, padding, start, end):
    """Cuts each row of a ragged `(N, None)` at its end id; drops padding and start.

    Where one id is both start and end, it is the start as the first of a row.
    """
    values = ids.values
    is_end = values == end
    if start == end:
        first = tf.gather(ids.row_starts(), ids.value_rowids())
        is_end &= tf.range(tf.size(values, tf.int64)) != first
    ends = tf.cumsum(tf.cast(is_end, tf.int64))
    # Ends seen in the rows before, so that each row counts only its own.
    before = tf.gather(tf.concat([[0], ends], 0), ids.row_starts())
    own_ends = ends - tf.gather(before, ids.value_rowids())
    keep = (own_ends == 0) & (values != padding) & (values != start)
    return tf.ragged.boolean_mask(ids, ids.with_values(keep))
