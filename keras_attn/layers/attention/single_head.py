"""Attention with one head: dot-product (Luong) and additive (Bahdanau)."""

from collections.abc import Mapping
from typing import Any

import keras
from keras import initializers, ops

from keras_attn._types import InitializerLike, Shape, Tensor
from keras_attn.layers._internal import arguments
from keras_attn.layers.attention.attention_layer import (
    AttentionLayer,
    check_shapes,
    refuse_dependent_context,
)
from keras_attn.layers.attention.cache import KeyValueCache
from keras_attn.ops import additive_attention, dot_product_attention, masks

__all__ = ["AdditiveAttention", "DotProductAttention", "SingleHeadLayer"]

_SCORES = ("dot", "scaled", "general")


class SingleHeadLayer(AttentionLayer):
    """Base of the attention layers with one head and no projection of the values."""

    num_heads = 1
    context_arguments: tuple[str, ...] = ("value", "key")
    context_masks: tuple[str, ...] = ("padding_mask",)
    kernel_initializer: Any

    def _build_score(self, query_shape: Shape, key_shape: Shape) -> int:
        """Make the weights of the score; return the width of a projected key."""
        raise NotImplementedError

    def build(
        self, query_shape: Shape, value_shape: Shape, key_shape: Shape | None = None
    ) -> None:
        key_shape = key_shape or value_shape
        check_shapes(query_shape, value_shape, key_shape)
        width = self._build_score(query_shape, key_shape)
        self._cache = KeyValueCache(1, width, value_shape[-1] or 0)

    def call(
        self,
        query: Tensor,
        value: Tensor,
        key: Tensor | None = None,
        padding_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        use_causal_mask: bool = False,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Any:
        result = self._attend(
            query,
            value if key is None else key,
            value,
            padding_mask,
            attention_mask,
            use_causal_mask=use_causal_mask,
            return_attention_scores=return_attention_scores,
            training=training,
        )
        if not return_attention_scores:
            return result
        output, weights = result
        return output, ops.squeeze(weights, axis=1)

    def project_context(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Project the keys of a fixed context; see `decoding.ContextLayer`."""
        value = inputs["value"]
        key = inputs.get("key", value)
        return self._project_context(key, value, inputs.get("padding_mask"))

    def cached_call(
        self, inputs: Mapping[str, Any], cache: Mapping[str, Tensor], index: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Apply the layer to new positions; see `decoding.CachedLayer`."""
        query = inputs["query"]
        if "projected_context" in inputs:
            refuse_dependent_context(self, inputs, self.context_masks)
            mask = inputs.get("attention_mask")
            context = inputs["projected_context"]
            return self._attend_to_context(query, context, mask), {}
        value = inputs["value"]
        key = inputs.get("key", value)
        return self._cached_self_attention(query, key, value, inputs, cache, index)

    def _project_value(self, value: Tensor) -> Tensor:
        return _add_head(value)

    def _project_output(self, heads: Tensor, query: Tensor) -> Tensor:
        return ops.squeeze(heads, axis=2)

    def _output_width(self, query_width: int, value_width: int) -> int:
        return value_width

    def _weights_shape(self, batch: int | None, queries: Any, keys: Any) -> Shape:
        return (batch, queries, keys)

    def _dense(
        self, name: str, units: int, shape: Shape, use_bias: bool = False
    ) -> keras.layers.Dense:
        dense = keras.layers.Dense(
            units,
            use_bias=use_bias,
            kernel_initializer=arguments.clone_initializer(self.kernel_initializer),
            dtype=self.dtype_policy,
            name=name,
        )
        dense.build(shape)
        return dense

    def compute_output_shape(
        self,
        query_shape: Shape,
        value_shape: Shape | None = None,
        key_shape: Shape | None = None,
    ) -> Shape:
        value_shape = value_shape or query_shape
        check_shapes(query_shape, value_shape, key_shape or value_shape)
        return (*query_shape[:-1], value_shape[-1])

    def compute_output_spec(
        self,
        query: keras.KerasTensor,
        value: keras.KerasTensor,
        key: keras.KerasTensor | None = None,
        padding_mask: Any = None,
        attention_mask: Any = None,
        use_causal_mask: bool = False,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Any:
        masks.check(padding_mask, attention_mask, query.shape[1], value.shape[1])
        return self._output_spec(query, value, return_attention_scores)


def _add_head(x: Tensor) -> Tensor:
    """Reshape `(B, T, H)` to `(B, T, 1, H)`."""
    return ops.expand_dims(x, axis=2)


@keras.saving.register_keras_serializable(package="keras_attn")
class DotProductAttention(SingleHeadLayer):
    """Attention with one head whose score is the dot product of query and key.

    The output is a weighted mean of the values; the only weight is the matrix of
    `score="general"`. With `score="dot"` it computes the same as
    `keras.layers.Attention`.

    Args:
        score: `"dot"`: `query . key`; `"scaled"`: that divided by the square root of
            the width; `"general"`: `query . (key W)` with a learned W, for which query
            and key may have different widths.
        dropout: float in [0, 1), dropout rate of the attention weights.
        kernel_initializer: initializer of W.
        seed: int, seed of the dropout.
        scale: float, factor of the scores. Default: `D ** -0.5` for `"scaled"`,
            otherwise 1. With `"general"`, pass `D ** -0.5`: without it, one optimizer
            step changes the scores too much and training is slow.
        **kwargs: `name`, `dtype` and `trainable` of `keras.layers.Layer`.

    Raises:
        ValueError: for an unknown score, a rate outside [0, 1), or a scale that is not
            a number above 0; in `build`, if query and key have different widths and the
            score is not `"general"`.

    Call arguments:
        query: floats `(B, T, D)`.
        value: floats `(B, S, D')`.
        key: floats `(B, S, D'')`. Default: `value`.
        padding_mask: bool `(B, S)`, True = a real token of `value`. Replaces the
            implicit Keras mask of `value`.
        attention_mask: bool `(T, S)` or `(B, T, S)`, True = may attend; joined with the
            padding mask.
        use_causal_mask: bool, whether query `i` attends only to keys `j <= i`.
        return_attention_scores: bool, whether to return the attention weights as well.
        training: bool, whether dropout is applied.

    Returns:
        `(B, T, D')`, or a tuple of it and the attention weights `(B, T, S)`.

    Example:
        >>> import keras
        >>> from keras_attn import layers
        >>> target, source = keras.Input((None, 64)), keras.Input((None, 32))
        >>> layers.DotProductAttention("general")(target, source).shape
        (None, None, 32)

    Reference:
        Luong et al. 2015, "Effective Approaches to Attention-based Neural Machine
        Translation", section 3.1 (https://arxiv.org/abs/1508.04025).
    """

    def __init__(
        self,
        score: str = "dot",
        dropout: float = 0.0,
        kernel_initializer: InitializerLike = "glorot_uniform",
        seed: int | None = None,
        scale: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(dropout, seed, **kwargs)
        if score not in _SCORES:
            raise ValueError(f"`score` must be one of {_SCORES}. Received: {score=}")
        self.score = score
        self.kernel_initializer = initializers.get(kernel_initializer)
        if scale is not None:
            arguments.number("scale", scale, 0, expected="a number above 0 or None")
        self.scale = scale

    def _build_score(self, query_shape: Shape, key_shape: Shape) -> int:
        width = query_shape[-1] or 0
        self._key_dense = None
        if self.score == "general":
            self._key_dense = self._dense("key", width, key_shape)
        elif width != key_shape[-1]:
            raise ValueError(
                f"score='{self.score}' requires query and key of the same width; use "
                f"score='general'. Received: query of shape {tuple(query_shape)}, "
                f"key of shape {tuple(key_shape)}"
            )
        return width

    def _project_query(self, query: Tensor, start_index: Any) -> Tensor:
        return _add_head(query)

    def _project_key(self, key: Tensor, start_index: Any) -> Tensor:
        return _add_head(key if self._key_dense is None else self._key_dense(key))

    def _attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        return_weights: bool,
        **options: Any,
    ) -> Any:
        scale = self.scale
        if scale is None and self.score != "scaled":
            scale = 1.0
        return dot_product_attention(
            query, key, value, scale=scale, return_weights=return_weights, **options
        )

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "score": self.score,
            "kernel_initializer": initializers.serialize(self.kernel_initializer),
            "scale": self.scale,
        }


@keras.saving.register_keras_serializable(package="keras_attn")
class AdditiveAttention(SingleHeadLayer):
    """Attention with one head whose score is `v . tanh(query W + key U)`.

    W, U and v are learned. The output is a weighted mean of the values.
    `keras.layers.AdditiveAttention` computes the same without W and U.

    Args:
        units: int, width of the sum. Default: the width of the query.
        use_bias: bool, whether the sum has a bias.
        dropout: float in [0, 1), dropout rate of the attention weights.
        kernel_initializer: initializer of W, U and v.
        seed: int, seed of the dropout.
        **kwargs: `name`, `dtype` and `trainable` of `keras.layers.Layer`.

    Raises:
        ValueError: for units that are not a positive int, or a rate outside [0, 1).

    Call arguments and returns: those of `DotProductAttention`; query and key may have
    different widths.

    Example:
        >>> import keras
        >>> from keras_attn import layers
        >>> target, source = keras.Input((None, 64)), keras.Input((None, 32))
        >>> layers.AdditiveAttention(units=48)(target, source).shape
        (None, None, 32)

    Reference:
        Bahdanau et al. 2014, "Neural Machine Translation by Jointly Learning to Align
        and Translate", section 3.1 (https://arxiv.org/abs/1409.0473).
    """

    def __init__(
        self,
        units: int | None = None,
        use_bias: bool = False,
        dropout: float = 0.0,
        kernel_initializer: InitializerLike = "glorot_uniform",
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(dropout, seed, **kwargs)
        self.units = arguments.positive_int("units", units, optional=True)
        self.use_bias = use_bias
        self.kernel_initializer = initializers.get(kernel_initializer)

    def _build_score(self, query_shape: Shape, key_shape: Shape) -> int:
        units: Any = self.units or query_shape[-1]
        self._query_dense = self._dense("query", units, query_shape, self.use_bias)
        self._key_dense = self._dense("key", units, key_shape)
        self.vector = self.add_weight(
            name="vector",
            shape=(units,),
            initializer=arguments.clone_initializer(self.kernel_initializer),
        )
        return units

    def _project_query(self, query: Tensor, start_index: Any) -> Tensor:
        return _add_head(self._query_dense(query))

    def _project_key(self, key: Tensor, start_index: Any) -> Tensor:
        return _add_head(self._key_dense(key))

    def _attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        return_weights: bool,
        **options: Any,
    ) -> Any:
        return additive_attention(
            query, key, value, self.vector, return_weights=return_weights, **options
        )

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "units": self.units,
            "use_bias": self.use_bias,
            "kernel_initializer": initializers.serialize(self.kernel_initializer),
        }
