"""The layers under test: how each is made, and what goes in."""

import dataclasses
import inspect
import typing

import keras
import numpy as np

from keras_attn import layers

# Distinct primes as far as the heads allow, so that a swapped axis cannot fit.
SIZES = {"B": 2, "T": 7, "S": 11, "D": 15, "E": 13, "F": 17, "N": 3, "H": 8}
VOCABULARY = 19


@dataclasses.dataclass(frozen=True)
class Case:
    """One layer with one choice of arguments.

    Attributes:
        make: from `dtype` and `name` to a new layer.
        inputs: for each call argument its axes, letters of `SIZES`.
        call: from the layer and its inputs to the output.
        scores: whether the call can return attention scores.
    """

    make: typing.Callable
    inputs: dict
    call: typing.Callable = lambda layer, inputs: layer(**inputs)
    scores: bool = False

    @property
    def has_ids(self):
        return set(self.inputs.values()) == {"BT"}

    def arrays(self, seed=0, **sizes):
        """NumPy inputs; `sizes` in place of some of `SIZES`."""
        rng = np.random.default_rng(seed)
        sizes = {**SIZES, **sizes}
        shapes = {
            name: [sizes[axis] for axis in axes] for name, axes in self.inputs.items()
        }
        if self.has_ids:
            return {
                name: rng.integers(0, VOCABULARY, shape).astype("int32")
                for name, shape in shapes.items()
            }
        return {
            name: rng.normal(size=shape).astype("float32")
            for name, shape in shapes.items()
        }

    def symbols(self):
        """Symbolic inputs, batch and lengths unknown."""
        unknown = dict.fromkeys("BTS")
        return {
            name: keras.Input(
                batch_shape=[unknown.get(axis, SIZES[axis]) for axis in axes],
                dtype="int32" if self.has_ids else "float32",
                name=name,
            )
            for name, axes in self.inputs.items()
        }

    def shapes(self):
        """What `build` takes."""
        return [tuple(SIZES[axis] for axis in axes) for axes in self.inputs.values()]

    def model(self, layer):
        symbols = self.symbols()
        return keras.Model(symbols, self.call(layer, symbols))


EVERY_ATTENTION_ARGUMENT = dict(
    num_heads=2,
    key_dim=5,
    value_dim=3,
    dropout=0.1,
    use_bias=False,
    output_shape=23,
    attention_kernel="full",
    kernel_initializer="he_normal",
    bias_initializer="ones",
    kernel_regularizer="l2",
    bias_regularizer="l1",
    kernel_constraint="max_norm",
    bias_constraint="unit_norm",
    seed=7,
    num_key_value_heads=1,
    qk_norm="rms_norm",
    scale=0.5,
    logit_soft_cap=3.0,
    use_sinks=True,
    use_gate=True,
    use_output_bias=True,
    branch_gain=0.5,
    qkv_gain=0.7,
    output_gain=0.6,
)
EVERY_LINEAR_ARGUMENT = {
    name: value
    for name, value in EVERY_ATTENTION_ARGUMENT.items()
    if name in inspect.signature(layers.LinearSelfAttention).parameters
} | {"feature_map": "relu"}
EVERY_BLOCK_ARGUMENT = dict(
    intermediate_dim=29,
    num_heads=5,
    dropout=0.1,
    activation="gelu",
    layer_norm_epsilon=1e-4,
    kernel_initializer="he_normal",
    bias_initializer="ones",
    normalize_first=True,
)
BLOCK = dict(intermediate_dim=29, num_heads=3)
MODERN_BLOCK = dict(
    **BLOCK,
    activation="silu",
    normalize_first=True,
    normalization="rms_norm",
    use_bias=False,
    feed_forward=lambda dtype: layers.FeedForward(
        29, "silu", use_bias=False, gated=True, dtype=dtype, name="own_feed_forward"
    ),
    residual=lambda dtype: layers.Residual(sandwich_norm=True),
)
PARALLEL_BLOCK = dict(
    **BLOCK,
    normalize_first=True,
    use_bias=False,
    parallel=True,
    residual=lambda dtype: layers.Residual(layer_scale=0.5, stochastic_depth=0.1),
)
DEEP_NORM_BLOCK = dict(
    **BLOCK,
    residual=lambda dtype: layers.Residual(scale=1.5),
    branch_gain=0.5,
    qkv_gain=0.7,
    output_gain=0.6,
)
HEADS, SCORES = {"inputs": "BTNH"}, {"scores": "BNTS"}
ONE, TWO = {"inputs": "BTD"}, {"query": "BTD", "context": "BSE"}
DECODER = {"decoder_sequence": "BTD"}
BOTH = {"decoder_sequence": "BTD", "encoder_sequence": "BSE"}
RECURRENT = {**BOTH, "initial_state": "BF"}
EVERY_RECURRENT_ARGUMENT = dict(
    units=6,
    num_layers=2,
    cell="lstm",
    residual=True,
    dropout=0.1,
    kernel_initializer="he_normal",
    recurrent_initializer="glorot_normal",
    seed=7,
)


