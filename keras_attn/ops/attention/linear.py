"""Linear attention: weights that are products of features, so that sums can be kept."""

from keras import ops

from keras_attn.ops.attention.softmax import swap

__all__ = [
    "feature_function",
    "linear_attention",
    "linear_attention_step",
    "linear_attention_weights",
]

# Tokens of a chunk. The longer it is the more is spent on its weights, the shorter on
# the states, one a chunk; with heads of 64 on a CPU the two balance here.
CHUNK = 128
# Below this, a sum of weights counts as none: dividing by it would overflow.
LEAST = 1e-30


def _elu(x):
    # `elu(x) + 1`, but without the digits lost where that is near zero.
    return ops.relu(x) + ops.exp(ops.minimum(x, 0.0))


def _relu(x):
    return ops.relu(x) + 1e-3


FEATURE_MAPS = {"elu": _elu, "relu": _relu}


def feature_function(feature_map):
    """The function of that name, positive everywhere; a clear error for others."""
    if feature_map not in tuple(FEATURE_MAPS):
        raise ValueError(
            f"`feature_map` must be one of {tuple(FEATURE_MAPS)}. "
            f"Received: {feature_map=}"
        )
    return FEATURE_MAPS[feature_map]


def linear_attention(
    query, key, value, padding_mask=None, causal=False, feature_map="elu"
):
    """`phi(query) . sum(phi(key) value) / phi(query) . sum(phi(key))`, head by head.

    Time and memory grow linearly with the number of tokens: the weights are never
    formed. The causal form goes chunk by chunk: in a chunk by its weights, from one
    chunk to the next by the sums so far. Features and sums are float32.

    Args:
        query: floats `(B, T, N, H)`. No scale is applied.
        key: floats `(B, S, N, H)`.
        value: floats `(B, S, N, V)`.
        padding_mask: bool `(B, S)`, True = may be attended to, or None.
        causal: bool, whether query `i` sees keys `j <= i` only; T and S are then equal.
        feature_map: `"elu"`, `elu(x) + 1` as in the paper, or `"relu"`,
            `relu(x) + 0.001` as in Performer (Choromanski et al. 2020,
            https://arxiv.org/abs/2009.14794).

    Returns:
        `(B, T, N, V)` of the dtype of `value`; zero where a query has nothing to attend
        to.

    Raises:
        ValueError: for tensors of another rank, another feature map, or a causal call
            with queries and keys known to be of different numbers.

    Example:
        >>> x = keras.random.normal((2, 1000, 8, 64))
        >>> linear_attention(x, x, x, causal=True).shape
        (2, 1000, 8, 64)

    Reference:
        Katharopoulos et al. 2020, "Transformers are RNNs: Fast Autoregressive
        Transformers with Linear Attention", sections 3.2 and 3.3
        (https://arxiv.org/abs/2006.16236).
    """
    _check(query, key, value, causal)
    query, key = _features(query, key, padding_mask, feature_map)
    values = ops.cast(swap(value), "float32")
    if causal:
        sums, total, _ = _in_chunks(query, key, values)
    else:
        sums = ops.matmul(query, ops.matmul(_transposed(key), values))
        total = _products(query, ops.sum(key, axis=2))
    return ops.cast(swap(_ratio(sums, total)), value.dtype)


def linear_attention_step(
    state, normalizer, query, key, value, padding_mask=None, feature_map="elu"
):
    """The causal form for the next T tokens, after others of which the sums are kept.

    Args:
        state: float32 `(B, N, H, V)`, the sum of `phi(key) value` so far, at first 0.
        normalizer: float32 `(B, N, H)`, the sum of `phi(key)` so far, at first 0.
        query, key, value, feature_map: see `linear_attention`, of the T tokens.
        padding_mask: bool `(B, T)`, likewise.

    Returns:
        A triple of what `linear_attention` gives for the tokens, and the sums with
        them: `(output, state, normalizer)`.

    Raises:
        ValueError: as `linear_attention`.
    """
    _check(query, key, value, causal=True)
    query, key = _features(query, key, padding_mask, feature_map)
    values = ops.cast(swap(value), "float32")
    before = ops.cast(state, "float32"), ops.cast(normalizer, "float32")
    sums, total, after = _in_chunks(query, key, values, before)
    return ops.cast(swap(_ratio(sums, total)), value.dtype), *after


def linear_attention_weights(
    query, key, padding_mask=None, causal=False, feature_map="elu"
):
    """The weights that `linear_attention` implies and never forms.

    Args:
        query, key, padding_mask, causal, feature_map: see `linear_attention`.

    Returns:
        float32 `(B, N, T, S)`. Rows sum to one, or to zero where a query has nothing to
        attend to.

    Raises:
        ValueError: as `linear_attention`.
    """
    _check(query, key, key, causal)
    query, key = _features(query, key, padding_mask, feature_map)
    weights = ops.matmul(query, _transposed(key))
    if causal:
        weights = _triangle(weights)
    return _ratio(weights, ops.sum(weights, axis=-1, keepdims=True))


