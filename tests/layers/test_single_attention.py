"""`DotProductAttention` and `AdditiveAttention` against Keras's layers and NumPy."""

import keras
import numpy as np
import pytest
from numpy_attention import attention
from tensors import assert_close, fill_weights, normal

from keras_attn import layers

QUERY, VALUE, KEY = normal(2, 5, 17), normal(2, 7, 13, seed=1), normal(2, 7, 17, seed=2)
DENSE = np.random.default_rng(3).random((2, 5, 7)) < 0.5
DENSE[0, 2] = False  # nothing to attend to
PADDING = np.array([[True] * 7, [True] * 4 + [False] * 3])


def softmax_mean(scores, value, allowed):
    """Float64, row by row; zeros where nothing is allowed."""
    weights = np.zeros(scores.shape)
    for row in np.ndindex(scores.shape[:2]):
        seen = np.flatnonzero(allowed[row])
        if seen.size:
            e = np.exp(scores[row][seen] - scores[row][seen].max())
            weights[row][seen] = e / e.sum()
    return weights @ np.asarray(value, "float64"), weights


@pytest.mark.every_backend
@pytest.mark.parametrize(
    "masks", [{}, {"attention_mask": DENSE, "padding_mask": PADDING}]
)
@pytest.mark.parametrize("score", ["dot", "scaled", "general"])
def test_dot_products_equal_numpy(score, masks):
    layer = layers.DotProductAttention(score)
    layer.build(QUERY.shape, VALUE.shape, KEY.shape)
    fill_weights(layer)
    key = np.asarray(KEY, "float64")
    if score == "general":
        key = key @ np.asarray(layer.get_weights()[0], "float64")
    allowed = (DENSE & PADDING[:, None]) if masks else np.ones((2, 5, 7), bool)
    expected, weights = attention(
        QUERY[:, :, None],
        key[:, :, None],
        VALUE[:, :, None],
        allowed[:, None],
        scale=17**-0.5 if score == "scaled" else 1.0,
    )
    output, scores = layer(QUERY, VALUE, KEY, **masks, return_attention_scores=True)
    assert_close(output, expected[:, :, 0])
    assert_close(scores, weights[:, 0])
    assert_close(layer(QUERY, VALUE, KEY, **masks), expected[:, :, 0])


@pytest.mark.every_backend
@pytest.mark.parametrize(
    "masks", [{}, {"attention_mask": DENSE, "padding_mask": PADDING}]
)
@pytest.mark.parametrize("use_bias", [False, True])
def test_additive_scores_equal_numpy(use_bias, masks):
    layer = layers.AdditiveAttention(11, use_bias=use_bias)
    layer.build(QUERY.shape, VALUE.shape)
    fill_weights(layer)
    weights = {w.path.split("/", 1)[1]: np.asarray(w, "float64") for w in layer.weights}
    query = QUERY @ weights["query/kernel"] + weights.get("query/bias", 0.0)
    key = VALUE @ weights["key/kernel"]
    sums = np.tanh(query[:, :, None] + key[:, None]) @ weights["vector"]
    allowed = (DENSE & PADDING[:, None]) if masks else np.ones((2, 5, 7), bool)
    expected, weights = softmax_mean(sums, VALUE, allowed)
    output, scores = layer(QUERY, VALUE, **masks, return_attention_scores=True)
    assert_close(output, expected)
    assert_close(scores, weights)


@pytest.mark.parametrize("causal", [False, True])
def test_dot_products_equal_keras(causal):
    query = normal(2, 7, 17)
    ours, theirs = layers.DotProductAttention(), keras.layers.Attention()
    expected, weights = theirs(
        [query, VALUE, KEY],
        mask=[None, PADDING],
        return_attention_scores=True,
        use_causal_mask=causal,
    )
    output, scores = ours(
        query,
        VALUE,
        KEY,
        padding_mask=PADDING,
        return_attention_scores=True,
        use_causal_mask=causal,
    )
    assert_close(output, expected)
    assert_close(scores, weights)


def test_additive_scores_equal_keras():
    ours, theirs = layers.AdditiveAttention(17), keras.layers.AdditiveAttention()
    ours.build(QUERY.shape, VALUE.shape, KEY.shape)
    theirs.build([QUERY.shape, VALUE.shape, KEY.shape])
    fill_weights(theirs)
    (vector,) = theirs.get_weights()
    for weight in ours.weights:
        weight.assign(vector if "vector" in weight.path else np.eye(17))
    expected, weights = theirs(
        [QUERY, VALUE, KEY], mask=[None, PADDING], return_attention_scores=True
    )
    output, scores = ours(
        QUERY, VALUE, KEY, padding_mask=PADDING, return_attention_scores=True
    )
    assert_close(output, expected)
    assert_close(scores, weights)


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"`score` must be one of .*'scaled'.*concat"):
        layers.DotProductAttention("concat")
    with pytest.raises(
        ValueError, match="query and key of the same width; use score='gene"
    ):
        layers.DotProductAttention()(QUERY, VALUE)
    with pytest.raises(ValueError, match="`units` must be a positive int"):
        layers.AdditiveAttention(0)
    with pytest.raises(ValueError, match="`padding_mask` must be a bool"):
        layers.AdditiveAttention()(QUERY, VALUE, padding_mask=PADDING.astype("float32"))