def _case(layer_class, inputs, arguments, **kwargs):
    def make(dtype=None, name=None):
        parts = {
            key: value(dtype) if callable(value) else value
            for key, value in arguments.items()
        }
        return layer_class(**parts, dtype=dtype, name=name)

    return Case(make, inputs, **kwargs)


def _there_and_back(layer, inputs):
    return layer(layer(**inputs), reverse=True)


def _rotary(dtype):
    return layers.RotaryPositionEmbedding(dtype=dtype, rotary_dim=2, name="rotary")


def _positions(dtype):
    bias = layers.RelativePositionBias(dtype=dtype, name="relative")
    return [_rotary(dtype), bias]


def _attention(dtype):
    return layers.MultiHeadSelfAttention(
        num_heads=2, key_dim=3, dtype=dtype, name="own_attention"
    )


def _cross_attention(dtype):
    return layers.CrossAttention(
        num_heads=2, key_dim=3, dtype=dtype, name="own_cross_attention"
    )


def _feed_forward(dtype):
    return layers.FeedForward(
        23, activation="silu", use_bias=False, dtype=dtype, name="own_feed_forward"
    )


def _dot_product_attention(dtype):
    return layers.DotProductAttention("general", dtype=dtype, name="own_attention")


def _first_output(layer, inputs):
    return layer(**inputs)[0]


def _normalization(dtype):
    return keras.layers.LayerNormalization(epsilon=1e-3, center=False, dtype=dtype)


PARTS = dict(
    attention=_attention, feed_forward=_feed_forward, normalization=_normalization
)

