"""Multi-head attention of one sequence over another."""

import keras

from keras_attn.layers.attention.multi_head_base import MultiHeadBase
from keras_attn.ops import masks

__all__ = ["CrossAttention"]


@keras.saving.register_keras_serializable(package="keras_attn")
class CrossAttention(MultiHeadBase):
    """Multi-head attention of a query over a context, such as an encoder's output.

    Constructor arguments are those of `MultiHeadAttention`.

    Call arguments:
        query: `(B, T, D)` floats.
        context: `(B, S, D')` floats; gives the keys and the values.
        padding_mask: bool `(B, S)`, True = a real token of the context. Takes the
            place of the implicit Keras mask of `context`.
        attention_mask: bool `(B, T, S)` or `(B, N, T, S)`, True = may attend; joined
            with the padding mask.
        return_attention_scores: bool, whether to return the weights as well.
        training: bool, whether dropout is on.

    Returns:
        `(B, T, output_dim)`, or a pair of it and the weights `(B, N, T, S)`.

    Example:
        >>> target, source = keras.Input((None, 64)), keras.Input((None, 32))
        >>> CrossAttention(num_heads=8)(target, source).shape
        (None, None, 64)

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.2.3
        (https://arxiv.org/abs/1706.03762).
    """

    context_arguments = ("context",)
    context_mask_argument = "padding_mask"

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._check_context()

    def build(self, query_shape, context_shape):
        self._build_parts(query_shape, context_shape, context_shape)

    def call(
        self,
        query,
        context,
        padding_mask=None,
        attention_mask=None,
        return_attention_scores=False,
        training=None,
    ):
        return self._attend(
            query,
            context,
            context,
            padding_mask,
            attention_mask,
            return_attention_scores=return_attention_scores,
            training=training,
        )

    def cached_call(self, query, attention_mask=None, *, cache, index, context=None):
        """One decoding step, see `MultiHeadAttention.cached_call`."""
        return self._attend_to_context(query, context, attention_mask), cache

    def project_context(self, context, padding_mask=None):
        """See `MultiHeadAttention.project_context`."""
        return self._project_context(context, context, padding_mask)

    def compute_output_shape(self, query_shape, context_shape=None):
        return (*query_shape[:-1], self.output_dim or query_shape[-1])

    def compute_output_spec(
        self,
        query,
        context,
        padding_mask=None,
        attention_mask=None,
        return_attention_scores=False,
        training=None,
    ):
        masks.check(padding_mask, attention_mask, query.shape[1], context.shape[1])
        return self._output_spec(query, context, return_attention_scores)
