"""The dense layer of the feed-forward network."""

import keras
from keras import ops

from keras_attn.layers._internal.kept_adapters import KeepsAdapters
from keras_attn.ops.matmul import rows_by_kernel

__all__ = ["RowsDense"]


@keras.saving.register_keras_serializable(package="keras_attn")
class RowsDense(KeepsAdapters, keras.layers.Dense):
    """A `Dense` over positions `(..., D)`, multiplied as rows of one matrix.

    Weights, LoRA, quantization and layouts are the stock layer's; only the float
    product differs. On the CPU XLA's product of a stack of matrices with a kernel takes
    longer than that of one matrix, by a tenth and more.
    """

    def call(self, inputs, training=None):
        *leading, width = ops.shape(inputs)
        rows = ops.reshape(inputs, (-1, width))
        length = inputs.shape[-2] if len(inputs.shape) > 2 else None
        outputs = rows_by_kernel(rows, self.kernel, self.bias, self, length)
        if self.activation is not None:
            outputs = self.activation(outputs)
        return ops.reshape(outputs, (*leading, outputs.shape[-1]))

    def quantize(self, mode=None, type_check=True, config=None):
        # Keras quantizes no subclass, whose product may differ. Ours is the same.
        super().quantize(mode, type_check=False, config=config)
