"""Cached equals uncached for stacks that were drawn, not designed.

`DRAWS=500 pytest tests/decoding/test_random_stacks.py` draws more of them.
"""

import os

import hypothesis
import keras
import numpy as np
import pytest
from hypothesis import strategies
from keras import ops
from stacked_models import full_logits, ids, stepped_logits
from tensors import fill_weights

from keras_attn import layers
from keras_attn.decoding import step_model

V, LENGTH, SOURCE, BATCH = 11, 6, 4, 2
TOLERANCE = 1e-4  # A normalization of two channels enlarges rounding errors.


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


@keras.saving.register_keras_serializable("tests")
class Gate(keras.layers.Layer):
    """A product with a weight that is zero at first."""

    def build(self, input_shape):
        self.gate = self.add_weight(shape=(), initializer="zeros")

    def call(self, x):
        return x * self.gate


@keras.saving.register_keras_serializable("tests")
class Occurrences(keras.layers.Layer):
    """The number of times that a token id occurred before, which is rare."""

    def call(self, tokens):
        return ops.cumsum(ops.cast(ops.equal(tokens, V - 1), "int32"), axis=1)


@keras.saving.register_keras_serializable("tests")
class FarBack(keras.layers.Layer):
    """The vector of five positions before, zero if there is none."""

    def call(self, x):
        return ops.pad(x, [[0, 0], [5, 0], [0, 0]])[:, : ops.shape(x)[1]]


@keras.saving.register_keras_serializable("tests")
class ClippedNorm(keras.layers.Layer):
    """Sequences whose norm over all positions is at most `limit`."""

    def __init__(self, limit, **kwargs):
        super().__init__(**kwargs)
        self.limit = limit

    def call(self, x):
        norm = ops.sqrt(ops.sum(ops.square(x), axis=(1, 2), keepdims=True))
        return x * ops.minimum(1.0, self.limit / (norm + 1e-9))


def turned(function):
    """A function of `(B, D, T)`, applied to `(B, T, D)`."""
    return lambda x: ops.transpose(function(ops.transpose(x, (0, 2, 1))), (0, 2, 1))


MIXERS = {
    "mean": lambda x: ops.mean(x, axis=1, keepdims=True),
    "sum": lambda x: ops.cumsum(x, axis=1),
    "reverse": lambda x: ops.flip(x, axis=1),
    "softmax": turned(ops.softmax),
    "softmax layer": turned(lambda x: keras.layers.Softmax(axis=-1)(x)),
    "pooling": lambda x: keras.layers.AveragePooling1D(3, 1, padding="same")(x),
    "convolution": lambda x: keras.layers.Conv1D(
        x.shape[-1], 2, padding="causal", dilation_rate=4
    )(x),
    "far back": lambda x: FarBack()(x),
    "shift": lambda x: keras.layers.Cropping1D((0, 1))(
        keras.layers.ZeroPadding1D((1, 0))(x)
    ),
    "large values": lambda x: ClippedNorm(200.0)(x),
    "products": lambda x: ops.matmul(ops.matmul(x, ops.transpose(x, (0, 2, 1))), x),
    "attention": lambda x: keras.layers.MultiHeadAttention(1, 2)(x, x),
    "batch": lambda x: keras.layers.GroupNormalization(1)(x),
    "backwards": lambda x: keras.layers.GRU(
        x.shape[-1], return_sequences=True, go_backwards=True
    )(x),
}


def mixed(draw, x, tokens):
    """Positions mixed: behind a gate that is shut, or for one token id only."""
    if draw(strategies.integers(0, 3)) == 0:
        return x + keras.layers.Embedding(LENGTH + 1, x.shape[-1])(
            Occurrences()(tokens)
        )
    gate = keras.layers.Dense(x.shape[-1], kernel_initializer="zeros")
    if draw(BOOLEANS):
        gate = Gate()
    return x + gate(MIXERS[draw(strategies.sampled_from(sorted(MIXERS)))](x))


def stack(draw, is_mixed=False):
    """A model with random weights; its inputs are a target and maybe more.

    With `is_mixed` positions are mixed somewhere, and the weights are the initial ones.
    """
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
    num_parts = draw(strategies.integers(1, 3))
    where = draw(strategies.integers(0, num_parts - 1)) if is_mixed else None
    for i in range(num_parts):
        x = draw(strategies.sampled_from(PARTS))(draw, x, context)
        if i == where:
            x = mixed(draw, x, target)
    model = keras.Model({t.name: t for t in inputs}, keras.layers.Dense(V)(x))
    return model if is_mixed else fill_weights(model, draw(SEEDS))


@strategies.composite
def cuts(draw):
    """A prompt, then runs of one, or now and then of two."""
    sizes = [draw(strategies.integers(1, LENGTH))]
    while sum(sizes) < LENGTH:
        sizes.append(min(draw(SIZES), LENGTH - sum(sizes)))
    return sizes


# Keras warns of masks that nested models drop.
pytestmark = pytest.mark.filterwarnings("ignore:.*was passed an input with a mask")

draws = hypothesis.settings(
    max_examples=int(os.environ.get("DRAWS", 20)),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(hypothesis.HealthCheck),
    phases=[hypothesis.Phase.generate],  # To shrink takes hundreds of models.
)


def difference(model, step, sizes, seed):
    """The largest difference of the logits, relative to the largest logit."""
    rng = np.random.default_rng(seed)
    inputs = {
        tensor.name: rng.integers(
            0, V, (BATCH, SOURCE if tensor.name == "source" else LENGTH)
        ).astype("int32")
        for tensor in model.inputs
    }
    expected = full_logits(model, inputs)
    found = stepped_logits(step, inputs, sizes)
    return np.abs(found - expected).max() / max(1.0, np.abs(expected).max())


@pytest.mark.slow
@draws
@hypothesis.given(strategies.data(), cuts(), SEEDS)
def test_cached_equals_uncached(data, sizes, seed):
    # In the test, since layers draw random numbers and strategies must not.
    model = stack(data.draw)
    assert difference(model, step_model(model, LENGTH), sizes, seed) < TOLERANCE


@pytest.mark.slow
@draws
@hypothesis.given(strategies.data(), cuts(), SEEDS)
def test_mixed_positions_are_refused(data, sizes, seed):
    model = stack(data.draw, is_mixed=True)
    try:
        step = step_model(model, LENGTH)
    except ValueError as error:
        assert "Received" in str(error) or "position" in str(error)
        return
    # Accepted, thus right: also if the gate opens.
    fill_weights(model, seed)
    assert difference(model, step, sizes, seed) < TOLERANCE
