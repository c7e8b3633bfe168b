"""Linear attention: feature maps in place of the softmax, and running sums."""

# Keras's functions are inferred to return None for a backend without them.
# pyright: reportGeneralTypeIssues=false, reportOptionalOperand=false
# pyright: reportOptionalSubscript=false

import collections.abc
import typing

from keras import ops

from keras_attn._types import Tensor
from keras_attn.ops.attention.softmax import transpose_heads

__all__ = [
    "feature_function",
    "linear_attention",
    "linear_attention_step",
    "linear_attention_weights",
]

# Tokens per chunk. Longer chunks spend more on the weights, shorter ones more on the
# states, one per chunk; with heads of size 64 on a CPU this length balances the two.
CHUNK = 128
# A smaller sum of weights counts as zero: a division by it would overflow.
_MIN_SUM = 1e-30


def _elu(x: Tensor) -> Tensor:
    # `elu(x) + 1` without its loss of precision if the result is near zero.
    return ops.relu(x) + ops.exp(ops.minimum(x, 0.0))


def _relu(x: Tensor) -> Tensor:
    return ops.relu(x) + 1e-3


FEATURE_MAPS: dict[str, collections.abc.Callable[[Tensor], Tensor]] = {
    "elu": _elu,
    "relu": _relu,
}


def feature_function(
    feature_map: str,
) -> collections.abc.Callable[[Tensor], Tensor]:
    """Return the feature map of a name, a positive function.

    Raises:
        ValueError: If the name is unknown.
    """
    if feature_map not in tuple(FEATURE_MAPS):
        raise ValueError(
            f"`feature_map` must be one of {tuple(FEATURE_MAPS)}. "
            f"Received: {feature_map=}"
        )
    return FEATURE_MAPS[feature_map]


def linear_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    padding_mask: Tensor | None = None,
    causal: bool = False,
    feature_map: str = "elu",
) -> Tensor:
    """Compute `phi(q) . sum(phi(k) v) / phi(q) . sum(phi(k))` for each head.

    Time and memory grow linearly with the number of tokens: the weights are never
    computed. The causal form is computed in chunks: within a chunk from its weights,
    across chunks from running sums. Features and sums are float32.

    Args:
        query: floats `(B, T, N, H)`. No scale is applied.
        key: floats `(B, S, N, H)`.
        value: floats `(B, S, N, V)`.
        padding_mask: bool `(B, S)`, True = may be attended to, or `None`.
        causal: Whether query `i` attends to keys `j <= i` only, with T = S.
        feature_map: `"elu"`, `elu(x) + 1` as in the paper, or `"relu"`,
            `relu(x) + 0.001` as in Performer (Choromanski et al. 2020,
            https://arxiv.org/abs/2009.14794).

    Returns:
        `(B, T, N, V)` of the dtype of `value`; zero for queries without any key to
        attend to.

    Raises:
        ValueError: If a tensor is not of rank 4, the feature map is unknown, or
            `causal=True` and T and S are known to differ.

    Example:
        >>> import numpy as np
        >>> from keras_attn.ops import linear_attention
        >>> x = np.random.default_rng(0).normal(size=(2, 300, 2, 8)).astype("float32")
        >>> tuple(linear_attention(x, x, x, causal=True).shape)
        (2, 300, 2, 8)

    Reference:
        Katharopoulos et al. 2020, "Transformers are RNNs: Fast Autoregressive
        Transformers with Linear Attention", sections 3.2 and 3.3
        (https://arxiv.org/abs/2006.16236).
    """
    _check_shapes(query, key, value, causal)
    query, key = _features(query, key, padding_mask, feature_map)
    values = _values(value, padding_mask)
    if causal:
        sums, totals, _ = _chunked_sums(query, key, values)
    else:
        sums = ops.matmul(query, ops.matmul(_transpose(key), values))
        totals = _matmul_vector(query, ops.sum(key, axis=2))
    return ops.cast(transpose_heads(_divide(sums, totals)), value.dtype)


