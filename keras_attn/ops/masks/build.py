"""Functions that create masks, and the mask of an attention layer's call arguments.

A mask is a small immutable object that can be evaluated for any range of query and key
positions. Masks are joined with `&`; `None` means that every query may attend to every
key. True always means "may attend". Every kernel evaluates the same object (for all
positions at once, for one block, or for the single query of a decoding step), so that
no kernel can ignore a part of it.
"""

import keras
import numpy as np
from keras import ops

from keras_attn._types import Tensor
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
    "is_only_causal",
    "join",
    "padding",
    "segments",
    "window",
]


def causal(offset: int | Tensor = 0) -> Mask:
    """Return a causal mask: query `i` may attend to key `j` iff `j <= i + offset`.

    Args:
        offset: int or int32 scalar tensor. With 0, a token attends to itself and to
            the previous tokens.

    Returns:
        A `Mask`.

    Example:
        >>> import keras
        >>> from keras_attn.ops import masks
        >>> positions = masks.Span(0, 3)
        >>> allowed = masks.causal().evaluate(positions, positions)
        >>> keras.ops.convert_to_numpy(allowed).astype(int)[0, 0].tolist()
        [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    """
    return Causal(offset)


def window(size: int, num_global: int = 0) -> Mask:
    """Return a sliding-window mask: distances of query and key are less than `size`.

    Joined with `causal()`, a token attends to itself and to the `size - 1` previous
    tokens.

    Args:
        size: int, at least 1.
        num_global: Number of first positions that every query may attend to and that
            may attend to every key: global tokens (Beltagy et al. 2020,
            https://arxiv.org/abs/2004.05150). With a causal mask they are known as
            attention sinks (Xiao et al. 2023, https://arxiv.org/abs/2309.17453).

    Returns:
        A `Mask`.

    Raises:
        ValueError: If `size` is not an int of at least 1, or `num_global` not one of at
            least 0.

    Example:
        >>> import keras
        >>> from keras_attn.ops import masks
        >>> positions = masks.Span(0, 4)
        >>> mask = masks.causal() & masks.window(2)
        >>> allowed = mask.evaluate(positions, positions)
        >>> keras.ops.convert_to_numpy(allowed).astype(int)[0, 0].tolist()
        [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
    """
    for name, value, minimum in ("size", size, 1), ("num_global", num_global, 0):
        is_int = hasattr(value, "__index__") and not isinstance(value, bool)
        if not is_int or value < minimum:
            raise ValueError(
                f"`{name}` of a window must be an int of at least {minimum}. "
                f"Received: {name}={value!r}"
            )
    return Window(int(size), int(num_global))


def segments(
    query_ids: Tensor, key_ids: Tensor | None = None, query_start: int | Tensor = 0
) -> Mask:
    """Return the mask of packed sequences: a query attends to keys of its segment.

    Args:
        query_ids: int `(B, T)`, the segment id of each query.
        key_ids: int `(B, S)`, the segment id of each key; `query_ids` by default.
        query_start: The position of the first query in `query_ids`, an int or an int32
            scalar tensor.

    Returns:
        A `Mask`.

    Raises:
        ValueError: If the ids are not of rank 2 or not integers.

    Example:
        >>> import keras
        >>> import numpy as np
        >>> from keras_attn.ops import masks
        >>> positions = masks.Span(0, 3)
        >>> mask = masks.segments(np.array([[1, 1, 2]]))
        >>> allowed = mask.evaluate(positions, positions)
        >>> keras.ops.convert_to_numpy(allowed).astype(int)[0, 0].tolist()
        [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    """
    query_ids = _as_ids(query_ids)
    key_ids = query_ids if key_ids is None else _as_ids(key_ids)
    return Segments(query_ids, key_ids, query_start)


