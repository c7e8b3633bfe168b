"""Multi-head attention of a sequence over itself."""

import keras

from keras_attn.layers.attention.multi_head_base import MultiHeadBase
from keras_attn.ops import masks

__all__ = ["MultiHeadSelfAttention"]


@keras.saving.register_keras_serializable(package="keras_attn")
class MultiHeadSelfAttention(MultiHeadBase):
    """Multi-head attention of a sequence over itself.

    Constructor arguments are those of `MultiHeadAttention`.

    Call arguments:
        inputs: `(B, T, D)` floats.
        padding_mask: bool `(B, T)`, True = a real token. Takes the place of the
            implicit Keras mask of `inputs`.
        attention_mask: bool `(B, T, T)` or `(B, N, T, T)`, True = may attend; joined
            with the padding mask.
        use_causal_mask: bool, whether token `i` sees tokens `j <= i` only.
        return_attention_scores: bool, whether to return the weights as well.
        training: bool, whether dropout is on.
        segments: int `(B, T)`, the same number for the tokens of one of several
            sequences packed in a row, which then do not see each other.

    Returns:
        `(B, T, output_dim)`, or a pair of it and the weights `(B, N, T, T)`.

    Example:
        >>> inputs = keras.Input((None, 64))
        >>> outputs = MultiHeadSelfAttention(num_heads=8)(inputs, use_causal_mask=True)
        >>> outputs.shape
        (None, None, 64)

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.2
        (https://arxiv.org/abs/1706.03762).
    """

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
        segment_ids=None,
    ):
        return self._attend(
            inputs,
            inputs,
            inputs,
            padding_mask,
            attention_mask,
            use_causal_mask,
            return_attention_scores,
            training,
            segment_ids,
        )

    def cached_call(
        self,
        inputs,
        padding_mask=None,
        attention_mask=None,
        use_causal_mask=False,
        segment_ids=None,
        *,
        cache,
        index,
    ):
        """One decoding step, see `MultiHeadAttention.cached_call`."""
        return self._cached_self_attention(
            inputs,
            inputs,
            inputs,
            padding_mask,
            attention_mask,
            use_causal_mask,
            cache,
            index,
            segment_ids,
        )

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
        segment_ids=None,
    ):
        length = inputs.shape[1]
        masks.check(padding_mask, attention_mask, length, length, segment_ids)
        return self._output_spec(inputs, inputs, return_attention_scores)