def _in_chunks(query, key, value, before=None):
    """Sums of the causal form, before the division.

    Args:
        query, key: features `(B, N, T, H)`.
        value: `(B, N, T, V)`.
        before: pair of the sums of the tokens before, `(B, N, H, V)` and `(B, N, H)`,
            or None.

    Returns:
        A triple of the weighted sums of values `(B, N, T, V)`, the sums of weights
        `(B, N, T, 1)`, and a pair: `before` with these tokens, or None for None.
    """
    length = ops.shape(query)[2]
    chunk = max(1, min(length, CHUNK)) if isinstance(length, int) else CHUNK
    # What a chunk lacks is keys without features, which add nothing.
    query, key, value = (_chunks(x, chunk) for x in (query, key, value))
    weights = _triangle(ops.matmul(query, _transposed(key)))
    sums = ops.matmul(weights, value)
    total = ops.sum(weights, axis=-1, keepdims=True)
    after = None
    if before is not None or query.shape[2] != 1:
        state = ops.matmul(_transposed(key), value)
        normalizer = ops.sum(key, axis=3)
        seen = [
            _running(new, old)
            for new, old in zip((state, normalizer), before or (None, None))
        ]
        state, normalizer = (x[:, :, :-1] for x in seen)
        sums = sums + ops.matmul(query, state)
        total = total + _products(query, normalizer)
        if before is not None:
            after = tuple(x[:, :, -1] for x in seen)
    sums, total = (_joined(x, length) for x in (sums, total))
    return sums, total, after


def _chunks(x, chunk):
    """`(B, N, T, H)` to `(B, N, chunks, chunk, H)`, the last one filled with zeros."""
    rows, heads, length, size = ops.shape(x)
    lacking = -length % chunk
    if not isinstance(lacking, int) or lacking:
        zeros = ops.zeros((rows, heads, lacking, size), dtype=x.dtype)
        x = ops.concatenate([x, zeros], axis=2)
    return ops.reshape(x, (rows, heads, (length + lacking) // chunk, chunk, size))


def _joined(x, length):
    """Back to `(B, N, T, H)`."""
    rows, heads, chunks, chunk, size = ops.shape(x)
    return ops.reshape(x, (rows, heads, chunks * chunk, size))[:, :, :length]


def _running(new, before):
    """Sums over the chunks before each, and over all: `(B, N, chunks + 1, ...)`."""
    if before is None:
        before = ops.zeros_like(new[:, :, 0])
    both = ops.concatenate([ops.expand_dims(before, 2), new], axis=2)
    return ops.cumsum(both, axis=2)


def _features(query, key, padding_mask, feature_map):
    """Features `(B, N, T, H)` of queries and keys; none of a key that is padding."""
    features = feature_function(feature_map)
    query, key = (features(ops.cast(swap(x), "float32")) for x in (query, key))
    if padding_mask is not None:
        keep = ops.expand_dims(ops.cast(padding_mask, "bool"), (1, 3))
        key = ops.where(keep, key, ops.zeros_like(key))
    return query, key


def _triangle(weights):
    """Weights of queries over keys of the same span, without those of later keys."""
    length = ops.shape(weights)[-1]
    place = ops.arange(length)
    seen = ops.expand_dims(place, 0) <= ops.expand_dims(place, 1)
    return ops.where(seen, weights, ops.zeros_like(weights))


def _products(query, normalizer):
    """`(..., T, H)` times `(..., H)`: `(..., T, 1)`."""
    return ops.matmul(query, ops.expand_dims(normalizer, -1))


def _ratio(sums, total):
    """`sums / total`, and zero with a gradient of zero where there is no weight."""
    some = total > LEAST
    return ops.where(some, sums / ops.where(some, total, 1.0), 0.0)


def _transposed(x):
    return ops.swapaxes(x, -1, -2)


def _check(query, key, value, causal):
    for name, x in ("query", query), ("key", key), ("value", value):
        if len(x.shape) != 4:
            raise ValueError(
                f"`{name}` must be of shape (batch, length, heads, size). "
                f"Received: {name} of shape {tuple(x.shape)}"
            )
    lengths = query.shape[1], key.shape[1]
    if causal and None not in lengths and lengths[0] != lengths[1]:
        raise ValueError(
            "Causal linear attention takes a query for each key. Received: query of "
            f"shape {tuple(query.shape)}, key of shape {tuple(key.shape)}"
        )