CASES = {
    "attention": _case(
        layers.MultiHeadAttention,
        {"query": "BTD", "value": "BSE", "key": "BSF"},
        dict(num_heads=3),
        scores=True,
    ),
    "attention_every_argument": _case(
        layers.MultiHeadAttention,
        {"query": "BTD", "value": "BSE"},
        EVERY_ATTENTION_ARGUMENT,
        scores=True,
    ),
    "self_attention": _case(
        layers.MultiHeadSelfAttention, ONE, dict(num_heads=3, dropout=0.1), scores=True
    ),
    "self_attention_every_argument": _case(
        layers.MultiHeadSelfAttention, ONE, EVERY_ATTENTION_ARGUMENT, scores=True
    ),
    "self_attention_window": _case(
        layers.MultiHeadSelfAttention,
        ONE,
        dict(num_heads=3, sliding_window=3, num_global_tokens=2, position=_positions),
        scores=True,
    ),
    "attention_window": _case(
        layers.MultiHeadAttention,
        {"query": "BTD", "value": "BSE"},
        dict(
            num_heads=2,
            key_dim=4,
            sliding_window=3,
            num_global_tokens=2,
            position=_rotary,
        ),
        scores=True,
    ),
    "alibi": _case(layers.AlibiPositionBias, SCORES, {}),
    "relative": _case(layers.RelativePositionBias, SCORES, {}),
    "relative_every_argument": _case(
        layers.RelativePositionBias,
        SCORES,
        dict(
            num_buckets=8,
            max_distance=9,
            bidirectional=False,
            initializer="he_normal",
        ),
    ),
    "linear_self_attention": _case(
        layers.LinearSelfAttention, ONE, dict(num_heads=3), scores=True
    ),
    "linear_self_attention_every_argument": _case(
        layers.LinearSelfAttention, ONE, EVERY_LINEAR_ARGUMENT, scores=True
    ),
    "cross_attention": _case(
        layers.CrossAttention,
        TWO,
        dict(num_heads=3, attention_kernel="fused"),
        scores=True,
    ),
    "cross_attention_every_argument": _case(
        layers.CrossAttention, TWO, EVERY_ATTENTION_ARGUMENT, scores=True
    ),
    "dot_product_attention": _case(
        layers.DotProductAttention,
        {"query": "BTD", "value": "BSE", "key": "BSD"},
        {},
        scores=True,
    ),
    "dot_product_attention_every_argument": _case(
        layers.DotProductAttention,
        {"query": "BTD", "value": "BSE"},
        dict(
            score="general",
            dropout=0.1,
            kernel_initializer="he_normal",
            seed=7,
            scale=0.5,
        ),
        scores=True,
    ),
    "additive_attention": _case(
        layers.AdditiveAttention, {"query": "BTD", "value": "BSE"}, {}, scores=True
    ),
    "additive_attention_every_argument": _case(
        layers.AdditiveAttention,
        {"query": "BTD", "value": "BSE", "key": "BSF"},
        dict(
            units=5, use_bias=True, dropout=0.1, kernel_initializer="he_normal", seed=7
        ),
        scores=True,
    ),
    "recurrent_encoder": _case(
        layers.RecurrentEncoder, ONE, dict(units=6), call=_first_output
    ),
    "recurrent_encoder_every_argument": _case(
        layers.RecurrentEncoder,
        ONE,
        {**EVERY_RECURRENT_ARGUMENT, "bidirectional": False},
        call=_first_output,
    ),
    "recurrent_decoder": _case(layers.RecurrentDecoder, DECODER, dict(units=6)),
    "recurrent_decoder_of_two": _case(
        layers.RecurrentDecoder,
        RECURRENT,
        dict(units=6, attention=_dot_product_attention),
        scores=True,
    ),
    "recurrent_decoder_every_argument": _case(
        layers.RecurrentDecoder,
        RECURRENT,
        {
            **EVERY_RECURRENT_ARGUMENT,
            "attention": _cross_attention,
            "input_feeding": False,
        },
        scores=True,
    ),
    "sinusoids": _case(layers.SinusoidalPositionEmbedding, ONE, {}),
    "sinusoids_every_argument": _case(
        layers.SinusoidalPositionEmbedding,
        ONE,
        dict(max_wavelength=500, interleaved=False),
    ),
    "rotary": _case(layers.RotaryPositionEmbedding, HEADS, {}),
    "rotary_every_argument": _case(
        layers.RotaryPositionEmbedding,
        HEADS,
        dict(
            max_wavelength=500,
            rotary_dim=6,
            interleaved=True,
            scaling={
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 64,
            },
        ),
    ),
    "positions": _case(
        layers.PositionEmbedding,
        ONE,
        dict(sequence_length=31, initializer="random_normal"),
    ),
    "tokens": _case(
        layers.TokenEmbedding,
        {"inputs": "BT"},
        dict(vocabulary_size=VOCABULARY, hidden_dim=5),
        call=_there_and_back,
    ),
    "tokens_every_argument": _case(
        layers.TokenEmbedding,
        {"inputs": "BT"},
        dict(
            vocabulary_size=VOCABULARY,
            hidden_dim=5,
            scale=True,
            padding_id=None,
            tie_weights=False,
            embeddings_initializer="he_normal",
        ),
        call=_there_and_back,
    ),
    "feed_forward": _case(
        layers.FeedForward, ONE, dict(intermediate_dim=29, dropout=0.1)
    ),
    "feed_forward_every_argument": _case(
        layers.FeedForward,
        ONE,
        dict(
            intermediate_dim=29,
            output_dim=23,
            activation="gelu",
            dropout=0.1,
            use_bias=False,
            kernel_initializer="he_normal",
            bias_initializer="ones",
            gated=True,
            branch_gain=0.5,
            output_gain=0.6,
        ),
    ),
    "encoder": _case(layers.TransformerEncoder, ONE, BLOCK, scores=True),
    "encoder_every_argument": _case(
        layers.TransformerEncoder, ONE, EVERY_BLOCK_ARGUMENT, scores=True
    ),
    "encoder_of_parts": _case(
        layers.TransformerEncoder, ONE, {**BLOCK, **PARTS}, scores=True
    ),
    "encoder_of_parts_first": _case(
        layers.TransformerEncoder,
        ONE,
        {**BLOCK, **PARTS, "normalization": "rms_norm", "normalize_first": True},
        scores=True,
    ),
    "encoder_modern": _case(layers.TransformerEncoder, ONE, MODERN_BLOCK, scores=True),
    "encoder_parallel": _case(
        layers.TransformerEncoder, ONE, PARALLEL_BLOCK, scores=True
    ),
    "encoder_deep_norm": _case(
        layers.TransformerEncoder, ONE, DEEP_NORM_BLOCK, scores=True
    ),
    "decoder": _case(layers.TransformerDecoder, DECODER, BLOCK, scores=True),
    "decoder_every_argument": _case(
        layers.TransformerDecoder, DECODER, EVERY_BLOCK_ARGUMENT, scores=True
    ),
    "decoder_of_two": _case(layers.TransformerDecoder, BOTH, BLOCK, scores=True),
    "decoder_parallel": _case(
        layers.TransformerDecoder, DECODER, PARALLEL_BLOCK, scores=True
    ),
    "decoder_of_two_modern": _case(
        layers.TransformerDecoder, BOTH, MODERN_BLOCK, scores=True
    ),
    "decoder_of_two_every_argument": _case(
        layers.TransformerDecoder, BOTH, EVERY_BLOCK_ARGUMENT, scores=True
    ),
    "decoder_of_parts": _case(
        layers.TransformerDecoder,
        BOTH,
        {**BLOCK, **PARTS, "cross_attention": _cross_attention},
        scores=True,
    ),
}

# For what takes long: graphs of whole models, and all of JAX, which compiles every
# shape of every operation.
FEW = [
    "cross_attention",
    "linear_self_attention",
    "positions",
    "rotary",
    "tokens",
    "encoder",
    "decoder_of_two",
    "additive_attention",
    "recurrent_encoder",
    "recurrent_decoder_of_two",
]
if keras.backend.backend() != "tensorflow":
    CASES = {name: CASES[name] for name in FEW}