def padding(mask: Tensor) -> Mask:
    """Return a padding mask: every query may attend to the keys that are not padding.

    Args:
        mask: bool (or integer 0/1) `(B, S)`, True = not padding.

    Returns:
        A `Mask`.

    Raises:
        ValueError: If `mask` is not of rank 2 or is a float tensor.

    Example:
        >>> import keras
        >>> import numpy as np
        >>> from keras_attn.ops import masks
        >>> mask = masks.padding(np.array([[True, True, False]]))
        >>> allowed = mask.evaluate(masks.Span(0, 1), masks.Span(0, 3))
        >>> keras.ops.convert_to_numpy(allowed).tolist()
        [[[[True, True, False]]]]
    """
    return Padding(_as_bool("padding_mask", mask, _PADDING_SHAPES))


def dense(mask: Tensor) -> Mask:
    """Return an arbitrary mask, given for each pair of query and key.

    Args:
        mask: bool (or integer 0/1) `(T, S)`, `(B, T, S)` or `(B, N, T, S)`, True = may
            attend. The batch and head axes may be 1.

    Returns:
        A `Mask`.

    Raises:
        ValueError: If `mask` is not of rank 2, 3 or 4 or is a float tensor.

    Example:
        >>> import keras
        >>> import numpy as np
        >>> from keras_attn.ops import masks
        >>> mask = masks.dense(np.array([[[True, False], [True, True]]]))
        >>> allowed = mask.evaluate(masks.Span(1, 1), masks.Span(0, 2))
        >>> keras.ops.convert_to_numpy(allowed).tolist()
        [[[[True, True]]]]
    """
    mask = _as_bool("attention_mask", mask, _DENSE_SHAPES)
    new_axes = {2: (0, 1), 3: 1}.get(len(mask.shape))
    return Dense(mask if new_axes is None else ops.expand_dims(mask, axis=new_axes))


def is_only_causal(mask: Mask | None) -> bool:
    """Return whether `mask` is `causal()`, without an offset or any other mask."""
    return isinstance(mask, Causal) and isinstance(mask.offset, int) and not mask.offset


def combine(
    padding_mask: Tensor | None = None,
    attention_mask: Tensor | None = None,
    use_causal_mask: bool = False,
    num_queries: int | None = None,
    num_keys: int | None = None,
    segment_ids: Tensor | None = None,
    batch_size: int | None = None,
    num_heads: int | None = None,
) -> Mask | None:
    """Return the mask of the call arguments of an attention layer.

    Args:
        padding_mask: `(B, S)`, see `padding`, or `None`.
        attention_mask: `(T, S)`, `(B, T, S)` or `(B, N, T, S)`, see `dense`, or
            `None`.
        use_causal_mask: Whether to join `causal()`.
        num_queries: T if it is known.
        num_keys: S if it is known.
        segment_ids: int `(B, S)`, the ids of queries and keys, see `segments`, or
            `None`.
        batch_size: B if it is known.
        num_heads: N if it is known.

    Returns:
        A `Mask`, or `None` if every query may attend to every key.

    Raises:
        ValueError: If a mask has a wrong rank, dtype, length, batch size or number of
            heads.

    Example:
        >>> import numpy as np
        >>> from keras_attn.ops import masks
        >>> masks.combine() is None
        True
        >>> mask = masks.combine(np.array([[True, False]]), use_causal_mask=True)
        >>> [type(part).__name__ for part in mask.masks]
        ['Causal', 'Padding']
    """
    if padding_mask is None and attention_mask is None and segment_ids is None:
        return causal() if use_causal_mask else None
    check(
        padding_mask,
        attention_mask,
        num_queries,
        num_keys,
        segment_ids,
        batch_size,
        num_heads,
    )
    return join(
        causal() if use_causal_mask else None,
        None if segment_ids is None else segments(segment_ids),
        None if padding_mask is None else padding(padding_mask),
        None if attention_mask is None else dense(attention_mask),
    )


