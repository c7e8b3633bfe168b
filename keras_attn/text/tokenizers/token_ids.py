"""Conversion of texts and token ids to tensors; special ids."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_attn._types import Tensor


def to_string_tensor(texts: str | bytes | Sequence[str | bytes] | Tensor) -> Tensor:
    """Convert texts to a string tensor of rank 0 or 1.

    Raises:
        ValueError: If `texts` is not text or has a higher rank.
    """
    if isinstance(texts, str | bytes):
        tensor = tf.constant(_to_utf8(texts))
    elif isinstance(texts, list | tuple):
        if not all(isinstance(text, str | bytes) for text in texts):
            if not all(tf.is_tensor(text) for text in texts):
                raise ValueError(
                    f"Expected a list of str. Received: texts={_abbreviated(texts)}"
                )
            tensor = tf.convert_to_tensor(texts)
        else:
            tensor = tf.constant([_to_utf8(t) for t in texts], tf.string, [len(texts)])
    elif isinstance(texts, tf.RaggedTensor):
        tensor = None
    else:
        tensor = tf.convert_to_tensor(texts)
    if tensor is None or tensor.dtype != tf.string or tensor.shape.rank not in (0, 1):
        raise ValueError(
            "Expected text as a string tensor of rank 0 or 1, or a list of str. "
            f"Received: texts={_abbreviated(texts)}"
        )
    return tensor


def _to_utf8(text: str | bytes) -> bytes:
    # A lone surrogate is invalid UTF-8, which the tokenizer replaces with U+FFFD.
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text


def to_id_tensor(ids: Any) -> Tensor | tf.RaggedTensor:
    """Convert token ids to an int64 `tf.Tensor` or `tf.RaggedTensor` of rank >= 1.

    Args:
        ids: (nested) list of `int`, or a tensor of integers.

    Raises:
        ValueError: If `ids` are not integers or have rank 0 or an unknown rank.
    """
    received = ids
    try:
        if isinstance(ids, list | tuple) and not any(map(tf.is_tensor, ids)):
            # int64, so that an id too large for int32 reaches the range check.
            ids = tf.ragged.constant(_nested_lists(ids), dtype=tf.int64)
        elif isinstance(ids, list | tuple):
            ids = tf.ragged.stack(list(ids))
        elif not isinstance(ids, tf.RaggedTensor):
            ids = tf.convert_to_tensor(ids)
        rank = ids.shape.rank
        is_integer = ids.dtype.is_integer
    except (TypeError, ValueError, OverflowError):
        rank = None
        is_integer = False
    if not is_integer or not rank:
        raise ValueError(
            "Expected token ids as integers: a list of lists, or a tensor of a "
            f"known rank of at least 1. Received: ids={_abbreviated(received)}"
        )
    return tf.cast(ids, tf.int64)


def _nested_lists(ids: Any) -> Any:
    """Return the ids as nested lists of `int`; raise a TypeError for any other type."""
    if isinstance(ids, np.ndarray):
        return _nested_lists(ids.tolist())
    if isinstance(ids, list | tuple):
        return [_nested_lists(i) for i in ids]
    if isinstance(ids, bool) or not isinstance(ids, int | np.integer):
        raise TypeError
    return int(ids)


def _abbreviated(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def add_special_ids(
    ids: tf.RaggedTensor, start: int | None = None, end: int | None = None
) -> tf.RaggedTensor:
    """Add a start and an end id to each sequence of a ragged `(N, None)`.

    Args:
        ids: Ragged integer tensor `(N, None)`.
        start: The id to prepend, or None.
        end: The id to append, or None.
    """
    num_sequences = ids.nrows(out_type=tf.int32)
    parts = [ids]
    if start is not None:
        parts.insert(0, tf.fill([num_sequences, 1], tf.constant(start, ids.dtype)))
    if end is not None:
        parts.append(tf.fill([num_sequences, 1], tf.constant(end, ids.dtype)))
    return tf.concat(parts, axis=1) if len(parts) > 1 else ids


def strip_special_ids(
    ids: tf.RaggedTensor, padding: int, start: int, end: int
) -> tf.RaggedTensor:
    """Truncate each sequence at its first end id; drop padding and start ids.

    If `start` and `end` are the same id, it is the start at the first position of a
    sequence and the end at all others.

    Args:
        ids: Ragged int64 tensor `(N, None)`.
        padding: The padding id.
        start: The start id.
        end: The end id.
    """
    values = ids.values
    is_end = values == end
    if start == end:
        first = tf.gather(ids.row_starts(), ids.value_rowids())
        is_end &= tf.range(tf.size(values, tf.int64)) != first
    ends = tf.cumsum(tf.cast(is_end, tf.int64))
    # Subtract the ends in earlier sequences, so that each counts only its own.
    before = tf.gather(tf.concat([[0], ends], 0), ids.row_starts())
    own_ends = ends - tf.gather(before, ids.value_rowids())
    keep = (own_ends == 0) & (values != padding) & (values != start)
    return tf.ragged.boolean_mask(ids, ids.with_values(keep))
