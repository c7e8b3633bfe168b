"""Who may attend to whom: the only place that decides it.

A mask is a small immutable value that can be evaluated for any span of query and key
positions. Masks are joined with `&`; `None` stands for "everyone may attend to
everyone". True always means "may attend". Every attention kernel evaluates the same
value (all positions at once, one block, or the one row of a decoding step), so no
path can lose a rule.
"""

import dataclasses
import typing

import keras
import numpy as np
from keras import ops

__all__ = ["Mask", "Span", "build", "causal", "check", "dense", "join", "padding"]


class Span(typing.NamedTuple):
    """A run of consecutive positions.

    Attributes:
        start: first position, a Python int or an int32 scalar tensor.
        length: number of positions, a Python int or an int32 scalar tensor.
    """

    start: typing.Any
    length: typing.Any

    def positions(self):
        """The positions as an int32 tensor of shape `(length,)`."""
        return ops.arange(self.length, dtype="int32") + self.start

    def of(self, tensor, axis):
        """The slice of `tensor` at these positions of `axis`."""
        if isinstance(self.start, int) and self.start == 0:
            length = tensor.shape[axis]
            if self.length is length and length is not None:
                return tensor
        return ops.take(tensor, self.positions(), axis=axis)


class Mask:
    """Base of all masks: a rule that tells which query may attend to which key."""

    def evaluate(self, query, key):
        """The rule over two spans.

        Args:
            query: `Span` of T query positions.
            key: `Span` of S key positions.

        Returns:
            A bool tensor that broadcasts to `(batch, heads, T, S)`; True = attend.
        """
        raise NotImplementedError

    @property
    def can_exclude_every_key(self):
        """Whether some query may be left with nothing to attend to."""
        return True

    def __and__(self, other):
        return join(self, other)

    __rand__ = __and__


@dataclasses.dataclass(frozen=True, eq=False)
class _Causal(Mask):
    offset: typing.Any

    def evaluate(self, query, key):
        last_visible = query.positions() + self.offset
        return ops.expand_dims(
            key.positions()[None, :] <= last_visible[:, None], axis=(0, 1)
        )

    @property
    def can_exclude_every_key(self):
        return not (isinstance(self.offset, int) and self.offset >= 0)


@dataclasses.dataclass(frozen=True, eq=False)
class _Padding(Mask):
    keep: typing.Any

    def evaluate(self, query, key):
        return ops.expand_dims(key.of(self.keep, axis=1), axis=(1, 2))


@dataclasses.dataclass(frozen=True, eq=False)
class _Dense(Mask):
    keep: typing.Any

    def evaluate(self, query, key):
        return key.of(query.of(self.keep, axis=2), axis=3)


@dataclasses.dataclass(frozen=True, eq=False)
class _All(Mask):
    masks: tuple

    def evaluate(self, query, key):
        result = self.masks[0].evaluate(query, key)
        for mask in self.masks[1:]:
            result = ops.logical_and(result, mask.evaluate(query, key))
        return result

    @property
    def can_exclude_every_key(self):
        return any(mask.can_exclude_every_key for mask in self.masks)


def causal(offset=0):
    """Query `i` may attend to key `j` iff `j <= i + offset`.

    Args:
        offset: int or int32 scalar tensor. 0 (the default) lets a token see itself
            and its past.

    Returns:
        A `Mask`.
    """
    return _Causal(offset)


def padding(mask):
    """Every query may attend to the keys that are real tokens.

    Args:
        mask: bool (or integer 0/1) tensor of shape `(batch, S)`, True = a real token.

    Returns:
        A `Mask`.

    Raises:
        ValueError: if `mask` is of another rank or holds floats.
    """
    return _Padding(_as_bool("padding_mask", mask, _PADDING_SHAPES))


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
    return _Dense(ops.expand_dims(mask, axis=1) if len(mask.shape) == 3 else mask)


def join(*masks):
    """The mask that holds where all of `masks` hold; `None`s are left out.

    Returns:
        A `Mask`, or `None` where no mask was given.
    """
    flat = []
    for mask in masks:
        if isinstance(mask, _All):
            flat.extend(mask.masks)
        elif mask is not None:
            flat.append(mask)
    if len(flat) < 2:
        return flat[0] if flat else None
    return _All(tuple(flat))


def build(
    padding_mask=None,
    attention_mask=None,
    use_causal_mask=False,
    num_queries=None,
    num_keys=None,
):
    """The mask that an attention layer's call arguments stand for.

    Args:
        padding_mask: `(batch, S)`, see `padding`, or None.
        attention_mask: `(batch, T, S)` or `(batch, heads, T, S)`, see `dense`, or
            None.
        use_causal_mask: bool, whether to join `causal()`.
        num_queries, num_keys: ints T and S, where known.

    Returns:
        A `Mask`, or `None` where nothing is masked.

    Raises:
        ValueError: for a mask of another rank, of floats, or known to be of other
            lengths.
    """
    check(padding_mask, attention_mask, num_queries, num_keys)
    return join(
        causal() if use_causal_mask else None,
        None if padding_mask is None else padding(padding_mask),
        None if attention_mask is None else dense(attention_mask),
    )


def check(padding_mask=None, attention_mask=None, num_queries=None, num_keys=None):
    """Raise where `build` would, for masks that may be symbolic."""
    for name, mask, shapes, lengths in (
        ("padding_mask", padding_mask, _PADDING_SHAPES, (num_keys,)),
        ("attention_mask", attention_mask, _DENSE_SHAPES, (num_queries, num_keys)),
    ):
        if mask is None:
            continue
        if isinstance(mask, (list, tuple)):
            mask = np.asarray(mask)
        _check(name, mask, shapes)
        for length, found in zip(lengths, tuple(mask.shape)[-len(lengths) :]):
            if length is not None and found is not None and length != found:
                raise ValueError(
                    f"`{name}` must be as long as what it masks, "
                    f"{', '.join(map(str, lengths))}. "
                    f"Received: {name} of shape {tuple(mask.shape)}"
                )


_PADDING_SHAPES = {2: "(batch, keys)"}
_DENSE_SHAPES = {3: "(batch, queries, keys)", 4: "(batch, heads, queries, keys)"}


def _check(name, mask, shapes):
    if len(mask.shape) not in shapes:
        raise ValueError(
            f"`{name}` must be of shape {' or '.join(shapes.values())}. "
            f"Received: {name} of shape {tuple(mask.shape)}"
        )
    dtype = keras.backend.standardize_dtype(mask.dtype)
    if dtype != "bool" and "int" not in dtype:
        raise ValueError(
            f"`{name}` must be a bool tensor, True = may attend (integers 0 and 1 are "
            "taken as well; floats are not, since they are in use with several "
            f"meanings). Received: {name} of dtype {dtype}"
        )


def _as_bool(name, mask, shapes):
    mask = ops.convert_to_tensor(mask)
    _check(name, mask, shapes)
    if keras.backend.standardize_dtype(mask.dtype) == "bool":
        return mask
    return ops.not_equal(mask, 0)
