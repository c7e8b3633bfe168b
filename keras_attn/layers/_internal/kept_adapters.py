"""Dense layers whose low-rank adapters outlive a file."""

import numpy as np
from keras import ops

from keras_attn._keras_internals import stored_kernel
from keras_attn.ops import low_rank

__all__ = ["KeepsAdapters"]


class KeepsAdapters:
    """Mixin for subclasses of `keras.layers.Dense` and `EinsumDense`.

    Keras writes the kernel with the adapters of `enable_lora` merged into it, and sets
    both of them to zero when it reads that: they never train again, since the gradient
    of each is a product with the other. Here a file has the merged kernel too, for
    layers without adapters, and beside it the kernel as it was and the adapters. In a
    file without adapters, those of the layer begin anew.

    Quantized layers are left to Keras.
    """

    # What `training.enable_lora` looks for.
    keeps_adapters = True

    def save_own_variables(self, store):
        if not self._has_adapters():
            super().save_own_variables(store)
            return
        kernel = stored_kernel(self)
        adapters = self.lora_kernel_a, self.lora_kernel_b
        values = {}
        super().save_own_variables(values)
        # Keras rounds it to the dtype that is computed in.
        scale = self.lora_alpha / self.lora_rank
        values["0"] = low_rank.merged(kernel, *adapters, scale)
        values["kernel"] = kernel
        values["lora_kernel_a"], values["lora_kernel_b"] = adapters
        values["lora_alpha"] = np.array(self.lora_alpha, "float32")
        for name, value in values.items():
            store[name] = value

    def load_own_variables(self, store):
        found = {name: store[name] for name in [*store.keys()]}
        values = {name: found[name] for name in found if name.isdigit()}
        if not self._has_adapters():
            super().load_own_variables(values)
            return
        adapter_a, adapter_b = ops.copy(self.lora_kernel_a), None
        if "lora_kernel_a" in found:
            adapter_a, adapter_b = found["lora_kernel_a"], found["lora_kernel_b"]
            self._check_adapters(adapter_a.shape[-1], float(found["lora_alpha"][()]))
            values["0"] = found["kernel"]
        super().load_own_variables(values)
        self.lora_kernel_a.assign(adapter_a)
        if adapter_b is not None:
            self.lora_kernel_b.assign(adapter_b)

    def _has_adapters(self):
        return self.built and self.lora_enabled and self.quantization_mode is None

    def _check_adapters(self, rank, alpha):
        if (rank, alpha) != (self.lora_rank, np.float32(self.lora_alpha)):
            raise ValueError(
                f"The adapters of layer '{self.path}' have rank {self.lora_rank} and "
                f"alpha {self.lora_alpha}, and so must those in the file. "
                f"Received: rank={rank}, alpha={alpha}"
            )