def linear_attention_step(
    state: Tensor,
    normalizer: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    padding_mask: Tensor | None = None,
    feature_map: str = "elu",
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute causal linear attention of the next T tokens from running sums.

    Args:
        state: float32 `(B, N, H, V)`, the sum of `phi(key) value` over the previous
            tokens, initially 0.
        normalizer: float32 `(B, N, H)`, the sum of `phi(key)` over the previous tokens,
            initially 0.
        query: floats `(B, T, N, H)`.
        key: floats `(B, T, N, H)`.
        value: floats `(B, T, N, V)`.
        padding_mask: bool `(B, T)`, True = may be attended to, or `None`.
        feature_map: See `linear_attention`.

    Returns:
        A tuple `(output, state, normalizer)`: the output of `linear_attention` for the
        T tokens, and the sums over the previous tokens and these.

    Raises:
        ValueError: See `linear_attention`.

    Example:
        >>> import keras
        >>> import numpy as np
        >>> from keras_attn.ops import linear_attention, linear_attention_step
        >>> x = np.random.default_rng(0).normal(size=(1, 5, 2, 3)).astype("float32")
        >>> full = linear_attention(x, x, x, causal=True)
        >>> sums = np.zeros((1, 2, 3, 3), "float32"), np.zeros((1, 2, 3), "float32")
        >>> for t in range(5):
        ...     token = x[:, t : t + 1]
        ...     output, *sums = linear_attention_step(*sums, token, token, token)
        >>> last = keras.ops.convert_to_numpy(full)[:, -1:]
        >>> np.allclose(keras.ops.convert_to_numpy(output), last, atol=1e-5)
        True
    """
    _check_shapes(query, key, value, causal=True)
    query, key = _features(query, key, padding_mask, feature_map)
    values = _values(value, padding_mask)
    previous = ops.cast(state, "float32"), ops.cast(normalizer, "float32")
    sums, totals, updated = _chunked_sums(query, key, values, previous)
    output = ops.cast(transpose_heads(_divide(sums, totals)), value.dtype)
    state, normalizer = typing.cast(tuple[Tensor, Tensor], updated)
    return output, state, normalizer


def linear_attention_weights(
    query: Tensor,
    key: Tensor,
    padding_mask: Tensor | None = None,
    causal: bool = False,
    feature_map: str = "elu",
) -> Tensor:
    """Compute the attention weights that `linear_attention` uses implicitly.

    Args:
        query: floats `(B, T, N, H)`.
        key: floats `(B, S, N, H)`.
        padding_mask: bool `(B, S)`, True = may be attended to, or `None`.
        causal: Whether query `i` attends to keys `j <= i` only, with T = S.
        feature_map: See `linear_attention`.

    Returns:
        float32 `(B, N, T, S)`. The weights of a query sum to one, or to zero if it has
        no key to attend to.

    Raises:
        ValueError: See `linear_attention`.

    Example:
        >>> import keras
        >>> import numpy as np
        >>> from keras_attn.ops import linear_attention_weights
        >>> x = np.zeros((1, 2, 1, 4), "float32")
        >>> weights = linear_attention_weights(x, x)
        >>> keras.ops.convert_to_numpy(weights)[0, 0].tolist()
        [[0.5, 0.5], [0.5, 0.5]]
    """
    _check_shapes(query, key, key, causal)
    query, key = _features(query, key, padding_mask, feature_map)
    weights = ops.matmul(query, _transpose(key))
    if causal:
        weights = _mask_later_keys(weights)
    return _divide(weights, ops.sum(weights, axis=-1, keepdims=True))


def _chunked_sums(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    previous: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor] | None]:
    """Return the numerators and denominators of the causal form.

    Args:
        query: Features `(B, N, T, H)`.
        key: Features `(B, N, T, H)`.
        value: `(B, N, T, V)`.
        previous: The running sums of the previous tokens, `(B, N, H, V)` and
            `(B, N, H)`, or `None`.

    Returns:
        A tuple `(sums, totals, updated)`: the weighted sums of the values
        `(B, N, T, V)`, the sums of the weights `(B, N, T, 1)`, and the running sums
        with these tokens, or `None` if `previous` is `None`.
    """
    length = ops.shape(query)[2]
    chunk = max(1, min(length, CHUNK)) if isinstance(length, int) else CHUNK
    # The last chunk is padded with zero features, which add nothing to the sums.
    query, key, value = (_split_chunks(x, chunk) for x in (query, key, value))
    weights = _mask_later_keys(ops.matmul(query, _transpose(key)))
    sums = ops.matmul(weights, value)
    totals = ops.sum(weights, axis=-1, keepdims=True)
    updated = None
    if previous is not None or query.shape[2] != 1:
        state = ops.matmul(_transpose(key), value)
        normalizer = ops.sum(key, axis=3)
        previous_state, previous_normalizer = previous or (None, None)
        states = _running_sums(state, previous_state)
        normalizers = _running_sums(normalizer, previous_normalizer)
        sums = sums + ops.matmul(query, states[:, :, :-1])
        totals = totals + _matmul_vector(query, normalizers[:, :, :-1])
        if previous is not None:
            updated = states[:, :, -1], normalizers[:, :, -1]
    return _join_chunks(sums, length), _join_chunks(totals, length), updated


def _split_chunks(x: Tensor, chunk: int) -> Tensor:
    """Reshape `(B, N, T, H)` to `(B, N, chunks, chunk, H)`, padded with zeros."""
    batch, heads, length, size = ops.shape(x)
    missing = -length % chunk
    if not isinstance(missing, int) or missing:
        zeros = ops.zeros((batch, heads, missing, size), dtype=x.dtype)
        x = ops.concatenate([x, zeros], axis=2)
    return ops.reshape(x, (batch, heads, (length + missing) // chunk, chunk, size))


def _join_chunks(x: Tensor, length: int | Tensor) -> Tensor:
    """Reshape `(B, N, chunks, chunk, H)` to `(B, N, T, H)`, without the padding."""
    batch, heads, chunks, chunk, size = ops.shape(x)
    return ops.reshape(x, (batch, heads, chunks * chunk, size))[:, :, :length]


def _running_sums(new: Tensor, previous: Tensor | None) -> Tensor:
    """Return the sums before each chunk and after the last, `(B, N, chunks + 1, ...)`.

    Args:
        new: The sum over each chunk, `(B, N, chunks, ...)`.
        previous: The sum over the previous tokens, `(B, N, ...)`, or `None`.
    """
    if previous is None:
        previous = ops.zeros_like(new[:, :, 0])
    both = ops.concatenate([ops.expand_dims(previous, 2), new], axis=2)
    return ops.cumsum(both, axis=2)


def _features(
    query: Tensor, key: Tensor, padding_mask: Tensor | None, feature_map: str
) -> tuple[Tensor, Tensor]:
    """Return the features of queries and keys, `(B, N, T, H)`; zero for padding."""
    features = feature_function(feature_map)
    if padding_mask is not None:  # Padding may hold NaN or infinity.
        keep = ops.expand_dims(ops.cast(padding_mask, "bool"), (2, 3))
        key = ops.where(keep, key, ops.zeros_like(key))
    query, key = (
        features(ops.cast(transpose_heads(x), "float32")) for x in (query, key)
    )
    if padding_mask is not None:
        keep = ops.expand_dims(ops.cast(padding_mask, "bool"), (1, 3))
        key = ops.where(keep, key, ops.zeros_like(key))
    return query, key


def _values(value: Tensor, padding_mask: Tensor | None) -> Tensor:
    """Return the values as float32 `(B, N, S, V)`, zero for padding."""
    if padding_mask is not None:
        keep = ops.expand_dims(ops.cast(padding_mask, "bool"), (2, 3))
        value = ops.where(keep, value, ops.zeros_like(value))
    return ops.cast(transpose_heads(value), "float32")


def _mask_later_keys(weights: Tensor) -> Tensor:
    """Set the weights of keys after their query to zero, in `(..., T, T)`."""
    positions = ops.arange(ops.shape(weights)[-1])
    allowed = ops.expand_dims(positions, 0) <= ops.expand_dims(positions, 1)
    return ops.where(allowed, weights, ops.zeros_like(weights))


def _matmul_vector(query: Tensor, normalizer: Tensor) -> Tensor:
    """Return the product `(..., T, 1)` of `(..., T, H)` and `(..., H)`."""
    return ops.matmul(query, ops.expand_dims(normalizer, -1))


def _divide(sums: Tensor, totals: Tensor) -> Tensor:
    """Return `sums / totals`; zero, with a gradient of zero, if `totals` is zero."""
    is_positive = totals > _MIN_SUM
    return ops.where(is_positive, sums / ops.where(is_positive, totals, 1.0), 0.0)


def _transpose(x: Tensor) -> Tensor:
    return ops.swapaxes(x, -1, -2)


def _check_shapes(query: Tensor, key: Tensor, value: Tensor, causal: bool) -> None:
    for name, x in ("query", query), ("key", key), ("value", value):
        if len(x.shape) != 4:
            raise ValueError(
                f"`{name}` must be of shape (batch, length, heads, size). "
                f"Received: {name} of shape {tuple(x.shape)}"
            )
    lengths = query.shape[1], key.shape[1]
    if causal and None not in lengths and lengths[0] != lengths[1]:
        raise ValueError(
            "Causal linear attention requires queries and keys of the same length. "
            f"Received: query of shape {tuple(query.shape)}, "
            f"key of shape {tuple(key.shape)}"
        )
