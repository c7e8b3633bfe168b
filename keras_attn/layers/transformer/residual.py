"""The residual connection of the Transformer blocks."""

from collections.abc import Callable
from typing import Any

import keras
from keras import initializers, ops

from keras_attn._types import Shape, Tensor
from keras_attn.layers._internal import arguments
from keras_attn.layers._internal.normalization import make_normalization

__all__ = ["LayerScale", "Residual", "ResidualConnection"]


@keras.saving.register_keras_serializable(package="keras_attn")
class Residual:
    """The form of a block's residual connections, given to it as `residual=`.

    With `normalize_first` a branch `f` of a block is added as

        scale * x + drop(layer_scale * norm_out(f(norm(x))))

    and without it as

        norm(scale * x + drop(layer_scale * f(x)))

    where `drop` is dropout, then stochastic depth.

    Args:
        scale: float, factor of `x`, alpha in DeepNorm.
        layer_scale: float, initial value of learned factors of a branch's output, one
            per channel (CaiT). None: there are no such factors.
        sandwich_norm: bool, whether the output of a branch is normalized as well, as in
            CogView and Gemma 2. Requires a block with `normalize_first=True`.
        stochastic_depth: float in [0, 1), rate at which training drops a branch for
            whole batch elements; where it is kept it is scaled up.

    Raises:
        ValueError: for a factor that is not a number, a rate outside [0, 1).

    Example:
        >>> import keras
        >>> from keras_attn import layers
        >>> residual = layers.Residual(layer_scale=0.1, stochastic_depth=0.2)
        >>> block = layers.TransformerEncoder(256, num_heads=8, residual=residual)
        >>> block(keras.Input((None, 64))).shape
        (None, None, 64)

    Reference:
        Layer scale: Touvron et al. 2021 (https://arxiv.org/abs/2103.17239). DeepNorm:
        Wang et al. 2022 (https://arxiv.org/abs/2203.00555). Stochastic depth: Huang et
        al. 2016 (https://arxiv.org/abs/1603.09382). Sandwich norm: Ding et al. 2021
        (https://arxiv.org/abs/2105.13290).
    """

    def __init__(
        self,
        scale: float = 1.0,
        layer_scale: float | None = None,
        sandwich_norm: bool = False,
        stochastic_depth: float = 0.0,
    ) -> None:
        self.scale = float(
            arguments.number("scale", scale, 0, expected="a positive number")
        )
        self.layer_scale = layer_scale
        if layer_scale is not None:
            self.layer_scale = float(arguments.number("layer_scale", layer_scale))
        self.sandwich_norm = arguments.boolean("sandwich_norm", sandwich_norm)
        self.stochastic_depth = arguments.rate("stochastic_depth", stochastic_depth)

    def get_config(self) -> dict[str, Any]:
        return {
            "scale": self.scale,
            "layer_scale": self.layer_scale,
            "sandwich_norm": self.sandwich_norm,
            "stochastic_depth": self.stochastic_depth,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Residual":
        return cls(**config)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Residual) and self.get_config() == other.get_config()

    def __hash__(self) -> int:
        return hash(tuple(self.get_config().values()))

    def __repr__(self) -> str:
        options = (f"{name}={value!r}" for name, value in self.get_config().items())
        return f"Residual({', '.join(options)})"


class ResidualConnection:
    """The residual connection around one branch of a block, with its layers.

    Args:
        block: the `TransformerBlock`, whose arguments set the normalization, the
            dropout rate and the `Residual`.
        name: str, name of the branch, the prefix of the names of the layers.
        shape: shape of the block's input, `(B, T, D)`.

    Attributes:
        norm: the normalization layer.
        output_norm: the normalization of the branch's output, or None.
        layer_scale: the layer of learned factors, or None.
        dropouts: the dropout layers.
    """

    def __init__(self, block: Any, name: str, shape: Shape) -> None:
        form: Residual = block.residual
        self.normalize_first: bool = block.normalize_first
        self.scale: float = form.scale

        def norm(suffix: str) -> keras.layers.Layer:
            layer = make_normalization(
                block.normalization,
                block.layer_norm_epsilon,
                f"{name}_{suffix}",
                block.dtype_policy,
                center=block.use_bias,
            )
            layer.build(shape)
            return layer

        def dropout(suffix: str, rate: float, noise_shape: Any) -> keras.layers.Layer:
            return keras.layers.Dropout(
                rate,
                noise_shape=noise_shape,
                name=f"{name}_{suffix}",
                dtype=block.dtype_policy,
            )

        self.norm: keras.layers.Layer = norm("layer_norm")
        self.output_norm: keras.layers.Layer | None = (
            norm("output_norm") if form.sandwich_norm else None
        )
        self.layer_scale = None
        if form.layer_scale is not None:
            self.layer_scale: LayerScale | None = LayerScale(
                form.layer_scale, name=f"{name}_layer_scale", dtype=block.dtype_policy
            )
            self.layer_scale.build(shape)
        self.dropouts: list[keras.layers.Layer] = [
            dropout("dropout", block.dropout, None)
        ]
        if form.stochastic_depth > 0:
            # One draw per batch element, for all its positions and channels.
            self.dropouts.append(
                dropout("stochastic_depth", form.stochastic_depth, (None, 1, 1))
            )

    def layers(self) -> list[keras.layers.Layer]:
        """Return all layers, for the block to track."""
        optional = (self.norm, self.output_norm, self.layer_scale)
        return [layer for layer in optional if layer is not None] + self.dropouts

    def __call__(
        self,
        x: Tensor,
        branch: Callable[[Tensor], tuple[Tensor, Any]],
        training: bool | None = None,
    ) -> tuple[Tensor, Any]:
        """Add the output of a branch to its input.

        Args:
            x: `(B, T, D)`.
            branch: a function from a tensor of the shape of `x` to a tuple of such a
                tensor and anything else (attention weights, a cache).
            training: bool, whether dropout is applied.

        Returns:
            A tuple of a tensor of the shape of `x` and the second output of the branch.
        """
        output, extra = branch(self.norm(x) if self.normalize_first else x)
        if self.output_norm is not None:
            output = self.output_norm(output)
        if self.layer_scale is not None:
            output = self.layer_scale(output)
        for dropout in self.dropouts:
            output = dropout(output, training=training)
        output = (x if self.scale == 1 else self.scale * x) + output
        return output if self.normalize_first else self.norm(output), extra


@keras.saving.register_keras_serializable(package="keras_attn")
class LayerScale(keras.layers.Layer):
    """A learned factor for each channel of `(B, T, D)`.

    Args:
        initial_value: float.
        **kwargs: `name` and `dtype` of `keras.layers.Layer`.
    """

    def __init__(self, initial_value: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.initial_value = initial_value
        self.supports_masking = True

    def build(self, inputs_shape: Shape) -> None:
        self.scale = self.add_weight(
            name="scale",
            shape=inputs_shape[-1:],
            initializer=initializers.Constant(self.initial_value),
        )

    def call(self, inputs: Tensor) -> Tensor:
        return inputs * ops.cast(self.scale, inputs.dtype)

    def compute_output_shape(self, inputs_shape: Shape) -> Shape:
        return inputs_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "initial_value": self.initial_value}
