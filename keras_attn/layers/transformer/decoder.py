"""The decoder block: causal self-attention, cross-attention, feed-forward."""

import keras

from keras_attn._keras_internals import implicit_mask
from keras_attn.layers._internal import arguments
from keras_attn.layers.attention.cross_attention import CrossAttention
from keras_attn.layers.attention.self_attention import MultiHeadSelfAttention
from keras_attn.layers.transformer.block import TransformerBlock, of_segments
from keras_attn.ops import masks

__all__ = ["TransformerDecoder"]


@keras.saving.register_keras_serializable(package="keras_attn")
class TransformerDecoder(TransformerBlock):
    """One block of a Transformer decoder.

    Called with one sequence it has no cross-attention, as in GPT-2; called with two,
    it attends to the second, as in a translation model. Constructor and call take
    what `keras_hub.layers.TransformerDecoder` takes, save for the cache arguments,
    and the weights come in the same order. Decoding with a cache is
    `keras_attn.decoding`'s work: nobody passes caches by hand.

    Args:
        intermediate_dim: int, width of the feed-forward network's middle.
        num_heads: int, number of attention heads; must divide the width.
        dropout: float in [0, 1), for attention weights and residual branches.
        activation: name of or function for the feed-forward activation.
        layer_norm_epsilon: float, epsilon of the normalization layers.
        kernel_initializer, bias_initializer: initializers of all dense layers.
        normalize_first: bool. False (default) normalizes after each residual sum, as
            the paper does; True normalizes the branches' inputs, as GPT-2.
        attention: a layer called as `MultiHeadSelfAttention` is, in place of the
            usual one (`num_heads` and `dropout` are then its own).
        feed_forward: a layer in place of the usual `FeedForward`.
        cross_attention: a layer called as `CrossAttention` is, in place of the usual
            one.
        normalization: `"layer_norm"`, `"rms_norm"` or a layer to make copies of.
        use_bias: bool, whether the block's own attention and feed-forward have biases,
            and a `"layer_norm"` a beta.
        gated: bool, whether the block's own feed-forward has a gate, which makes it
            GEGLU with `activation="gelu"`, SwiGLU with `"silu"`; see `FeedForward`.
        parallel: bool, whether attention and feed-forward work side by side on one
            normalized input, as in GPT-J and PaLM, and are one residual branch:
            `x + attention(norm(x)) + feed_forward(norm(x))`. Takes `normalize_first`
            and no encoder sequence.
        sandwich_norm: bool, whether a branch's output is normalized as well, before
            the sum, as in CogView and Gemma 2. Takes `normalize_first`.
        layer_scale: float, what the learned factors of a branch's output start at, one
            for each channel (CaiT). None: there are no such factors.
        residual_scale: float, factor of `x` in the residual sums, DeepNorm's alpha.
        branch_gain: float, DeepNorm's beta: factor of the initial kernels of the
            block's own feed-forward and of its own attention's values and outputs.
            `deep_norm` gives both for a depth.
        stochastic_depth: float in [0, 1), rate at which training drops a branch for
            whole rows of the batch; it is scaled up where it is kept.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Call arguments:
        decoder_sequence: `(B, T, D)` floats.
        encoder_sequence: `(B, S, D')` floats, or None in every call.
        decoder_padding_mask: bool `(B, T)`, True = a real token; takes the place of
            the implicit Keras mask of `decoder_sequence`.
        decoder_attention_mask: bool `(B, T, T)` or `(B, N, T, T)`, True = may attend;
            joined with the other masks.
        encoder_padding_mask: bool `(B, S)`, likewise of `encoder_sequence`.
        encoder_attention_mask: bool `(B, T, S)` or `(B, N, T, S)`, likewise.
        use_causal_mask: bool, whether token `i` sees tokens `j <= i` only.
        training: bool, whether dropout is on.
        return_attention_scores: bool, whether to return the weights as well.
        segments: int `(B, T)`, the same number for the tokens of one of several
            sequences packed in a row, which then do not see each other.

    Returns:
        `(B, T, D)`, or a pair of it and a dict of attention weights:
        `"self_attention"`, `(B, N, T, T)`, and with an encoder sequence
        `"cross_attention"`, `(B, N, T, S)`.

    Raises:
        ValueError: for bad sizes, rates or factors, arguments that exclude each other,
            a width that the heads do not divide, masks of another rank or of floats,
            an encoder sequence in some calls and not in others.

    Example:
        >>> target, source = keras.Input((None, 64)), keras.Input((None, 64))
        >>> decoder = TransformerDecoder(intermediate_dim=256, num_heads=8)
        >>> decoder(target, source).shape
        (None, None, 64)

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.1
        (https://arxiv.org/abs/1706.03762); of the variants, see `TransformerEncoder`.
    """

    context_arguments = ("encoder_sequence",)
    context_mask_argument = "encoder_padding_mask"

    def __init__(
        self,
        intermediate_dim,
        num_heads,
        dropout=0,
        activation="relu",
        layer_norm_epsilon=1e-5,
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        normalize_first=False,
        *,
        cross_attention=None,
        **kwargs,
    ):
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
        self.cross_attention = arguments.part("cross_attention", cross_attention)
        self._check_parallel("cross_attention", self.cross_attention)

    def build(self, decoder_sequence_shape, encoder_sequence_shape=None):
        self._check_parallel("encoder_sequence_shape", encoder_sequence_shape)
        shape = decoder_sequence_shape
        self._build_attention(
            "self_attention", self.attention, MultiHeadSelfAttention, shape
        )
        self._cross_attention_layer = None
        if encoder_sequence_shape is not None:
            self._build_attention(
                "cross_attention",
                self.cross_attention,
                CrossAttention,
                shape,
                encoder_sequence_shape,
            )
        self._build_feed_forward(shape)
        if not self.parallel:
            self._build_residual("feedforward", shape)

    def call(
        self,
        decoder_sequence,
        encoder_sequence=None,
        decoder_padding_mask=None,
        decoder_attention_mask=None,
        encoder_padding_mask=None,
        encoder_attention_mask=None,
        use_causal_mask=True,
        training=None,
        return_attention_scores=False,
        segment_ids=None,
    ):
        self._check_context(encoder_sequence)
        if decoder_padding_mask is None:
            decoder_padding_mask = implicit_mask(decoder_sequence)
        if encoder_padding_mask is None and encoder_sequence is not None:
            encoder_padding_mask = implicit_mask(encoder_sequence)

        def attend_to_self(x):
            return self._self_attention_layer(
                x,
                padding_mask=decoder_padding_mask,
                attention_mask=decoder_attention_mask,
                use_causal_mask=use_causal_mask,
                return_attention_scores=return_attention_scores,
                training=training,
                **of_segments(segment_ids),
            )

        def attend_to_encoder(x):
            return self._cross_attention_layer(
                x,
                encoder_sequence,
                padding_mask=encoder_padding_mask,
                attention_mask=encoder_attention_mask,
                return_attention_scores=return_attention_scores,
                training=training,
            )

        def with_scores(attend):
            return attend if return_attention_scores else lambda x: (attend(x), None)

        attentions = {"self_attention": with_scores(attend_to_self)}
        if encoder_sequence is not None:
            attentions["cross_attention"] = with_scores(attend_to_encoder)
        output, scores = self._through(decoder_sequence, attentions, training)
        return (output, scores) if return_attention_scores else output

    def _check_parallel(self, name, value):
        if self.parallel and value is not None:
            raise ValueError(
                "A block with `parallel=True` has no cross-attention. "
                f"Received: {name}={value}"
            )

    def _check_context(self, encoder_sequence):
        has, given = self._cross_attention_layer is not None, encoder_sequence
        if has != (given is not None):
            raise ValueError(
                f"Layer '{self.name}' was built {'with' if has else 'without'} "
                "cross-attention: give an encoder sequence in every call or in none. "
                f"Received: encoder_sequence={'None' if has else 'a tensor'}"
            )

    def cache_spec(self, batch_size, max_length, has_context=False, **options):
        """See `MultiHeadAttention.cache_spec`: the self-attention's."""
        return self._self_attention_layer.cache_spec(batch_size, max_length, **options)

    def project_context(self, encoder_sequence, padding_mask=None):
        """See `MultiHeadAttention.project_context`: of the encoder's output."""
        return self._cross_attention_layer.project_context(
            encoder_sequence, padding_mask=padding_mask
        )

    def cached_call(
        self,
        decoder_sequence,
        decoder_padding_mask=None,
        decoder_attention_mask=None,
        encoder_attention_mask=None,
        use_causal_mask=True,
        segment_ids=None,
        *,
        cache,
        index,
        context=None,
    ):
        """One decoding step, see `MultiHeadAttention.cached_call`."""
        self._check_context(context)
        if decoder_padding_mask is None:
            decoder_padding_mask = implicit_mask(decoder_sequence)

        def attend_to_self(x):
            return self._self_attention_layer.cached_call(
                x,
                padding_mask=decoder_padding_mask,
                attention_mask=decoder_attention_mask,
                use_causal_mask=use_causal_mask,
                cache=cache,
                index=index,
                **of_segments(segment_ids),
            )

        def attend_to_encoder(x):
            return self._cross_attention_layer.cached_call(
                x,
                attention_mask=encoder_attention_mask,
                cache={},
                index=index,
                context=context,
            )

        attentions = {"self_attention": attend_to_self}
        if context is not None:
            attentions["cross_attention"] = attend_to_encoder
        output, told = self._through(decoder_sequence, attentions, training=False)
        return output, told["self_attention"]

    def compute_output_shape(self, decoder_sequence_shape, encoder_sequence_shape=None):
        return decoder_sequence_shape

    def compute_output_spec(
        self,
        decoder_sequence,
        encoder_sequence=None,
        decoder_padding_mask=None,
        decoder_attention_mask=None,
        encoder_padding_mask=None,
        encoder_attention_mask=None,
        use_causal_mask=True,
        training=None,
        return_attention_scores=False,
        segment_ids=None,
    ):
        self._check_context(encoder_sequence)
        length = decoder_sequence.shape[1]
        masks.check(
            decoder_padding_mask, decoder_attention_mask, length, length, segment_ids
        )
        total = None if encoder_sequence is None else encoder_sequence.shape[1]
        masks.check(encoder_padding_mask, encoder_attention_mask, length, total)
        output = keras.KerasTensor(decoder_sequence.shape, dtype=self.compute_dtype)
        if not return_attention_scores:
            return output
        _, scores = self._self_attention_layer.compute_output_spec(
            decoder_sequence, return_attention_scores=True
        )
        scores = {"self_attention": scores}
        if encoder_sequence is not None:
            _, scores["cross_attention"] = (
                self._cross_attention_layer.compute_output_spec(
                    decoder_sequence, encoder_sequence, return_attention_scores=True
                )
            )
        return output, scores

    def get_config(self):
        return {
            **super().get_config(),
            "cross_attention": arguments.serialize(self.cross_attention),
        }
