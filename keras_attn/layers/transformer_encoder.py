"""The encoder block: self-attention, then feed-forward."""

import keras

from keras_attn._keras_internals import implicit_mask
from keras_attn.layers.residual import residual
from keras_attn.layers.self_attention import MultiHeadSelfAttention
from keras_attn.layers.transformer_block import TransformerBlock, build_once
from keras_attn.ops import masks

__all__ = ["TransformerEncoder"]


@keras.saving.register_keras_serializable(package="keras_attn")
class TransformerEncoder(TransformerBlock):
    """One block of a Transformer encoder.

    Constructor and call take what `keras_hub.layers.TransformerEncoder` takes, and
    the weights come in the same order: `set_weights(hub_layer.get_weights())` copies
    them.

    Args:
        intermediate_dim: int, width of the feed-forward network's middle.
        num_heads: int, number of attention heads; must divide the width.
        dropout: float in [0, 1), for attention weights and residual branches.
        activation: name of or function for the feed-forward activation.
        layer_norm_epsilon: float, epsilon of the normalization layers.
        kernel_initializer, bias_initializer: initializers of all dense layers.
        normalize_first: bool. False (default) normalizes after each residual sum, as
            the paper and BERT do; True normalizes the branches' inputs, as GPT-2.
        attention: a layer called as `MultiHeadSelfAttention` is, in place of the
            usual one (`num_heads` and `dropout` are then its own).
        feed_forward: a layer in place of the usual `FeedForward`.
        normalization: `"layer_norm"`, `"rms_norm"` or a layer to make copies of.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Call arguments:
        inputs: `(B, T, D)` floats.
        padding_mask: bool `(B, T)`, True = a real token. Takes the place of the
            implicit Keras mask of `inputs`.
        attention_mask: bool `(B, T, T)` or `(B, N, T, T)`, True = may attend; joined
            with the padding mask.
        training: bool, whether dropout is on.
        return_attention_scores: bool, whether to return the weights as well.

    Returns:
        `(B, T, D)`, or a pair of it and the attention weights `(B, N, T, T)`.

    Raises:
        ValueError: for bad sizes or rates, a width that the heads do not divide,
            masks of another rank or of floats.

    Example:
        >>> inputs = keras.Input((None, 64))
        >>> TransformerEncoder(intermediate_dim=256, num_heads=8)(inputs).shape
        (None, None, 64)

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.1
        (https://arxiv.org/abs/1706.03762).
    """

    def build(self, inputs_shape):
        self._self_attention_layer = self.attention or self._attention_part(
            MultiHeadSelfAttention, "self_attention"
        )
        build_once(self._self_attention_layer, inputs_shape)
        self._self_attention_layer_norm = self._normalization_part(
            "self_attention_layer_norm", inputs_shape
        )
        self._self_attention_dropout = self._dropout_part("self_attention_dropout")
        self._feedforward_layer_norm = self._normalization_part(
            "feedforward_layer_norm", inputs_shape
        )
        self._feedforward = self.feed_forward or self._feed_forward_part()
        build_once(self._feedforward, inputs_shape)
        self._feedforward_dropout = self._dropout_part("feedforward_dropout")

    def call(
        self,
        inputs,
        padding_mask=None,
        attention_mask=None,
        training=None,
        return_attention_scores=False,
    ):
        if padding_mask is None:
            padding_mask = implicit_mask(inputs)

        def attend(x):
            output = self._self_attention_layer(
                x,
                padding_mask=padding_mask,
                attention_mask=attention_mask,
                return_attention_scores=return_attention_scores,
                training=training,
            )
            return output if return_attention_scores else (output, None)

        def transform(x):
            return self._feedforward(x, training=training), None

        x, scores = residual(
            inputs,
            attend,
            self._self_attention_layer_norm,
            self._self_attention_dropout,
            self.normalize_first,
            training,
        )
        x, _ = residual(
            x,
            transform,
            self._feedforward_layer_norm,
            self._feedforward_dropout,
            self.normalize_first,
            training,
        )
        return (x, scores) if return_attention_scores else x

    def compute_output_shape(self, inputs_shape):
        return inputs_shape

    def compute_output_spec(
        self,
        inputs,
        padding_mask=None,
        attention_mask=None,
        training=None,
        return_attention_scores=False,
    ):
        length = inputs.shape[1]
        masks.check(padding_mask, attention_mask, length, length)
        output = keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)
        if not return_attention_scores:
            return output
        _, scores = self._self_attention_layer.compute_output_spec(
            inputs, return_attention_scores=True
        )
        return output, scores
