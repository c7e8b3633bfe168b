"""The position-wise feed-forward network."""

from typing import Any

import keras
from keras import activations, initializers

from keras_attn._types import ActivationLike, InitializerLike, Shape, Tensor
from keras_attn.layers._internal import arguments
from keras_attn.layers._internal.dense import PositionwiseDense
from keras_attn.layers._internal.initializers import scale_initializer
from keras_attn.layers._internal.trainable_state import (
    add_trainable_state,
    restore_trainable_state,
)

__all__ = ["FeedForward"]


@keras.saving.register_keras_serializable(package="keras_attn")
class FeedForward(keras.layers.Layer):
    """Two dense layers with an activation between them, the same at every position.

    `output(activation(intermediate(x)))` or, with a gate, three dense layers:
    `output(activation(gate(x)) * intermediate(x))`. The activation is applied to the
    gate only: `"sigmoid"` makes it GLU, `"gelu"` GEGLU, `"silu"` SwiGLU. In Llama the
    three are called `gate_proj`, `up_proj` and `down_proj`; the weights have the order
    gate, intermediate, output.

    Args:
        intermediate_dim: int, width of the hidden layer.
        activation: name of or function for the activation.
        dropout: float in [0, 1), dropout rate before the last layer.
        use_bias: bool, whether the dense layers have biases.
        gated: bool, whether there is a gate.
        output_dim: int, width of the output. Default: the width of the input.
        kernel_initializer, bias_initializer: initializers of the dense layers.
        branch_gain: float, factor of the initial weights of all dense layers, beta in
            DeepNorm.
        output_gain: float, factor of the initial weights of the last dense layer,
            `(2 * num_layers)**-0.5` in GPT-2.
        **kwargs: `name`, `dtype` and `trainable` of `keras.layers.Layer`.

    Call arguments:
        inputs: floats `(..., D)`.
        training: bool, whether dropout is applied.

    Returns:
        `(..., output_dim)`.

    Raises:
        ValueError: for a width that is not a positive int, a rate outside [0, 1) or
            a `gated` that is not a bool.

    Example:
        >>> import keras
        >>> from keras_attn import layers
        >>> layers.FeedForward(intermediate_dim=256)(keras.Input((None, 64))).shape
        (None, None, 64)

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.3
        (https://arxiv.org/abs/1706.03762). Gates: Shazeer 2020, "GLU Variants Improve
        Transformer" (https://arxiv.org/abs/2002.05202).
    """

    def __init__(
        self,
        intermediate_dim: int,
        activation: ActivationLike = "relu",
        dropout: float = 0.0,
        use_bias: bool = True,
        gated: bool = False,
        *,
        output_dim: int | None = None,
        kernel_initializer: InitializerLike = "glorot_uniform",
        bias_initializer: InitializerLike = "zeros",
        branch_gain: float = 1.0,
        output_gain: float = 1.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.intermediate_dim = arguments.positive_int(
            "intermediate_dim", intermediate_dim
        )
        self.activation = activations.get(activation)
        self.dropout = arguments.rate("dropout", dropout)
        self.use_bias = use_bias
        self.gated = arguments.boolean("gated", gated)
        self.output_dim = arguments.positive_int(
            "output_dim", output_dim, optional=True
        )
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.bias_initializer = initializers.get(bias_initializer)
        self.branch_gain = arguments.gain("branch_gain", branch_gain)
        self.output_gain = arguments.gain("output_gain", output_gain)
        self.supports_masking = True

    def build(self, input_shape: Shape) -> None:
        self._gate_dense, activation = None, self.activation
        if self.gated:
            self._gate_dense = self._dense(
                "gate", self.intermediate_dim, input_shape, activation
            )
            activation = None
        self._intermediate_dense = self._dense(
            "intermediate", self.intermediate_dim, input_shape, activation
        )
        self._output_dense = self._dense(
            "output",
            self.output_dim or input_shape[-1],
            (*input_shape[:-1], self.intermediate_dim),
        )
        self._dropout_layer = keras.layers.Dropout(
            self.dropout, dtype=self.dtype_policy, name="dropout"
        )

    def _dense(
        self, name: str, units: Any, input_shape: Shape, activation: Any = None
    ) -> PositionwiseDense:
        kernel_initializer = arguments.clone_initializer(self.kernel_initializer)
        gain = self.branch_gain * (self.output_gain if name == "output" else 1.0)
        if gain != 1:
            kernel_initializer = scale_initializer(kernel_initializer, gain)
        dense = PositionwiseDense(
            units,  # pyright: ignore[reportCallIssue]
            activation=activation,
            use_bias=self.use_bias,
            kernel_initializer=kernel_initializer,
            bias_initializer=arguments.clone_initializer(self.bias_initializer),
            dtype=self.dtype_policy,
            name=name,
        )
        dense.build(input_shape)
        return dense

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        hidden = self._intermediate_dense(inputs)
        if self._gate_dense is not None:
            hidden = self._gate_dense(inputs) * hidden
        hidden = self._dropout_layer(hidden, training=training)
        return self._output_dense(hidden)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (*input_shape[:-1], self.output_dim or input_shape[-1])

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "intermediate_dim": self.intermediate_dim,
            "activation": activations.serialize(self.activation),
            "dropout": self.dropout,
            "use_bias": self.use_bias,
            "gated": self.gated,
            "output_dim": self.output_dim,
            "kernel_initializer": initializers.serialize(self.kernel_initializer),
            "bias_initializer": initializers.serialize(self.bias_initializer),
            "branch_gain": self.branch_gain,
            "output_gain": self.output_gain,
        }

    def get_build_config(self) -> dict[str, Any] | None:
        return add_trainable_state(self, super().get_build_config())

    def build_from_config(self, config: dict[str, Any]) -> None:
        super().build_from_config(config)
        restore_trainable_state(self, config)
