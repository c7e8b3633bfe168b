"""How attention layers with a query, a value and a key are called."""

from keras_attn.layers.attention.stepped_attention import SteppedAttention
from keras_attn.ops import masks

__all__ = ["QueryValueCall"]


class QueryValueCall(SteppedAttention):
    """The calls of `MultiHeadAttention`, which documents them.

    What the layer attends to may be a fixed context or the target itself.
    """

    context_arguments = ("value", "key")
    context_mask_argument = "padding_mask"

    def build(self, query_shape, value_shape, key_shape=None):
        self._build_parts(query_shape, value_shape, key_shape or value_shape)

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
        return self._attend(
            query,
            value,
            value if key is None else key,
            padding_mask,
            attention_mask,
            use_causal_mask,
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
        value_dim = (value_shape or query_shape)[-1]
        return (*query_shape[:-1], self._output_dim(query_shape[-1], value_dim))

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
