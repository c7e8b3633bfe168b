"""The general multi-head attention layer: queries from one tensor, keys and values
from others."""

import keras

from keras_attn._keras_internals import implicit_mask
from keras_attn.layers.attention_core import AttentionCore
from keras_attn.ops import masks

__all__ = ["MultiHeadAttention"]


@keras.saving.register_keras_serializable(package="keras_attn")
class MultiHeadAttention(AttentionCore):
    """Multi-head attention of `query` over `key` and `value`.

    The projections are `keras.layers.EinsumDense` layers (a subclass that multiplies
    plain matrices) whose weights have the shapes and
    the order of `keras.layers.MultiHeadAttention`'s: weights can be copied either
    way, and `enable_lora` and `quantize` work.

    Args:
        num_heads: int, number of heads N.
        key_dim: int, size of a query or key head. Default: the query's width over
            `num_heads`, which must divide.
        value_dim: int, size of a value head. Default: `key_dim`.
        dropout: float in [0, 1), rate at which attention weights are dropped.
        use_bias: bool, whether the projections have biases.
        output_dim: int, width of the output. Default: the query's width.
        attention_kernel: `"auto"`, `"full"` or `"fused"`, see
            `keras_attn.ops.dot_product_attention`.
        kernel_initializer, bias_initializer: initializers of the projections.
        kernel_regularizer, bias_regularizer: regularizers of the projections.
        kernel_constraint, bias_constraint: constraints of the projections.
        seed: int, seed of the dropout.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Raises:
        ValueError: for a size that is not a positive int, a rate outside [0, 1), an
            unknown kernel and, in `build`, a width that the heads do not divide.

    Call arguments:
        query: `(B, T, D)` floats.
        value: `(B, S, D')` floats.
        key: `(B, S, D'')` floats. Default: `value`.
        padding_mask: bool `(B, S)`, True = a real token of `value`. Takes the place
            of the implicit Keras mask of `value`.
        attention_mask: bool `(B, T, S)` or `(B, N, T, S)`, True = may attend; joined
            with the padding mask.
        use_causal_mask: bool, whether query `i` sees keys `j <= i` only.
        return_attention_scores: bool, whether to return the weights as well.
        training: bool, whether dropout is on.

    Returns:
        `(B, T, output_dim)`, or a pair of it and the weights `(B, N, T, S)`.

    Example:
        >>> layer = MultiHeadAttention(num_heads=4)
        >>> layer(keras.ops.ones((2, 5, 16)), keras.ops.ones((2, 7, 16))).shape
        (2, 5, 16)

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.2.2
        (https://arxiv.org/abs/1706.03762).
    """

    context_arguments = ("value", "key")
    context_mask_argument = "padding_mask"

    def build(self, query_shape, value_shape, key_shape=None):
        self._build_heads(query_shape, value_shape, key_shape or value_shape)

    def call(
        self,
        query,
        value,
        key=None,
        padding_mask=None,
        attention_mask=None,
        use_causal_mask=False,
        return_attention_scores=False,
        training=None,
    ):
        if padding_mask is None:
            padding_mask = implicit_mask(value)
        return self._attend(
            query,
            value,
            value if key is None else key,
            masks.build(
                padding_mask,
                attention_mask,
                use_causal_mask,
                query.shape[1],
                value.shape[1],
            ),
            return_attention_scores,
            training,
        )

    def cached_call(
        self,
        query,
        value=None,
        key=None,
        padding_mask=None,
        attention_mask=None,
        use_causal_mask=False,
        *,
        cache,
        index,
        context=None,
    ):
        """One decoding step: `call` for the positions from `index` on.

        Args:
            query, value, key: as in `call`, `(B, T, D)` of the new positions.
            padding_mask: of the new positions; None where there is a context, which
                brings its own.
            attention_mask: must be None.
            use_causal_mask: must be True, unless there is a context.
            cache: dict of tensors, see `cache_spec`.
            index: int32 scalar tensor, position of the first new token.
            context: what `project_context` gave, where keys and values are fixed; of
                B rows, or of fewer, each for as many queries that follow one another.

        Returns:
            A pair `(outputs, cache)`.
        """
        if context is not None:
            if padding_mask is not None:
                raise ValueError(
                    "its `padding_mask` depends on the tokens to be generated."
                )
            return self._attend_to_context(query, context, attention_mask), cache
        return self._cached_self_attention(
            query,
            value,
            value if key is None else key,
            padding_mask,
            attention_mask,
            use_causal_mask,
            cache,
            index,
        )

    def project_context(self, value, key=None, padding_mask=None):
        """Keys and values of a fixed context, to be computed once for all steps.

        Args:
            value, key, padding_mask: as in `call`.

        Returns:
            A dict of tensors: `"key"` `(B, N, S, H)`, `"value"` `(B, N, S, V)` and,
            with a mask, `"keep"` bool `(B, S)`.
        """
        value_as_key = value if key is None else key
        return self._project_context(value, value_as_key, padding_mask)

    def compute_output_shape(self, query_shape, value_shape=None, key_shape=None):
        return (*query_shape[:-1], self.output_dim or query_shape[-1])

    def compute_output_spec(
        self,
        query,
        value,
        key=None,
        padding_mask=None,
        attention_mask=None,
        use_causal_mask=False,
        return_attention_scores=False,
        training=None,
    ):
        masks.check(padding_mask, attention_mask, query.shape[1], value.shape[1])
        return self._output_spec(query, value, return_attention_scores)