def check(
    padding_mask: Tensor | None = None,
    attention_mask: Tensor | None = None,
    num_queries: int | None = None,
    num_keys: int | None = None,
    segment_ids: Tensor | None = None,
    batch_size: int | None = None,
    num_heads: int | None = None,
) -> None:
    """Raise a ValueError if `combine` would; the masks may be symbolic tensors.

    Args:
        padding_mask: `(B, S)` or `None`.
        attention_mask: `(T, S)`, `(B, T, S)` or `(B, N, T, S)`, or `None`.
        num_queries: T if it is known.
        num_keys: S if it is known.
        segment_ids: int `(B, S)` or `None`.
        batch_size: B if it is known.
        num_heads: N if it is known.

    Raises:
        ValueError: If a mask has a wrong rank, dtype, length, batch size or number of
            heads.

    Example:
        >>> import keras
        >>> from keras_attn.ops import masks
        >>> masks.check(keras.Input((5,), dtype="bool"), num_keys=5)
    """
    for name, mask, shapes, expected in (
        ("padding_mask", padding_mask, _PADDING_SHAPES, (num_keys,)),
        ("attention_mask", attention_mask, _DENSE_SHAPES, (num_queries, num_keys)),
        ("segment_ids", segment_ids, _PADDING_SHAPES, (num_keys,)),
    ):
        if mask is None:
            continue
        if isinstance(mask, (list, tuple)):
            mask = np.asarray(mask)
        _check_rank(name, mask, shapes)
        _check_dtype(name, mask)
        lengths = tuple(mask.shape)[-len(expected) :]
        for length, expected_length in zip(lengths, expected):
            is_known = length is not None and expected_length is not None
            if is_known and length != expected_length:
                raise ValueError(
                    f"`{name}` must be as long as the tensors that it masks: its last "
                    f"axes must be {expected}. "
                    f"Received: {name} of shape {tuple(mask.shape)}"
                )
        _check_batch_and_heads(name, mask, batch_size, num_heads)


def _check_batch_and_heads(
    name: str, mask: Tensor, batch_size: int | None, num_heads: int | None
) -> None:
    is_dense = name == "attention_mask"
    shape = tuple(mask.shape)
    if is_dense and len(shape) == 2:
        return
    axes = [("batch", batch_size), ("heads", num_heads if len(shape) == 4 else None)]
    for (axis, expected), size in zip(axes, shape):
        if None in (expected, size) or size == expected or (is_dense and size == 1):
            continue
        raise ValueError(
            f"The {axis} axis of `{name}` must have size {expected}"
            f"{' or 1' if is_dense else ''}. Received: {name} of shape {shape}"
        )


_PADDING_SHAPES = {2: "(batch, keys)"}
_DENSE_SHAPES = {
    2: "(queries, keys)",
    3: "(batch, queries, keys)",
    4: "(batch, heads, queries, keys)",
}


def _check_rank(name: str, mask: Tensor, shapes: dict[int, str]) -> None:
    if len(mask.shape) not in shapes:
        raise ValueError(
            f"`{name}` must be of shape {' or '.join(shapes.values())}. "
            f"Received: {name} of shape {tuple(mask.shape)}"
        )


def _check_dtype(name: str, mask: Tensor) -> None:
    dtype = keras.backend.standardize_dtype(mask.dtype)
    if name == "segment_ids":
        if "int" not in dtype:
            raise ValueError(
                "`segment_ids` must be integers, equal for the tokens of a segment. "
                f"Received: segment_ids of dtype {dtype}"
            )
    elif dtype != "bool" and "int" not in dtype:
        raise ValueError(
            f"`{name}` must be a bool tensor, True = may attend. Integers 0 and 1 are "
            "also accepted; floats are not, because libraries disagree on their "
            f"meaning. Received: {name} of dtype {dtype}"
        )


def _as_ids(ids: Tensor) -> Tensor:
    ids = ops.convert_to_tensor(ids)
    check(segment_ids=ids)
    return ops.cast(ids, "int32")


def _as_bool(name: str, mask: Tensor, shapes: dict[int, str]) -> Tensor:
    mask = ops.convert_to_tensor(mask)
    _check_rank(name, mask, shapes)
    _check_dtype(name, mask)
    if keras.backend.standardize_dtype(mask.dtype) == "bool":
        return mask
    return ops.not_equal(mask, 0)
