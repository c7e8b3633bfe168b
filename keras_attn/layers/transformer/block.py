"""Base of the encoder and decoder blocks: arguments and parts."""

from collections.abc import Callable
from typing import Any

import keras
from keras import activations, initializers

from keras_attn._keras_internals import Untracked
from keras_attn._types import ActivationLike, InitializerLike, Shape, Tensor
from keras_attn.layers._internal import arguments
from keras_attn.layers._internal.normalization import check_normalization
from keras_attn.layers._internal.trainable_state import (
    add_trainable_state,
    restore_trainable_state,
)
from keras_attn.layers.transformer.feed_forward import FeedForward
from keras_attn.layers.transformer.residual import Residual, ResidualConnection

__all__ = ["TransformerBlock"]


class TransformerBlock(keras.layers.Layer):
    """Base of `TransformerEncoder` and `TransformerDecoder`, which document it."""

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
        attention: keras.layers.Layer | None = None,
        feed_forward: keras.layers.Layer | None = None,
        normalization: str | keras.layers.Layer = "layer_norm",
        residual: Residual | None = None,
        use_bias: bool = True,
        parallel: bool = False,
        branch_gain: float = 1.0,
        qkv_gain: float = 1.0,
        output_gain: float = 1.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.intermediate_dim: int = arguments.positive_int(
            "intermediate_dim", intermediate_dim
        )
        self.num_heads: int = arguments.positive_int("num_heads", num_heads)
        self.dropout: float = arguments.rate("dropout", dropout)
        self.activation: Any = activations.get(activation)
        self.layer_norm_epsilon = layer_norm_epsilon
        self.kernel_initializer: Any = initializers.get(kernel_initializer)
        self.bias_initializer: Any = initializers.get(bias_initializer)
        self.normalize_first = normalize_first
        self.attention: Any = arguments.optional_layer("attention", attention)
        self.feed_forward: Any = arguments.optional_layer("feed_forward", feed_forward)
        # A template, without weights.
        self._normalization = Untracked(
            check_normalization("normalization", normalization)
        )
        self.residual: Residual = _check_residual(residual, normalize_first)
        self.use_bias: bool = arguments.boolean("use_bias", use_bias)
        self.parallel: bool = arguments.boolean("parallel", parallel)
        if self.parallel and not normalize_first:
            raise ValueError(
                "`parallel=True` requires `normalize_first=True`. "
                f"Received: {parallel=}, {normalize_first=}"
            )
        self.branch_gain: float = arguments.gain("branch_gain", branch_gain)
        self.qkv_gain: float = arguments.gain("qkv_gain", qkv_gain)
        self.output_gain: float = arguments.gain("output_gain", output_gain)
        self.supports_masking = True
        self._residual_layers: list[keras.layers.Layer] = []

    @property
    def normalization(self) -> str | keras.layers.Layer:
        """The normalization, as given to the constructor."""
        return self._normalization.value

    def _build_attention(
        self, name: str, layer: Any, layer_class: type, *shapes: Shape
    ) -> keras.layers.Layer:
        """Return the attention layer `layer`, or a new one, built."""
        if layer is None:
            layer = layer_class(
                self.num_heads,
                dropout=self.dropout,
                qkv_gain=self.qkv_gain,
                **self._part_options(name),
            )
        if not layer.built:  # Another block may share this layer and have built it.
            layer.build(*shapes)
        return layer

    def _build_feed_forward(self, shape: Shape) -> keras.layers.Layer:
        """Return the block's feed-forward layer, built."""
        layer = self.feed_forward
        if layer is None:
            options = self._part_options("feed_forward")
            layer = FeedForward(
                self.intermediate_dim, activation=self.activation, **options
            )
        if not layer.built:  # Another block may share this layer and have built it.
            layer.build(shape)
        return layer

    def _build_residual(self, name: str, shape: Shape) -> ResidualConnection:
        """Return a new residual connection, whose layers Keras tracks."""
        connection = ResidualConnection(self, name, shape)
        self._residual_layers.extend(connection.layers())
        return connection

    def _part_options(self, name: str) -> dict[str, Any]:
        """Return the arguments of a part that the block makes itself."""
        return {
            "use_bias": self.use_bias,
            "kernel_initializer": arguments.clone_initializer(self.kernel_initializer),
            "bias_initializer": arguments.clone_initializer(self.bias_initializer),
            "branch_gain": self.branch_gain,
            "output_gain": self.output_gain,
            "dtype": self.dtype_policy,
            "name": name,
        }

    def _add_feed_forward(
        self,
        attend: Callable[[Tensor], tuple[Tensor, Any]],
        feed_forward: Callable[[Tensor], tuple[Tensor, Any]],
    ) -> Callable[[Tensor], tuple[Tensor, Any]]:
        """Return the branch of a parallel block, the sum of two branches."""

        def branch(x: Tensor) -> tuple[Tensor, Any]:
            output, extra = attend(x)
            return output + feed_forward(x)[0], extra

        return branch

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "intermediate_dim": self.intermediate_dim,
            "num_heads": self.num_heads,
            "dropout": self.dropout,
            "activation": activations.serialize(self.activation),
            "layer_norm_epsilon": self.layer_norm_epsilon,
            "kernel_initializer": initializers.serialize(self.kernel_initializer),
            "bias_initializer": initializers.serialize(self.bias_initializer),
            "normalize_first": self.normalize_first,
            "attention": arguments.serialize(self.attention),
            "feed_forward": arguments.serialize(self.feed_forward),
            "normalization": arguments.serialize(self.normalization),
            "residual": keras.saving.serialize_keras_object(self.residual),
            "use_bias": self.use_bias,
            "parallel": self.parallel,
            "branch_gain": self.branch_gain,
            "qkv_gain": self.qkv_gain,
            "output_gain": self.output_gain,
        }

    def get_build_config(self) -> dict[str, Any] | None:
        return add_trainable_state(self, super().get_build_config())

    def build_from_config(self, config: dict[str, Any]) -> None:
        super().build_from_config(config)
        restore_trainable_state(self, config)


def _check_residual(residual: Any, normalize_first: bool) -> Residual:
    """Return the `Residual` of an argument; raise a ValueError if it does not fit."""
    residual = arguments.deserialize(residual)
    residual = Residual() if residual is None else residual
    if not isinstance(residual, Residual):
        raise ValueError(
            "`residual` must be a `keras_attn.layers.Residual` or None. "
            f"Received: residual={residual!r}"
        )
    if residual.sandwich_norm and not normalize_first:
        raise ValueError(
            "`Residual(sandwich_norm=True)` requires a block with "
            f"`normalize_first=True`. Received: {normalize_first=}"
        )
    return residual
