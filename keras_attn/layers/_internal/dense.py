"""Dense layers that multiply one plain matrix and save their LoRA adapters."""

import math
from collections.abc import Iterable, MutableMapping
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_attn._keras_internals import stored_kernel
from keras_attn._types import Tensor
from keras_attn.ops import low_rank
from keras_attn.ops.matmul import matmul_weight

__all__ = ["HeadDense", "LoraStateMixin", "PositionwiseDense"]


class LoraStateMixin:
    """Saving of LoRA adapters, for subclasses of `Dense` and `EinsumDense` of Keras.

    Keras saves the weight matrix with the adapters of `enable_lora` merged into it, and
    sets both adapters to zero on loading. They can then never train again, since the
    gradient of each is a product with the other. Here the file holds the merged matrix
    (for layers without adapters) and also the original matrix and the adapters.
    If a file has no adapters, those of the layer start from their initial values.

    Quantized layers are saved by Keras.
    """

    # `training.enable_lora` accepts only layers that declare this.
    saves_lora_adapters = True

    def save_own_variables(self: Any, store: MutableMapping[str, Any]) -> None:
        if not self._has_adapters():
            super().save_own_variables(store)  # pyright: ignore
            return
        kernel = stored_kernel(self)
        adapters = self.lora_kernel_a, self.lora_kernel_b
        values: dict[str, Any] = {}
        super().save_own_variables(values)  # pyright: ignore
        # Keras merges in the compute dtype, which may be half precision.
        scale = self.lora_alpha / self.lora_rank
        values["0"] = low_rank.merge_adapter(kernel, *adapters, scale)
        values["kernel"] = kernel
        values["lora_kernel_a"], values["lora_kernel_b"] = adapters
        values["lora_alpha"] = np.array(self.lora_alpha, "float32")
        for name, value in values.items():
            store[name] = value

    def load_own_variables(self: Any, store: Any) -> None:
        saved = {name: store[name] for name in [*store.keys()]}
        values = {name: saved[name] for name in saved if name.isdigit()}
        if not self._has_adapters():
            super().load_own_variables(values)  # pyright: ignore
            return
        adapter_a, adapter_b = ops.copy(self.lora_kernel_a), None
        if "lora_kernel_a" in saved:
            adapter_a, adapter_b = saved["lora_kernel_a"], saved["lora_kernel_b"]
            self._check_adapters(adapter_a.shape[-1], float(saved["lora_alpha"][()]))
            values["0"] = saved["kernel"]
        super().load_own_variables(values)  # pyright: ignore
        self.lora_kernel_a.assign(adapter_a)
        if adapter_b is not None:
            self.lora_kernel_b.assign(adapter_b)

    def _has_adapters(self: Any) -> bool:
        return self.built and self.lora_enabled and self.quantization_mode is None

    def _check_adapters(self: Any, rank: int, alpha: float) -> None:
        if (rank, alpha) != (self.lora_rank, np.float32(self.lora_alpha)):
            raise ValueError(
                f"The adapters of layer '{self.path}' have rank {self.lora_rank} and "
                f"alpha {self.lora_alpha}; those in the file must have the same. "
                f"Received: rank={rank}, alpha={alpha}"
            )


@keras.saving.register_keras_serializable(package="keras_attn")
class HeadDense(LoraStateMixin, keras.layers.EinsumDense):
    """A dense layer into or out of attention heads.

    An `EinsumDense` over `(B, T, ...)` that multiplies two plain matrices. Weights,
    LoRA, quantization and layouts are those of the stock layer; only the float product
    differs. The gradient of one matrix product over `B x T` positions is one product as
    well, while TensorFlow's einsum transposes its operands: on the CPU a training step
    of the projection takes about 0.6 of the time.

    Args:
        input_dims: sizes of the axes after `(B, T)` that are summed over.
        output_dims: sizes of the axes after `(B, T)` of the output.
        use_bias: bool.
        **kwargs: arguments of `keras.layers.EinsumDense`.
    """

    def __init__(
        self,
        input_dims: Iterable[int],
        output_dims: Iterable[int],
        use_bias: bool = True,
        **kwargs: Any,
    ) -> None:
        self.input_dims = tuple(input_dims)
        self.output_dims = tuple(output_dims)
        self.use_bias = use_bias
        summed = "uv"[: len(self.input_dims)]
        result = "xyz"[: len(self.output_dims)]
        super().__init__(
            f"bt{summed},{summed}{result}->bt{result}",  # pyright: ignore[reportCallIssue]
            output_shape=(None, *self.output_dims),
            bias_axes=result if use_bias else None,
            **kwargs,
        )
        # Position-wise, so an implicit mask passes through.
        self.supports_masking = True

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        batch, length = ops.shape(inputs)[:2]
        rows = ops.reshape(inputs, (-1, math.prod(self.input_dims)))
        bias = None if self.bias is None else ops.reshape(self.bias, (-1,))
        outputs = matmul_weight(rows, self.kernel, bias, self, inputs.shape[1])
        return ops.reshape(outputs, (batch, length, *self.output_dims))

    def quantize(
        self, mode: Any = None, type_check: bool = True, config: Any = None
    ) -> None:
        # Keras refuses subclasses, since their product may differ. Here it does not.
        super().quantize(mode, type_check=False, config=config)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        for name in ("equation", "output_shape", "bias_axes", "activation"):
            config.pop(name)
        return {
            **config,
            "input_dims": self.input_dims,
            "output_dims": self.output_dims,
            "use_bias": self.use_bias,
        }


@keras.saving.register_keras_serializable(package="keras_attn")
class PositionwiseDense(LoraStateMixin, keras.layers.Dense):
    """A `Dense` over positions `(..., D)` that multiplies one plain matrix.

    Weights, LoRA, quantization and layouts are those of the stock layer; only the float
    product differs. On the CPU, XLA takes longer by a tenth and more for the product of
    a stack of matrices with a weight than for that of one matrix.
    """

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        *leading, width = ops.shape(inputs)
        rows = ops.reshape(inputs, (-1, width))
        length = inputs.shape[-2] if len(inputs.shape) > 2 else None
        outputs = matmul_weight(rows, self.kernel, self.bias, self, length)
        if self.activation is not None:
            outputs = self.activation(outputs)
        return ops.reshape(outputs, (*leading, outputs.shape[-1]))

    def quantize(
        self, mode: Any = None, type_check: bool = True, config: Any = None
    ) -> None:
        # Keras refuses subclasses, since their product may differ. Here it does not.
        super().quantize(mode, type_check=False, config=config)
