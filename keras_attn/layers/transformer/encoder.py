"""The encoder block: self-attention, then feed-forward."""

from typing import Any

import keras

from keras_attn._keras_internals import implicit_mask
from keras_attn._types import Shape, Tensor
from keras_attn.layers.attention.multi_head_attention import MultiHeadSelfAttention
from keras_attn.layers.transformer.block import TransformerBlock
from keras_attn.ops import masks

__all__ = ["TransformerEncoder"]


@keras.saving.register_keras_serializable(package="keras_attn")
class TransformerEncoder(TransformerBlock):
    """One block of a Transformer encoder.

    Constructor and call take the arguments of `keras_hub.layers.TransformerEncoder`,
    and the weights have the same order: `set_weights(hub_layer.get_weights())` copies
    them.

    Args:
        intermediate_dim: int, width of the hidden layer of the feed-forward network.
        num_heads: int, number of attention heads, a divisor of the width.
        dropout: float in [0, 1), dropout rate of attention weights and residual
            branches.
        activation: name of or function for the feed-forward activation.
        layer_norm_epsilon: float, epsilon of the normalization layers.
        kernel_initializer, bias_initializer: initializers of all dense layers.
        normalize_first: bool. False (default) normalizes after each residual sum
            (post-norm), as the paper and BERT do; True normalizes the input of each
            branch (pre-norm), as GPT-2 does.
        attention: a layer called like `MultiHeadSelfAttention`, used instead of the
            default one (it has its own `num_heads` and `dropout`).
        feed_forward: a layer used instead of the default `FeedForward`, for instance
            one with a gate: `FeedForward(intermediate_dim, "silu", gated=True)`.
        normalization: `"layer_norm"`, `"rms_norm"` or a layer to copy.
        residual: a `Residual` with the form of the residual connections. Default:
            `Residual()`.
        use_bias: bool, whether the block's own attention and feed-forward have biases,
            and `"layer_norm"` a beta.
        parallel: bool, whether attention and feed-forward are one residual branch, with
            the same normalized input: `x + attention(norm(x)) + feed_forward(norm(x))`,
            as in GPT-J and PaLM. Requires `normalize_first=True`.
        branch_gain: float, factor of the initial weights of the block's own
            feed-forward network and of its own value and output projections, beta in
            DeepNorm; see `deep_norm`.
        qkv_gain: float, factor of the initial weights of the query, key and value
            projections of the block's own attention; see `MultiHeadSelfAttention`.
        output_gain: float, factor of the initial weights of the output projection of
            the block's own attention, and of the last layer of its own feed-forward
            network. `(2 * num_layers)**-0.5` in GPT-2.
        **kwargs: `name`, `dtype` and `trainable` of `keras.layers.Layer`.

    Call arguments:
        inputs: floats `(B, T, D)`.
        padding_mask: bool `(B, T)`, True = a real token. Replaces the implicit Keras
            mask of `inputs`.
        attention_mask: bool `(T, T)`, `(B, T, T)` or `(B, N, T, T)`, True = may
            attend; joined with the padding mask.
        training: bool, whether dropout is applied.
        return_attention_scores: bool, whether to return the attention weights as well.
        segment_ids: int `(B, T)`, for several sequences packed into one: tokens attend
            only to tokens with the same id.

    Returns:
        `(B, T, D)`, or a tuple of it and the attention weights `(B, N, T, T)`.

    Raises:
        ValueError: for invalid sizes, rates or factors, arguments that exclude each
            other, a width that is not a multiple of `num_heads`, masks of a wrong rank
            or of floats.

    Example:
        >>> import keras
        >>> from keras_attn import layers
        >>> inputs = keras.Input((None, 64))
        >>> layers.TransformerEncoder(intermediate_dim=256, num_heads=8)(inputs).shape
        (None, None, 64)

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.1
        (https://arxiv.org/abs/1706.03762). Parallel: Wang and Komatsuzaki 2021, GPT-J
        (https://github.com/kingoflolz/mesh-transformer-jax).
    """

    def build(self, inputs_shape: Shape) -> None:
        self._self_attention = self._build_attention(
            "self_attention", self.attention, MultiHeadSelfAttention, inputs_shape
        )
        self._attention_residual = self._build_residual("self_attention", inputs_shape)
        # The norm before the network: the order of KerasHub's weights in an encoder.
        self._feed_forward_residual = None
        if not self.parallel:
            self._feed_forward_residual = self._build_residual(
                "feedforward", inputs_shape
            )
        self._feed_forward = self._build_feed_forward(inputs_shape)

    def call(
        self,
        inputs: Tensor,
        padding_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        training: bool | None = None,
        return_attention_scores: bool = False,
        segment_ids: Tensor | None = None,
    ) -> Any:
        if padding_mask is None:
            padding_mask = implicit_mask(inputs)
        # Not all attention layers have the argument.
        segments = {} if segment_ids is None else {"segment_ids": segment_ids}

        def attend(x: Tensor) -> tuple[Tensor, Any]:
            output = self._self_attention(
                x,
                padding_mask=padding_mask,
                attention_mask=attention_mask,
                return_attention_scores=return_attention_scores,
                training=training,
                **segments,
            )
            return output if return_attention_scores else (output, None)

        def feed_forward(x: Tensor) -> tuple[Tensor, None]:
            return self._feed_forward(x, training=training), None

        branch = (
            self._add_feed_forward(attend, feed_forward) if self.parallel else attend
        )
        x, weights = self._attention_residual(inputs, branch, training)
        if self._feed_forward_residual is not None:
            x, _ = self._feed_forward_residual(x, feed_forward, training)
        return (x, weights) if return_attention_scores else x

    def compute_output_shape(self, inputs_shape: Shape) -> Shape:
        return inputs_shape

    def compute_output_spec(
        self,
        inputs: keras.KerasTensor,
        padding_mask: Any = None,
        attention_mask: Any = None,
        training: bool | None = None,
        return_attention_scores: bool = False,
        segment_ids: Any = None,
    ) -> Any:
        length = inputs.shape[1]
        masks.check(padding_mask, attention_mask, length, length, segment_ids)
        output = keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)
        if not return_attention_scores:
            return output
        _, scores = self._self_attention.compute_output_spec(
            inputs, return_attention_scores=True
        )
        return output, scores
