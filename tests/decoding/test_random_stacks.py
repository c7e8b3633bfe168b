"""Cached equals uncached for stacks that were drawn, not designed."""

import hypothesis
import keras
import numpy as np
from hypothesis import strategies
from keras import ops
from stacked_models import full_logits, ids, stepped_logits
from tensors import fill_weights

from keras_attn import layers
from keras_attn.decoding import step_model

V, LENGTH, SOURCE, BATCH = 11, 6, 4, 2


def decoder(draw, x, context):
    block = layers.TransformerDecoder(
        draw(strategies.sampled_from([3, 5])), 2, normalize_first=draw(BOOLEANS)
    )
    inputs = (x,) if context is None else (x, context)
    x = block(*inputs)
    return block(x, *inputs[1:]) if draw(BOOLEANS) else x  # called twice


def self_attention(draw, x, context):
    layer = layers.MultiHeadSelfAttention(2, key_dim=draw(SIZES), value_dim=draw(SIZES))
    return x + layer(x, use_causal_mask=True)


def general_attention(draw, x, context):
    value = context if context is not None and draw(BOOLEANS) else x
    layer = layers.MultiHeadAttention(draw(SIZES), key_dim=draw(SIZES))
    return x + layer(x, value, use_causal_mask=value is x)


def cross_attention(draw, x, context):
    if context is None:
        return layers.FeedForward(3, activation="tanh")(x)
    layer = layers.CrossAttention(draw(SIZES), key_dim=2)
    return keras.layers.Add()([x, layer(x, context)])


def recurrence(draw, x, context):
    kind = draw(strategies.sampled_from([keras.layers.GRU, keras.layers.LSTM]))
    return kind(draw(SIZES) * 2, return_sequences=True)(x)


def normalized(draw, x, context):
    return keras.layers.LayerNormalization()(keras.layers.Dense(draw(SIZES) * 2)(x))


def two_branches(draw, x, context):
    parts = [PARTS[draw(PART_NUMBERS)](draw, x, context) for _ in "ab"]
    return keras.layers.Concatenate()(parts)


def nested_model(draw, x, context):
    inner = keras.Input((None, x.shape[-1]))
    y = self_attention(draw, layers.SinusoidalPositionEmbedding()(inner), None)
    model = keras.Model(inner, ops.tanh(y))
    return model(model(x)) if draw(BOOLEANS) else model(x)


PARTS = [
    decoder,
    self_attention,
    general_attention,
    cross_attention,
    recurrence,
    normalized,
    nested_model,
    two_branches,
]
BOOLEANS = strategies.booleans()
SIZES = strategies.sampled_from([1, 2, 3])
SEEDS = strategies.integers(0, 99)
PART_NUMBERS = strategies.integers(0, len(PARTS) - 2)  # no branches in branches


def embedded(draw, tokens, width):
    x = keras.layers.Embedding(V, width, mask_zero=draw(BOOLEANS))(tokens)
    kinds = ["none", "sinusoids", "learned"]
    kind = draw(strategies.sampled_from(kinds))
    if kind == "sinusoids":
        return layers.SinusoidalPositionEmbedding()(x)
    return layers.PositionEmbedding(LENGTH)(x) if kind == "learned" else x


def stack(draw):
    """A model with random weights; its inputs are a target and maybe more."""
    target = ids("target")
    inputs, context = [target], None
    x = embedded(draw, target, draw(SIZES) * 2)
    if draw(BOOLEANS):
        inputs.append(ids("source"))
        context = embedded(draw, inputs[-1], 4)
        if draw(BOOLEANS):
            context = layers.TransformerEncoder(3, 2)(context)
    if draw(BOOLEANS):
        inputs.append(ids("segments"))
        x = x + keras.layers.Embedding(V, x.shape[-1])(inputs[-1])
    for _ in range(draw(strategies.integers(1, 3))):
        x = draw(strategies.sampled_from(PARTS))(draw, x, context)
    model = keras.Model({t.name: t for t in inputs}, keras.layers.Dense(V)(x))
    return fill_weights(model, draw(SEEDS))


@strategies.composite
def cuts(draw):
    """A prompt, then runs of one, or now and then of two."""
    sizes = [draw(strategies.integers(1, LENGTH))]
    while sum(sizes) < LENGTH:
        sizes.append(min(draw(SIZES), LENGTH - sum(sizes)))
    return sizes


@hypothesis.settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[hypothesis.Phase.generate],  # To shrink takes hundreds of models.
)
@hypothesis.given(strategies.data(), cuts(), SEEDS)
def test_cached_equals_uncached(data, sizes, seed):
    # In the test, since layers draw random numbers and strategies must not.
    model = stack(data.draw)
    rng = np.random.default_rng(seed)
    inputs = {
        tensor.name: rng.integers(
            0, V, (BATCH, SOURCE if tensor.name == "source" else LENGTH)
        ).astype("int32")
        for tensor in model.inputs
    }
    step = step_model(model, LENGTH, validate=False)
    expected = full_logits(model, inputs)
    found = stepped_logits(step, inputs, sizes)
    scale = max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * scale)
