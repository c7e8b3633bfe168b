"""The position-wise feed-forward network."""

import keras
from keras import activations, initializers

from keras_attn.layers._internal import arguments
from keras_attn.layers._internal.rows_dense import RowsDense
from keras_attn.layers._internal.trainable_state import KeepsTraining

__all__ = ["FeedForward"]


@keras.saving.register_keras_serializable(package="keras_attn")
class FeedForward(KeepsTraining, keras.layers.Layer):
    """Two dense layers with an activation between them, at every position alike.

    `output(activation(intermediate(x)))`, or, with a gate, three dense layers:
    `output(activation(gate(x)) * intermediate(x))`. The activation falls on the gate
    alone: `"sigmoid"` makes it GLU, `"gelu"` GEGLU, `"silu"` SwiGLU. In Llama's words
    `gate` is `gate_proj`, `intermediate` `up_proj`, `output` `down_proj`; the weights
    come in this order.

    Args:
        intermediate_dim: int, width between the two layers.
        output_dim: int, width of the output. Default: the input's width.
        activation: name of or function for the activation.
        dropout: float in [0, 1), dropout rate before the last layer.
        use_bias: bool, whether the dense layers have biases.
        kernel_initializer, bias_initializer: initializers of the dense layers.
        gated: bool, whether there is a gate.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Call arguments:
        inputs: `(..., D)` floats.
        training: bool, whether dropout is on.

    Returns:
        `(..., output_dim)`.

    Raises:
        ValueError: for a width that is not a positive int, a rate outside [0, 1) or
            a `gated` that is not a bool.

    Example:
        >>> FeedForward(intermediate_dim=256)(keras.Input((None, 64))).shape
        (None, None, 64)

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.3
        (https://arxiv.org/abs/1706.03762). Gates: Shazeer 2020, "GLU Variants Improve
        Transformer" (https://arxiv.org/abs/2002.05202).
    """

    def __init__(
        self,
        intermediate_dim,
        output_dim=None,
        activation="relu",
        dropout=0.0,
        use_bias=True,
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        *,
        gated=False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.intermediate_dim = arguments.positive_int(
            "intermediate_dim", intermediate_dim
        )
        self.output_dim = arguments.positive_int(
            "output_dim", output_dim, optional=True
        )
        self.activation = activations.get(activation)
        self.dropout = arguments.rate("dropout", dropout)
        self.use_bias = use_bias
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.bias_initializer = initializers.get(bias_initializer)
        self.gated = arguments.boolean("gated", gated)
        self.supports_masking = True

    def build(self, input_shape):
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

    def _dense(self, name, units, input_shape, activation=None):
        dense = RowsDense(
            units,
            activation=activation,
            use_bias=self.use_bias,
            kernel_initializer=arguments.clone_initializer(self.kernel_initializer),
            bias_initializer=arguments.clone_initializer(self.bias_initializer),
            dtype=self.dtype_policy,
            name=name,
        )
        dense.build(input_shape)
        return dense

    def call(self, inputs, training=None):
        hidden = self._intermediate_dense(inputs)
        if self._gate_dense is not None:
            hidden = self._gate_dense(inputs) * hidden
        hidden = self._dropout_layer(hidden, training=training)
        return self._output_dense(hidden)

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], self.output_dim or input_shape[-1])

    def get_config(self):
        return {
            **super().get_config(),
            "intermediate_dim": self.intermediate_dim,
            "output_dim": self.output_dim,
            "activation": activations.serialize(self.activation),
            "dropout": self.dropout,
            "use_bias": self.use_bias,
            "kernel_initializer": initializers.serialize(self.kernel_initializer),
            "bias_initializer": initializers.serialize(self.bias_initializer),
            "gated": self.gated,
        }
