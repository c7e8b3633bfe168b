"""The encoder block: self-attention, then feed-forward."""

import keras

from keras_attn._keras_internals import implicit_mask
from keras_attn.layers.attention.self_attention import MultiHeadSelfAttention
from keras_attn.layers.transformer.block import TransformerBlock, of_segments
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
        use_bias: bool, whether the block's own attention and feed-forward have biases,
            and a `"layer_norm"` a beta.
        gated: bool, whether the block's own feed-forward has a gate, which makes it
            GEGLU with `activation="gelu"`, SwiGLU with `"silu"`; see `FeedForward`.
        parallel: bool, whether attention and feed-forward work side by side on one
            normalized input, as in GPT-J and PaLM, and are one residual branch:
            `x + attention(norm(x)) + feed_forward(norm(x))`. Takes `normalize_first`.
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
        inputs: `(B, T, D)` floats.
        padding_mask: bool `(B, T)`, True = a real token. Takes the place of the
            implicit Keras mask of `inputs`.
        attention_mask: bool `(B, T, T)` or `(B, N, T, T)`, True = may attend; joined
            with the padding mask.
        training: bool, whether dropout is on.
        return_attention_scores: bool, whether to return the weights as well.
        segments: int `(B, T)`, the same number for the tokens of one of several
            sequences packed in a row, which then do not see each other.

    Returns:
        `(B, T, D)`, or a pair of it and the attention weights `(B, N, T, T)`.

    Raises:
        ValueError: for bad sizes, rates or factors, arguments that exclude each other,
            a width that the heads do not divide, masks of another rank or of floats.

    Example:
        >>> inputs = keras.Input((None, 64))
        >>> TransformerEncoder(intermediate_dim=256, num_heads=8)(inputs).shape
        (None, None, 64)

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.1
        (https://arxiv.org/abs/1706.03762). Layer scale: Touvron et al. 2021
        (https://arxiv.org/abs/2103.17239). DeepNorm: Wang et al. 2022
        (https://arxiv.org/abs/2203.00555). Stochastic depth: Huang et al. 2016
        (https://arxiv.org/abs/1603.09382).
    """

    def build(self, inputs_shape):
        self._build_attention(
            "self_attention", self.attention, MultiHeadSelfAttention, inputs_shape
        )
        # Before its layer: so come KerasHub's weights, other than in the decoder.
        if not self.parallel:
            self._build_residual("feedforward", inputs_shape)
        self._build_feed_forward(inputs_shape)

    def call(
        self,
        inputs,
        padding_mask=None,
        attention_mask=None,
        training=None,
        return_attention_scores=False,
        segment_ids=None,
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
                **of_segments(segment_ids),
            )
            return output if return_attention_scores else (output, None)

        output, told = self._through(inputs, {"self_attention": attend}, training)
        if return_attention_scores:
            return output, told["self_attention"]
        return output

    def compute_output_shape(self, inputs_shape):
        return inputs_shape

    def compute_output_spec(
        self,
        inputs,
        padding_mask=None,
        attention_mask=None,
        training=None,
        return_attention_scores=False,
        segment_ids=None,
    ):
        length = inputs.shape[1]
        masks.check(padding_mask, attention_mask, length, length, segment_ids)
        output = keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)
        if not return_attention_scores:
            return output
        _, scores = self._self_attention_layer.compute_output_spec(
            inputs, return_attention_scores=True
        )
        return output, scores
