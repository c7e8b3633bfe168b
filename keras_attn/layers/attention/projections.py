"""The projections of a multi-head attention layer into and out of heads."""

import dataclasses
from typing import Any

import keras

from keras_attn._types import Shape
from keras_attn.layers._internal import arguments
from keras_attn.layers._internal.dense import HeadDense
from keras_attn.layers._internal.initializers import scale_initializer
from keras_attn.layers._internal.normalization import make_normalization

__all__ = ["HeadProjections", "build_projections"]


@dataclasses.dataclass(frozen=True, eq=False)
class HeadProjections:
    """The dense layers and the head normalization of one attention layer.

    Attributes:
        query: `(B, T, D)` to `(B, T, N, H)`.
        key: `(B, S, D)` to `(B, S, K, H)`.
        value: `(B, S, D)` to `(B, S, K, V)`.
        output: `(B, T, N, V)` to `(B, T, output width)`.
        gate: `(B, T, D)` to `(B, T, N, V)`, or None.
        query_norm, key_norm: normalization of each head, or None.
    """

    query: HeadDense
    key: HeadDense
    value: HeadDense
    output: HeadDense
    gate: HeadDense | None = None
    query_norm: keras.layers.Layer | None = None
    key_norm: keras.layers.Layer | None = None

    @property
    def key_dim(self) -> int:
        """Size H of a query or key head."""
        return self.query.output_dims[1]

    @property
    def value_dim(self) -> int:
        """Size V of a value head."""
        return self.value.output_dims[1]

    def layers(self) -> list[keras.layers.Layer]:
        """Return all layers, for the attention layer to track."""
        values = (getattr(self, field.name) for field in dataclasses.fields(self))
        return [layer for layer in values if layer is not None]


def build_projections(
    layer: Any,
    query_shape: Shape,
    value_shape: Shape,
    key_shape: Shape,
    *,
    num_key_value_heads: int,
    use_gate: bool = False,
    qk_norm: str | keras.layers.Layer | None = None,
) -> HeadProjections:
    """Make and build the projections of a multi-head attention layer.

    Args:
        layer: the attention layer, whose constructor arguments set the sizes, biases
            and initializers.
        query_shape, value_shape, key_shape: `(batch, length, width)`.
        num_key_value_heads: int K.
        use_gate: bool, whether there is an output gate.
        qk_norm: normalization of query and key heads, or None.

    Raises:
        ValueError: if the heads do not divide the width of the query, and `key_dim` is
            not given.
    """
    heads, width = layer.num_heads, query_shape[-1] or 0
    if layer.key_dim is None and width % heads:
        raise ValueError(
            "The width of the query must be a multiple of `num_heads`, unless "
            f"`key_dim` is given. Received: width={width}, num_heads={heads}"
        )
    key_dim = layer.key_dim or width // heads
    value_dim = layer.value_dim or key_dim

    def dense(name: str, shape: Shape, input_dims: Any, output_dims: Any) -> HeadDense:
        options = arguments.weight_options(layer)
        is_output = name == "attention_output"
        gain = layer.qkv_gain if name in ("query", "key", "value") else 1.0
        if is_output or name == "value":
            gain *= layer.branch_gain
        if is_output:
            gain *= layer.output_gain
        if gain != 1:
            options["kernel_initializer"] = scale_initializer(
                options["kernel_initializer"], gain
            )
        use_bias = layer.use_output_bias if is_output else None
        use_bias = layer.use_bias if use_bias is None else use_bias
        new = HeadDense(input_dims, output_dims, use_bias, name=name, **options)
        new.build(shape)
        return new

    def norm(name: str, num_heads: int) -> keras.layers.Layer | None:
        if qk_norm is None:
            return None
        new = make_normalization(qk_norm, 1e-6, name, layer.dtype_policy)
        new.build((*query_shape[:2], num_heads, key_dim))
        return new

    heads_shape = (*query_shape[:2], heads, value_dim)
    key_dims = (num_key_value_heads, key_dim)
    value_dims = (num_key_value_heads, value_dim)
    return HeadProjections(
        query=dense("query", query_shape, query_shape[-1:], (heads, key_dim)),
        key=dense("key", key_shape, key_shape[-1:], key_dims),
        value=dense("value", value_shape, value_shape[-1:], value_dims),
        output=dense(
            "attention_output",
            heads_shape,
            (heads, value_dim),
            (layer.output_shape or width,),
        ),
        gate=dense("gate", query_shape, query_shape[-1:], (heads, value_dim))
        if use_gate
        else None,
        query_norm=norm("query_norm", heads),
        key_norm=norm("key_norm", num_key_value_heads),
    )
