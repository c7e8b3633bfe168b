"""The dense projection into and out of attention heads."""

import math

import keras
from keras import ops

from keras_attn.layers._internal.kept_adapters import KeepsAdapters
from keras_attn.ops.matmul import rows_by_kernel

__all__ = ["HeadsDense"]


@keras.saving.register_keras_serializable(package="keras_attn")
class HeadsDense(KeepsAdapters, keras.layers.EinsumDense):
    """An `EinsumDense` over `(B, T, ...)` that multiplies two plain matrices.

    Weights, LoRA, quantization and layouts are the stock layer's; only the float
    product differs. One matrix product over `B x T` rows has a gradient that is one
    as well, where TensorFlow's einsum transposes its operands: on the CPU a training
    step of the projection takes about 0.6 of the time.

    Args:
        inputs_dims: sizes of the axes after `(B, T)` that are summed over.
        outputs_dims: sizes of the axes that take their place.
        use_bias: bool.
        **kwargs: of `keras.layers.EinsumDense`.
    """

    def __init__(self, inputs_dims, outputs_dims, use_bias=True, **kwargs):
        self.inputs_dims = tuple(inputs_dims)
        self.outputs_dims = tuple(outputs_dims)
        self.use_bias = use_bias
        summed = "uv"[: len(inputs_dims)]
        result = "xyz"[: len(outputs_dims)]
        super().__init__(
            f"bt{summed},{summed}{result}->bt{result}",
            output_shape=(None, *outputs_dims),
            bias_axes=result if use_bias else None,
            **kwargs,
        )
        # Position-wise, so an implicit mask may pass.
        self.supports_masking = True

    def call(self, inputs, training=None):
        batch, length = ops.shape(inputs)[:2]
        rows = ops.reshape(inputs, (-1, math.prod(self.inputs_dims)))
        bias = None if self.bias is None else ops.reshape(self.bias, (-1,))
        outputs = rows_by_kernel(rows, self.kernel, bias, self, inputs.shape[1])
        return ops.reshape(outputs, (batch, length, *self.outputs_dims))

    def quantize(self, mode=None, type_check=True, config=None):
        # Keras quantizes no subclass, whose product may differ. Ours is the same.
        super().quantize(mode, type_check=False, config=config)

    def get_config(self):
        config = super().get_config()
        for name in ("equation", "output_shape", "bias_axes", "activation"):
            config.pop(name)
        return {
            **config,
            "inputs_dims": self.inputs_dims,
            "outputs_dims": self.outputs_dims,
            "use_bias": self.use_bias,
        }
