"""The attention layers against the loops of `numpy_attention`, in float64."""

import keras
import numpy as np
import pytest
from numpy_attention import multi_head_attention
from tensors import array, assert_close, fill_weights, lengths_mask, normal

from keras_attn import layers

BATCH, QUERIES, KEYS, HEADS, KEY_DIM, VALUE_DIM = 2, 5, 7, 3, 11, 13
QUERY_WIDTH, VALUE_WIDTH, KEY_WIDTH, OUTPUT_WIDTH = 17, 19, 23, 29
KERNELS = ["auto", "full", "fused"]


def inputs():
    return (
        normal(BATCH, QUERIES, QUERY_WIDTH, seed=1),
        normal(BATCH, KEYS, VALUE_WIDTH, seed=2),
        normal(BATCH, KEYS, KEY_WIDTH, seed=3),
    )


def random_mask(*shape):
    """Bool, true somewhere in each row."""
    keep = np.random.default_rng(4).random(shape) < 0.5
    keep[..., 0] = True
    return keep


def causal(queries, keys):
    return np.tril(np.ones((1, 1, queries, keys), bool))


@pytest.mark.every_backend
@pytest.mark.parametrize("kernel", KERNELS)
def test_all_sizes_differ(kernel):
    layer = layers.MultiHeadAttention(
        HEADS,
        KEY_DIM,
        VALUE_DIM,
        output_shape=OUTPUT_WIDTH,
        attention_kernel=kernel,
    )
    query, value, key = inputs()
    layer.build(query.shape, value.shape, key.shape)
    fill_weights(layer)
    padding = lengths_mask([7, 3], KEYS)
    mask = random_mask(BATCH, HEADS, QUERIES, KEYS)
    mask[..., 0] = True
    masks = {"padding_mask": padding, "attention_mask": mask, "use_causal_mask": True}
    if (kernel, keras.backend.backend()) == ("fused", "jax"):
        with pytest.raises(ValueError, match="does not support different head sizes"):
            layer(query, value, key, **masks)
        return
    allowed = padding[:, None, None] & mask & causal(QUERIES, KEYS)
    expected, weights = multi_head_attention(
        layer.get_weights(), query, value, key, allowed
    )
    assert_close(layer(query, value, key, **masks), expected)
    output, scores = layer(query, value, key, **masks, return_attention_scores=True)
    assert_close(output, expected)
    assert_close(scores, weights)
    plain, _ = multi_head_attention(layer.get_weights(), query, value, key)
    assert_close(layer(query, value, key), plain)


def test_without_biases():
    layer = layers.MultiHeadAttention(HEADS, KEY_DIM, VALUE_DIM, use_bias=False)
    query, value, key = inputs()
    layer.build(query.shape, value.shape, key.shape)
    fill_weights(layer)
    expected, _ = multi_head_attention(layer.get_weights(), query, value, key)
    assert_close(layer(query, value, key), expected)


@pytest.mark.parametrize("mask", ["none", "padding", "dense", "per_head", "causal"])
def test_self_attention(mask):
    width = 15
    layer = layers.MultiHeadSelfAttention(HEADS)
    x = normal(BATCH, QUERIES, width)
    layer.build(x.shape)
    fill_weights(layer)
    padding = lengths_mask([5, 2], QUERIES)
    dense = random_mask(BATCH, QUERIES, QUERIES)
    per_head = random_mask(BATCH, HEADS, QUERIES, QUERIES)
    arguments, allowed = {
        "none": ({}, True),
        "padding": ({"padding_mask": padding}, padding[:, None, None]),
        "dense": ({"attention_mask": dense}, dense[:, None]),
        "per_head": ({"attention_mask": per_head}, per_head),
        "causal": ({"use_causal_mask": True}, causal(QUERIES, QUERIES)),
    }[mask]
    expected, weights = multi_head_attention(layer.get_weights(), x, x, x, allowed)
    output, scores = layer(x, **arguments, return_attention_scores=True)
    assert_close(output, expected)
    assert_close(scores, weights)
    assert_close(layer(x, **arguments), expected)


def test_cross_attention():
    layer = layers.CrossAttention(HEADS, KEY_DIM)
    query, context, _ = inputs()
    layer.build(query.shape, context.shape)
    fill_weights(layer)
    padding = lengths_mask([7, 4], KEYS)
    mask = random_mask(BATCH, QUERIES, KEYS)
    expected, weights = multi_head_attention(
        layer.get_weights(),
        query,
        context,
        allowed=padding[:, None, None] & mask[:, None],
    )
    output, scores = layer(
        query,
        context,
        padding_mask=padding,
        attention_mask=mask,
        return_attention_scores=True,
    )
    assert_close(output, expected)
    assert_close(scores, weights)


@pytest.mark.parametrize("kernel", KERNELS)
def test_causal_with_more_queries_than_keys_counts_from_the_start(kernel):
    layer = layers.MultiHeadAttention(HEADS, KEY_DIM, attention_kernel=kernel)
    value, query, _ = inputs()
    layer.build(query.shape, value.shape)
    fill_weights(layer)
    expected, _ = multi_head_attention(
        layer.get_weights(), query, value, allowed=causal(KEYS, QUERIES)
    )
    assert_close(layer(query, value, use_causal_mask=True), expected)


