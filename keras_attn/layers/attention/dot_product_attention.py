"""Luong's attention: the score is a product of query and key."""

import keras
from keras import initializers

from keras_attn.layers._internal import arguments
from keras_attn.layers.attention.single_attention import SingleAttention, as_head
from keras_attn.ops import dot_product_attention

__all__ = ["DotProductAttention"]

SCORES = ("dot", "scaled", "general")


@keras.saving.register_keras_serializable(package="keras_attn")
class DotProductAttention(SingleAttention):
    """Attention of one head whose score is the dot product of query and key.

    There is no projection but the matrix of `score="general"`: the output is a
    weighted mean of the values as they are. With `score="dot"` it computes what
    `keras.layers.Attention` does.

    Args:
        score: `"dot"`: `query . key`; `"scaled"`: that over the square root of its
            width; `"general"`: `query . (key W)` with a learned W, for which query
            and key may be of two widths.
        dropout: float in [0, 1), rate at which attention weights are dropped.
        kernel_initializer: initializer of W.
        scale: float, factor of the scores. Default: one, or what `"scaled"` says.
            `"general"` over a width D learns far faster with `D**-0.5`: else one
            step of an optimizer changes the scores a lot.
        seed: int, seed of the dropout.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Raises:
        ValueError: for another score or a rate outside [0, 1), a scale that is no
            number above 0; in `build`, where query and key are of two widths and the
            score is not `"general"`.

    Call arguments:
        query: `(B, T, D)` floats.
        value: `(B, S, D')` floats.
        key: `(B, S, D'')` floats. Default: `value`.
        padding_mask: bool `(B, S)`, True = a real token of `value`. Takes the place
            of the implicit Keras mask of `value`.
        attention_mask: bool `(B, T, S)`, True = may attend; joined with the padding
            mask.
        use_causal_mask: bool, whether query `i` sees keys `j <= i` only.
        return_attention_scores: bool, whether to return the weights as well.
        training: bool, whether dropout is on.

    Returns:
        `(B, T, D')`, or a pair of it and the weights `(B, T, S)`.

    Example:
        >>> target, source = keras.Input((None, 64)), keras.Input((None, 32))
        >>> DotProductAttention("general")(target, source).shape
        (None, None, 32)

    Reference:
        Luong et al. 2015, "Effective Approaches to Attention-based Neural Machine
        Translation", section 3.1 (https://arxiv.org/abs/1508.04025).
    """

    def __init__(
        self,
        score="dot",
        dropout=0.0,
        kernel_initializer="glorot_uniform",
        seed=None,
        scale=None,
        **kwargs,
    ):
        super().__init__(dropout, seed, **kwargs)
        if score not in SCORES:
            raise ValueError(f"`score` must be one of {SCORES}. Received: {score=}")
        self.score = score
        self.kernel_initializer = initializers.get(kernel_initializer)
        if scale is not None:
            arguments.number("scale", scale, least=0, what="a number above 0 or None")
        self.scale = scale

    def _build_score(self, query_shape, key_shape):
        width = query_shape[-1]
        self._key_dense = None
        if self.score == "general":
            self._key_dense = self._dense("key", width, key_shape)
        elif width != key_shape[-1]:
            raise ValueError(
                f"score='{self.score}' takes query and key of one width; use "
                f"score='general'. Received: query of shape {tuple(query_shape)}, "
                f"key of shape {tuple(key_shape)}"
            )
        return width

    def _project_query(self, query):
        return as_head(query)

    def _project_key(self, key):
        return as_head(key if self._key_dense is None else self._key_dense(key))

    def _attention(self, query, key, value, **kwargs):
        scale = self.scale
        if scale is None and self.score != "scaled":
            scale = 1.0
        return dot_product_attention(query, key, value, scale=scale, **kwargs)

    def get_config(self):
        return {
            **super().get_config(),
            "score": self.score,
            "kernel_initializer": initializers.serialize(self.kernel_initializer),
            "scale": self.scale,
        }
