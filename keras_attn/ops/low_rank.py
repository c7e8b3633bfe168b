"""Kernels and what low-rank adapters add to them."""

from keras import ops

__all__ = ["merged"]


def merged(kernel, adapter_a, adapter_b, scale):
    """`kernel + scale * adapter_a @ adapter_b`, summed in float32.

    Args:
        kernel: `(..., D)`, of any float dtype.
        adapter_a: `(..., rank)` float32.
        adapter_b: `(rank, D)` float32.
        scale: float.

    Returns:
        A tensor of the kernel's shape and dtype.

    Reference:
        Hu et al. 2021, "LoRA", section 4.1 (https://arxiv.org/abs/2106.09685).
    """
    kernel = ops.convert_to_tensor(kernel)
    product = ops.matmul(
        ops.convert_to_tensor(adapter_a), ops.convert_to_tensor(adapter_b)
    )
    return ops.cast(ops.cast(kernel, "float32") + scale * product, kernel.dtype)
