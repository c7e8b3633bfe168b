"""The decoder block: causal self-attention, cross-attention, feed-forward."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import keras

from keras_attn._keras_internals import implicit_mask
from keras_attn._types import ActivationLike, InitializerLike, Shape, Tensor
from keras_attn.layers._internal import arguments
from keras_attn.layers.attention.attention_layer import refuse_dependent_context
from keras_attn.layers.attention.multi_head_attention import (
    CrossAttention,
    MultiHeadSelfAttention,
)
from keras_attn.layers.transformer.block import TransformerBlock
from keras_attn.ops import masks

__all__ = ["TransformerDecoder"]


@keras.saving.register_keras_serializable(package="keras_attn")
class TransformerDecoder(TransformerBlock):
    """One block of a Transformer decoder.

    Called with one sequence it has no cross-attention, as in GPT-2; called with two,
    it attends to the second one, as in a translation model. Constructor and call take
    the arguments of `keras_hub.layers.TransformerDecoder` except those of the cache,
    and the weights have the same order. Decoding with a cache is derived from the
    model, see `keras_attn.decoding.generate`.

    Args:
        intermediate_dim: int, width of the hidden layer of the feed-forward network.
        num_heads: int, number of attention heads, a divisor of the width.
        dropout: float in [0, 1), dropout rate of attention weights and residual
            branches.
        activation: name of or function for the feed-forward activation.
        layer_norm_epsilon: float, epsilon of the normalization layers.
        kernel_initializer, bias_initializer: initializers of all dense layers.
        normalize_first: bool. False (default) normalizes after each residual sum
            (post-norm), as the paper does; True normalizes the input of each branch
            (pre-norm), as GPT-2 does.
        attention: a layer called like `MultiHeadSelfAttention`, used instead of the
            default one (it has its own `num_heads` and `dropout`).
        cross_attention: a layer called like `CrossAttention`, used instead of the
            default one.
        feed_forward: a layer used instead of the default `FeedForward`, for instance
            one with a gate: `FeedForward(intermediate_dim, "silu", gated=True)`.
        normalization: `"layer_norm"`, `"rms_norm"` or a layer to copy.
        residual: a `Residual` with the form of the residual connections. Default:
            `Residual()`.
        use_bias: bool, whether the block's own attention and feed-forward have biases,
            and `"layer_norm"` a beta.
        parallel: bool, whether attention and feed-forward are one residual branch, with
            the same normalized input: `x + attention(norm(x)) + feed_forward(norm(x))`,
            as in GPT-J and PaLM. Requires `normalize_first=True`; such a block has no
            cross-attention.
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
        decoder_sequence: floats `(B, T, D)`.
        encoder_sequence: floats `(B, S, D')`, or None in every call.
        decoder_padding_mask: bool `(B, T)`, True = a real token. Replaces the implicit
            Keras mask of `decoder_sequence`.
        decoder_attention_mask: bool `(T, T)`, `(B, T, T)` or `(B, N, T, T)`, True = may
            attend; joined with the other masks.
        encoder_padding_mask: bool `(B, S)`, True = a real token. Replaces the implicit
            Keras mask of `encoder_sequence`.
        encoder_attention_mask: bool `(T, S)`, `(B, T, S)` or `(B, N, T, S)`, True = may
            attend; joined with the padding mask of the encoder sequence.
        use_causal_mask: bool, whether token `i` attends only to tokens `j <= i`.
        training: bool, whether dropout is applied.
        return_attention_scores: bool, whether to return the attention weights as well.
        segment_ids: int `(B, T)`, for several sequences packed into one: tokens attend
            only to tokens with the same id.

    Returns:
        `(B, T, D)`, or a tuple of it and a dict of attention weights:
        `"self_attention"`, `(B, N, T, T)`, and with an encoder sequence
        `"cross_attention"`, `(B, N, T, S)`.

    Raises:
        ValueError: for invalid sizes, rates or factors, arguments that exclude each
            other, a width that is not a multiple of `num_heads`, masks of a wrong rank
            or of floats, an encoder sequence in some calls and not in others.

    Example:
        >>> import keras
        >>> from keras_attn import layers
        >>> target, source = keras.Input((None, 64)), keras.Input((None, 64))
        >>> block = layers.TransformerDecoder(intermediate_dim=256, num_heads=8)
        >>> block(target, source).shape
        (None, None, 64)

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.1
        (https://arxiv.org/abs/1706.03762).
    """

    context_arguments = ("encoder_sequence",)
    context_masks = ("encoder_padding_mask",)

    def __init__(
        self,
        intermediate_dim: int,
        num_heads: int,
        dropout: float = 0,
        activation: ActivationLike = "relu",
        layer_norm_epsilon: float = 1e-5,
        kernel_initializer: InitializerLike = "glorot_uniform",
        bias_initializer: InitializerLike = "zeros",
        normalize_first: bool = False,
        *,
        cross_attention: keras.layers.Layer | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            intermediate_dim,
            num_heads,
            dropout,
            activation,
            layer_norm_epsilon,
            kernel_initializer,
            bias_initializer,
            normalize_first,
            **kwargs,
        )
        self.cross_attention = arguments.optional_layer(
            "cross_attention", cross_attention
        )
        self._check_parallel("cross_attention", self.cross_attention)

    def build(
        self, decoder_sequence_shape: Shape, encoder_sequence_shape: Shape | None = None
    ) -> None:
        self._check_parallel("encoder_sequence_shape", encoder_sequence_shape)
        shape = decoder_sequence_shape
        self._self_attention = self._build_attention(
            "self_attention", self.attention, MultiHeadSelfAttention, shape
        )
        self._attention_residual = self._build_residual("self_attention", shape)
        self._cross_attention = self._cross_residual = None
        if encoder_sequence_shape is not None:
            self._cross_attention = self._build_attention(
                "cross_attention",
                self.cross_attention,
                CrossAttention,
                shape,
                encoder_sequence_shape,
            )
            self._cross_residual = self._build_residual("cross_attention", shape)
        self._feed_forward = self._build_feed_forward(shape)
        self._feed_forward_residual = None
        if not self.parallel:
            self._feed_forward_residual = self._build_residual("feedforward", shape)

    def call(
        self,
        decoder_sequence: Tensor,
        encoder_sequence: Tensor | None = None,
        decoder_padding_mask: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_padding_mask: Tensor | None = None,
        encoder_attention_mask: Tensor | None = None,
        use_causal_mask: bool = True,
        training: bool | None = None,
        return_attention_scores: bool = False,
        segment_ids: Tensor | None = None,
    ) -> Any:
        self._check_encoder_sequence(encoder_sequence)
        if decoder_padding_mask is None:
            decoder_padding_mask = implicit_mask(decoder_sequence)
        if encoder_padding_mask is None and encoder_sequence is not None:
            encoder_padding_mask = implicit_mask(encoder_sequence)
        # Not all attention layers have the argument.
        segments = {} if segment_ids is None else {"segment_ids": segment_ids}

        def attend_to_self(x: Tensor) -> tuple[Tensor, Any]:
            output = self._self_attention(
                x,
                padding_mask=decoder_padding_mask,
                attention_mask=decoder_attention_mask,
                use_causal_mask=use_causal_mask,
                return_attention_scores=return_attention_scores,
                training=training,
                **segments,
            )
            return output if return_attention_scores else (output, None)

        def attend_to_encoder(x: Tensor) -> tuple[Tensor, Any]:
            output = self._cross_attention(  # pyright: ignore[reportOptionalCall]
                x,
                encoder_sequence,
                padding_mask=encoder_padding_mask,
                attention_mask=encoder_attention_mask,
                return_attention_scores=return_attention_scores,
                training=training,
            )
            return output if return_attention_scores else (output, None)

        output, self_weights, cross_weights = self._apply_branches(
            decoder_sequence, attend_to_self, attend_to_encoder, training
        )
        if not return_attention_scores:
            return output
        weights = {"self_attention": self_weights}
        if self._cross_attention is not None:
            weights["cross_attention"] = cross_weights
        return output, weights

    def _apply_branches(
        self,
        x: Tensor,
        attend_to_self: Callable[[Tensor], tuple[Tensor, Any]],
        attend_to_encoder: Callable[[Tensor], tuple[Tensor, Any]],
        training: bool | None,
    ) -> tuple[Tensor, Any, Any]:
        """Apply the residual branches of the block, in training and in decoding.

        Returns:
            A tuple of the output `(B, T, D)` and the second outputs of the two
            attentions (attention weights or a cache).
        """

        def feed_forward(x: Tensor) -> tuple[Tensor, None]:
            return self._feed_forward(x, training=training), None

        if self.parallel:
            attend_to_self = self._add_feed_forward(attend_to_self, feed_forward)
        x, from_self = self._attention_residual(x, attend_to_self, training)
        from_encoder = None
        if self._cross_residual is not None:
            x, from_encoder = self._cross_residual(x, attend_to_encoder, training)
        if self._feed_forward_residual is not None:
            x, _ = self._feed_forward_residual(x, feed_forward, training)
        return x, from_self, from_encoder

    def _check_parallel(self, name: str, value: Any) -> None:
        if self.parallel and value is not None:
            raise ValueError(
                "A block with `parallel=True` has no cross-attention. "
                f"Received: {name}={value}"
            )

    def _check_encoder_sequence(self, encoder_sequence: Any) -> None:
        has_cross_attention = self._cross_attention is not None
        if has_cross_attention != (encoder_sequence is not None):
            raise ValueError(
                f"Layer '{self.name}' was built "
                f"{'with' if has_cross_attention else 'without'} cross-attention: pass "
                "an encoder sequence in every call or in none. Received: "
                f"encoder_sequence={'None' if has_cross_attention else 'a tensor'}"
            )

    def cache_spec(
        self, batch_size: int, max_length: int, inputs: Collection[str]
    ) -> dict[str, keras.KerasTensor]:
        """Return the cache of the self-attention; see `decoding.CachedLayer`."""
        names = set(inputs) - {"projected_context"}
        return self._self_attention.cache_spec(batch_size, max_length, names)

    def project_context(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Project the encoder's output; see `decoding.ContextLayer`."""
        context = {"context": inputs["encoder_sequence"]}
        if "encoder_padding_mask" in inputs:
            context["padding_mask"] = inputs["encoder_padding_mask"]
        return self._cross_attention.project_context(  # pyright: ignore
            context
        )

    def cached_call(
        self, inputs: Mapping[str, Any], cache: Mapping[str, Tensor], index: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Apply the block to new positions; see `decoding.CachedLayer`."""
        names = (*self.context_arguments, *self.context_masks)
        refuse_dependent_context(self, inputs, names)
        context = inputs.get("projected_context")
        self._check_encoder_sequence(context)
        decoder_sequence = inputs["decoder_sequence"]
        padding_mask = inputs.get("decoder_padding_mask")
        if padding_mask is None:
            padding_mask = implicit_mask(decoder_sequence)

        def attend_to_self(x: Tensor) -> tuple[Tensor, Any]:
            arguments = {
                "inputs": x,
                "padding_mask": padding_mask,
                "attention_mask": inputs.get("decoder_attention_mask"),
                "use_causal_mask": inputs.get("use_causal_mask", True),
            }
            if "segment_ids" in inputs:
                arguments["segment_ids"] = inputs["segment_ids"]
            return self._self_attention.cached_call(arguments, cache, index)

        def attend_to_encoder(x: Tensor) -> tuple[Tensor, Any]:
            arguments = {
                "query": x,
                "projected_context": context,
                "attention_mask": inputs.get("encoder_attention_mask"),
            }
            return self._cross_attention.cached_call(  # pyright: ignore
                arguments, {}, index
            )

        output, cache, _ = self._apply_branches(
            decoder_sequence, attend_to_self, attend_to_encoder, training=False
        )
        return output, dict(cache)

    def compute_output_shape(
        self, decoder_sequence_shape: Shape, encoder_sequence_shape: Shape | None = None
    ) -> Shape:
        return decoder_sequence_shape

    def compute_output_spec(
        self,
        decoder_sequence: keras.KerasTensor,
        encoder_sequence: keras.KerasTensor | None = None,
        decoder_padding_mask: Any = None,
        decoder_attention_mask: Any = None,
        encoder_padding_mask: Any = None,
        encoder_attention_mask: Any = None,
        use_causal_mask: bool = True,
        training: bool | None = None,
        return_attention_scores: bool = False,
        segment_ids: Any = None,
    ) -> Any:
        self._check_encoder_sequence(encoder_sequence)
        length = decoder_sequence.shape[1]
        masks.check(
            decoder_padding_mask, decoder_attention_mask, length, length, segment_ids
        )
        total = None if encoder_sequence is None else encoder_sequence.shape[1]
        masks.check(encoder_padding_mask, encoder_attention_mask, length, total)
        output = keras.KerasTensor(decoder_sequence.shape, dtype=self.compute_dtype)
        if not return_attention_scores:
            return output
        _, weights = self._self_attention.compute_output_spec(
            decoder_sequence, return_attention_scores=True
        )
        weights = {"self_attention": weights}
        if self._cross_attention is not None:
            _, weights["cross_attention"] = self._cross_attention.compute_output_spec(
                decoder_sequence, encoder_sequence, return_attention_scores=True
            )
        return output, weights

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "cross_attention": arguments.serialize(self.cross_attention),
        }
