"""Who may attend to whom: the only place that decides it.

A mask is a small immutable value that can be evaluated for any span of query and key
positions. Masks are joined with `&`; `None` stands for "everyone may attend to
everyone". True always means "may attend". Every attention kernel evaluates the same
value (all positions at once, one block, or the one row of a decoding step), so no
path can lose a rule.
"""

import keras
import numpy as np
from keras import ops

from keras_attn.ops.masks.kinds import (
    Causal,
    Dense,
    Mask,
    Padding,
    Segments,
    Window,
    join,
)
from keras_attn.ops.masks.positions import Span

__all__ = [
    "Mask",
    "Span",
    "causal",
    "check",
    "combine",
    "dense",
    "is_plainly_causal",
    "join",
    "padding",
    "segments",
    "window",
]


def causal(offset=0):
    """Query `i` may attend to key `j` iff `j <= i + offset`.

    Args:
        offset: int or int32 scalar tensor. 0 (the default) lets a token see itself
            and its past.

    Returns:
        A `Mask`.
    """
    return Causal(offset)


def window(size, num_global=0):
    """Query `i` may attend to keys less than `size` positions away.

    Joined with `causal()` it leaves a token itself and the `size - 1` before it.

    Args:
        size: int, at least 1.
        num_global: int, how many of the first positions every query may attend to and
            which may attend to every key: global tokens (Beltagy et al. 2020,
            https://arxiv.org/abs/2004.05150). Under a causal mask they are known as
            attention sinks (Xiao et al. 2023, https://arxiv.org/abs/2309.17453).

    Returns:
        A `Mask`.

    Raises:
        ValueError: if a size is no int, or below 1 or 0.
    """
    for name, value, least in ("size", size, 1), ("num_global", num_global, 0):
        is_int = hasattr(value, "__index__") and not isinstance(value, bool)
        if not is_int or value < least:
            raise ValueError(
                f"`{name}` of a window must be an int of at least {least}. "
                f"Received: {name}={value!r}"
            )
    return Window(int(size), int(num_global))


def segments(query_ids, key_ids=None, query_start=0):
    """A query may attend to the keys of its own segment, as of sequences packed in one.

    Args:
        query_ids: int tensor `(batch, T)`.
        key_ids: int tensor `(batch, S)`; default: `query_ids`.
        query_start: position of the first of `query_ids`, an int or an int32 scalar
            tensor.

    Returns:
        A `Mask`.

    Raises:
        ValueError: if ids are of another rank or no integers.
    """
    query_ids = _as_ids(query_ids)
    key_ids = query_ids if key_ids is None else _as_ids(key_ids)
    return Segments(query_ids, key_ids, query_start)


def padding(mask):
    """Every query may attend to the keys that are real tokens.

    Args:
        mask: bool (or integer 0/1) tensor of shape `(batch, S)`, True = a real token.

    Returns:
        A `Mask`.

    Raises:
        ValueError: if `mask` is of another rank or holds floats.
    """
    return Padding(_as_bool("padding_mask", mask, _PADDING_SHAPES))


def dense(mask):
    """An arbitrary mask, given entry by entry.

    Args:
        mask: bool (or integer 0/1) tensor of shape `(batch, T, S)` or
            `(batch, heads, T, S)`, True = may attend. The batch and head axes may
            be 1.

    Returns:
        A `Mask`.

    Raises:
        ValueError: if `mask` is of another rank or holds floats.
    """
    mask = _as_bool("attention_mask", mask, _DENSE_SHAPES)
    return Dense(ops.expand_dims(mask, axis=1) if len(mask.shape) == 3 else mask)


def is_plainly_causal(mask):
    """Whether `mask` is `causal()` and nothing else."""
    return isinstance(mask, Causal) and isinstance(mask.offset, int) and not mask.offset


def combine(
    padding_mask=None,
    attention_mask=None,
    use_causal_mask=False,
    num_queries=None,
    num_keys=None,
    segment_ids=None,
):
    """The mask that an attention layer's call arguments stand for.

    Args:
        padding_mask: `(batch, S)`, see `padding`, or None.
        attention_mask: `(batch, T, S)` or `(batch, heads, T, S)`, see `dense`, or
            None.
        use_causal_mask: bool, whether to join `causal()`.
        num_queries, num_keys: ints T and S, where known.
        segment_ids: `(batch, S)` ints, of queries and keys alike, see `segments`, or
            None.

    Returns:
        A `Mask`, or `None` where nothing is masked.

    Raises:
        ValueError: for a mask of another rank, of floats, or known to be of other
            lengths.
    """
    check(padding_mask, attention_mask, num_queries, num_keys, segment_ids)
    return join(
        causal() if use_causal_mask else None,
        None if segment_ids is None else segments(segment_ids),
        None if padding_mask is None else padding(padding_mask),
        None if attention_mask is None else dense(attention_mask),
    )


def check(
    padding_mask=None,
    attention_mask=None,
    num_queries=None,
    num_keys=None,
    segment_ids=None,
):
    """Raise where `combine` would, for masks that may be symbolic."""
    for name, mask, shapes, lengths in (
        ("padding_mask", padding_mask, _PADDING_SHAPES, (num_keys,)),
        ("attention_mask", attention_mask, _DENSE_SHAPES, (num_queries, num_keys)),
        ("segments", segment_ids, _PADDING_SHAPES, (num_keys,)),
    ):
        if mask is None:
            continue
        if isinstance(mask, (list, tuple)):
            mask = np.asarray(mask)
        _check_rank(name, mask, shapes)
        _check_dtype(name, mask)
        for length, found in zip(lengths, tuple(mask.shape)[-len(lengths) :]):
            if length is not None and found is not None and length != found:
                raise ValueError(
                    f"`{name}` must be as long as what it masks, "
                    f"{', '.join(map(str, lengths))}. "
                    f"Received: {name} of shape {tuple(mask.shape)}"
                )


_PADDING_SHAPES = {2: "(batch, keys)"}
_DENSE_SHAPES = {3: "(batch, queries, keys)", 4: "(batch, heads, queries, keys)"}


def _check_rank(name, mask, shapes):
    if len(mask.shape) not in shapes:
        raise ValueError(
            f"`{name}` must be of shape {' or '.join(shapes.values())}. "
            f"Received: {name} of shape {tuple(mask.shape)}"
        )


def _check_dtype(name, mask):
    dtype = keras.backend.standardize_dtype(mask.dtype)
    if name == "segments":
        if "int" not in dtype:
            raise ValueError(
                "`segments` must be integers, the same for the tokens of one segment. "
                f"Received: segments of dtype {dtype}"
            )
    elif dtype != "bool" and "int" not in dtype:
        raise ValueError(
            f"`{name}` must be a bool tensor, True = may attend (integers 0 and 1 are "
            "taken as well; floats are not, since they are in use with several "
            f"meanings). Received: {name} of dtype {dtype}"
        )


def _as_ids(ids):
    ids = ops.convert_to_tensor(ids)
    check(segment_ids=ids)
    return ops.cast(ids, "int32")


def _as_bool(name, mask, shapes):
    mask = ops.convert_to_tensor(mask)
    _check_rank(name, mask, shapes)
    _check_dtype(name, mask)
    if keras.backend.standardize_dtype(mask.dtype) == "bool":
        return mask
    return ops.not_equal(mask, 0)