@pytest.mark.parametrize("size", ["batch", "queries", "keys", "heads", "key_dim"])
def test_sizes_of_one(size):
    one = dict.fromkeys(["batch", "queries", "keys", "heads", "key_dim"], 3)
    one[size] = 1
    layer = layers.MultiHeadAttention(one["heads"], one["key_dim"])
    query = normal(one["batch"], one["queries"], 5, seed=1)
    value = normal(one["batch"], one["keys"], 7, seed=2)
    layer.build(query.shape, value.shape)
    fill_weights(layer)
    expected, weights = multi_head_attention(
        layer.get_weights(),
        query,
        value,
        allowed=causal(*[one["queries"], one["keys"]]),
    )
    output, scores = layer(
        query, value, use_causal_mask=True, return_attention_scores=True
    )
    assert_close(output, expected)
    assert_close(scores, weights)


def test_scale_is_of_the_key_dim():
    """Not of the width or of the value dim: large scores make the difference plain."""
    layer = layers.MultiHeadSelfAttention(1, key_dim=4, value_dim=3)
    x = 5 * normal(1, 3, 6)
    layer.build(x.shape)
    fill_weights(layer)
    weights = layer.get_weights()
    expected, _ = multi_head_attention(weights, x, x)
    assert_close(layer(x), expected)


@pytest.mark.every_backend
def test_softmax_is_in_float32():
    """In float16 the exponentials of such scores would overflow or vanish."""
    layer = layers.MultiHeadSelfAttention(1, key_dim=2, dtype="mixed_float16")
    x = np.array([[[100.0, 0.0], [0.0, 100.0], [99.0, 1.0]]], "float32")
    layer.build(x.shape)
    identity = np.eye(2, dtype="float32")
    for weight in layer.weights:
        value = identity.reshape(weight.shape) if len(weight.shape) == 3 else 0.0
        weight.assign(np.broadcast_to(value, weight.shape))
    output, scores = layer(x, return_attention_scores=True)
    assert keras.backend.standardize_dtype(scores.dtype) == "float16"
    assert np.isfinite(array(output)).all()
    np.testing.assert_allclose(array(scores).sum(-1), 1.0, atol=1e-3)
    np.testing.assert_allclose(array(scores)[0, 0].argmax(-1), [0, 1, 0])


def test_dropout_keeps_the_mean_and_the_scores():
    layer = layers.MultiHeadSelfAttention(HEADS, KEY_DIM, dropout=0.4, seed=3)
    x = normal(64, QUERIES, QUERY_WIDTH)
    layer.build(x.shape)
    fill_weights(layer)
    still, scores = layer(x, return_attention_scores=True)
    runs = [layer(x, training=True, return_attention_scores=True) for _ in range(30)]
    moved = np.mean([array(output) for output, _ in runs], axis=0)
    assert not np.allclose(array(runs[0][0]), array(still), atol=0.1)
    assert not np.allclose(array(runs[0][0]), array(runs[1][0]), atol=0.1)
    spread = array(still).std()
    assert np.abs(moved - array(still)).mean() < 0.2 * spread
    # The signed error averages over 64 rows as well, so a wrong factor shows.
    ratio = (moved * array(still)).sum() / (array(still) ** 2).sum()
    assert abs(ratio - 1) < 0.03
    assert scores.shape == (64, HEADS, QUERIES, QUERIES)
    assert_close(runs[0][1], scores)


def test_dropout_rate_is_the_share_of_zeros():
    """A value of ones and an identity output show the dropped weights as they are."""
    layer = layers.MultiHeadAttention(1, key_dim=1, dropout=0.25, seed=5)
    query, value = np.zeros((400, 1, 1), "float32"), np.ones((400, 1, 1), "float32")
    layer.build(query.shape, value.shape)
    for weight in layer.weights:
        weight.assign(np.full(weight.shape, float(weight.name == "kernel")))
    output = array(layer(query, value, training=True)).ravel()
    assert set(np.round(output, 4)) == {0.0, np.float32(1.3333)}
    assert abs((output == 0).mean() - 0.25) < 0.06


def test_dropout_is_off_by_default_and_repeats_with_its_seed():
    x = normal(BATCH, QUERIES, 15)
    first = layers.MultiHeadSelfAttention(HEADS, dropout=0.5, seed=11)
    second = layers.MultiHeadSelfAttention(HEADS, dropout=0.5, seed=11)
    for layer in (first, second):
        layer.build(x.shape)
        fill_weights(layer)
    plain, _ = multi_head_attention(first.get_weights(), x, x)
    assert_close(first(x), plain)
    assert_close(first(x, training=False), plain)
    assert_close(first(x, training=True), second(x, training=True), 1e-6)


def test_permutation_equivariance_without_positions():
    layer = layers.MultiHeadSelfAttention(HEADS)
    x = normal(BATCH, QUERIES, 15)
    layer.build(x.shape)
    fill_weights(layer)
    order = np.random.default_rng(0).permutation(QUERIES)
    assert_close(array(layer(x))[:, order], layer(x[:, order]))
    padding = lengths_mask([5, 3], QUERIES)
    assert_close(
        array(layer(x, padding_mask=padding))[:, order],
        layer(x[:, order], padding_mask=padding[:, order]),
    )
