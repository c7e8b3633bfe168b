"""Weights with a low-rank adapter (LoRA) added."""

# Keras's functions are inferred to return None for a backend without them.
# pyright: reportOperatorIssue=false

from keras import ops

from keras_attn._types import Tensor

__all__ = ["merge_adapter"]


def merge_adapter(
    weight: Tensor, lora_a: Tensor, lora_b: Tensor, scale: float
) -> Tensor:
    """Return `weight + scale * lora_a @ lora_b`, summed in float32.

    Args:
        weight: `(..., D)`, of any float dtype.
        lora_a: `(..., rank)` float32.
        lora_b: `(rank, D)` float32.
        scale: Factor of the adapter.

    Returns:
        A tensor of the shape and dtype of `weight`.

    Reference:
        Hu et al. 2021, "LoRA", section 4.1 (https://arxiv.org/abs/2106.09685).
    """
    weight = ops.convert_to_tensor(weight)
    product = ops.matmul(ops.convert_to_tensor(lora_a), ops.convert_to_tensor(lora_b))
    return ops.cast(ops.cast(weight, "float32") + scale * product, weight.dtype)
