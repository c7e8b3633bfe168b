"""Self-attention in linear time, with a state of constant size."""

import inspect

import keras
from keras import ops

from keras_attn._keras_internals import implicit_mask
from keras_attn.layers.attention.head_gates import gated
from keras_attn.layers.attention.multi_head_base import MultiHeadBase
from keras_attn.layers.attention.stepped_attention import require_causal_mask
from keras_attn.ops import masks
from keras_attn.ops.attention.linear import (
    feature_function,
    linear_attention,
    linear_attention_step,
    linear_attention_weights,
)

__all__ = ["LinearSelfAttention"]


@keras.saving.register_keras_serializable(package="keras_attn")
class LinearSelfAttention(MultiHeadBase):
    """Multi-head self-attention in time and memory linear in the sequence's length.

    In place of a softmax over products of queries and keys, a weight is the product of
    their features, over the sum of these: `phi(q_i) . phi(k_j)`. So sums over keys are
    formed once, not for each query, and decoding keeps them alone, whatever the length.
    It is called as `MultiHeadSelfAttention` is, takes its place as the `attention` of
    a block, and has the same weights. What it learns differs: it blurs where softmax
    attention can pick one token.

    Weights are never formed, so there are none to drop: of the arguments of
    `MultiHeadSelfAttention` those below are taken. Dropout after the layer works as
    ever.

    Args:
        num_heads: int, number of heads N.
        key_dim: int, size H of a head's query and key. Default: width / num_heads.
        value_dim: int, size V of a head's value. Default: `key_dim`.
        feature_map: phi: `"elu"`, `elu(x) + 1`, or `"relu"`, `relu(x) + 0.001`.
        use_bias: bool, whether the projections have biases.
        output_dim: int, width of the output. Default: the width of the inputs.
        kernel_initializer, bias_initializer: of the four projections.
        kernel_regularizer, bias_regularizer: likewise.
        kernel_constraint, bias_constraint: likewise.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Call arguments:
        inputs: `(B, T, D)` floats.
        padding_mask: bool `(B, T)`, True = a real token. Takes the place of the
            implicit Keras mask of `inputs`.
        attention_mask: None: no other masks can be served.
        use_causal_mask: bool, whether token `i` sees tokens `j <= i` only.
        return_attention_scores: bool, whether to return the weights as well. They are
            then formed, for this alone: B x N x T x T numbers.
        training: bool, without effect.

    Returns:
        `(B, T, output_dim)`, or a pair of it and the weights `(B, N, T, T)`, whose rows
        sum to one, or to zero where a token has nothing to attend to.

    Raises:
        ValueError: for bad sizes, another feature map, another argument of
            `MultiHeadSelfAttention`, an `attention_mask`.

    Example:
        >>> inputs = keras.Input((None, 64))
        >>> outputs = LinearSelfAttention(num_heads=8)(inputs, use_causal_mask=True)
        >>> outputs.shape
        (None, None, 64)
        >>> block = TransformerDecoder(256, 8, attention=LinearSelfAttention(8))

    Reference:
        Katharopoulos et al. 2020, "Transformers are RNNs: Fast Autoregressive
        Transformers with Linear Attention" (https://arxiv.org/abs/2006.16236).
    """

    def __init__(
        self,
        num_heads,
        key_dim=None,
        value_dim=None,
        feature_map="elu",
        use_bias=True,
        output_dim=None,
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        kernel_regularizer=None,
        bias_regularizer=None,
        kernel_constraint=None,
        bias_constraint=None,
        **kwargs,
    ):
        _refuse_what_softmax_takes(kwargs)
        super().__init__(
            num_heads,
            key_dim,
            value_dim,
            use_bias=use_bias,
            output_dim=output_dim,
            kernel_initializer=kernel_initializer,
            bias_initializer=bias_initializer,
            kernel_regularizer=kernel_regularizer,
            bias_regularizer=bias_regularizer,
            kernel_constraint=kernel_constraint,
            bias_constraint=bias_constraint,
            **kwargs,
        )
        feature_function(feature_map)
        self.feature_map = feature_map

    def build(self, inputs_shape):
        self._build_parts(inputs_shape, inputs_shape, inputs_shape)

    def call(
        self,
        inputs,
        padding_mask=None,
        attention_mask=None,
        use_causal_mask=False,
        return_attention_scores=False,
        training=None,
    ):
        padding_mask = self._mask(inputs, padding_mask, attention_mask)
        query, key, value = self._projected(inputs)
        how = {
            "padding_mask": padding_mask,
            "causal": use_causal_mask,
            "feature_map": self.feature_map,
        }
        attended = linear_attention(query, key, value, **how)
        output = self._project_output(gated(attended, self))
        if not return_attention_scores:
            return output
        weights = linear_attention_weights(query, key, **how)
        return output, ops.cast(weights, self.compute_dtype)

    def _projected(self, inputs):
        return (
            self._project_query(inputs),
            self._project_key(inputs),
            self._project_value(inputs),
        )

    def _mask(self, inputs, padding_mask, attention_mask):
        """The padding mask to go by, the implicit one of `inputs` included."""
        self._check_masks(inputs, padding_mask, attention_mask)
        return implicit_mask(inputs) if padding_mask is None else padding_mask

    def _check_masks(self, inputs, padding_mask, attention_mask):
        if attention_mask is not None:
            raise ValueError(
                f"Layer '{self.name}' forms sums over all keys, from which no single "
                "weight can be masked: it takes padding and causal masks only. "
                "Received: attention_mask of shape "
                f"{tuple(getattr(attention_mask, 'shape', ()))}"
            )
        masks.check(padding_mask, num_keys=inputs.shape[1])

    def cache_spec(self, batch_size, max_length, has_context=False):
        """See `MultiHeadAttention.cache_spec`. Here it does not grow with the length:
        sums over the tokens so far, of keys times values and of keys."""
        key_dim, value_dim = self.head_dims
        shape = (batch_size, self.num_heads, key_dim)
        return {
            "state": keras.KerasTensor((*shape, value_dim), dtype="float32"),
            "normalizer": keras.KerasTensor(shape, dtype="float32"),
        }

    def cached_call(
        self,
        inputs,
        padding_mask=None,
        attention_mask=None,
        use_causal_mask=False,
        *,
        cache,
        index,
    ):
        """One decoding step, see `MultiHeadAttention.cached_call`."""
        require_causal_mask(self, use_causal_mask)
        output, state, normalizer = linear_attention_step(
            cache["state"],
            cache["normalizer"],
            *self._projected(inputs),
            padding_mask=self._mask(inputs, padding_mask, attention_mask),
            feature_map=self.feature_map,
        )
        output = self._project_output(gated(output, self))
        return output, {"state": state, "normalizer": normalizer}

    def compute_output_shape(self, inputs_shape):
        return (*inputs_shape[:-1], self.output_dim or inputs_shape[-1])

    def compute_output_spec(
        self,
        inputs,
        padding_mask=None,
        attention_mask=None,
        use_causal_mask=False,
        return_attention_scores=False,
        training=None,
    ):
        self._check_masks(inputs, padding_mask, attention_mask)
        return self._output_spec(inputs, inputs, return_attention_scores)

    def get_config(self):
        return {**super().get_config(), "feature_map": self.feature_map}


def _refuse_what_softmax_takes(arguments):
    """Raise for arguments of softmax attention that are not left at their defaults."""
    for name, parameter in inspect.signature(MultiHeadBase.__init__).parameters.items():
        if name in arguments and arguments[name] != parameter.default:
            raise ValueError(
                f"`{name}` is an argument of softmax attention that "
                "`LinearSelfAttention` does not have. "
                f"Received: {name}={arguments[name]!r}"
            )
