"""Mathematics of attention: pure functions on tensors, no variables."""

from keras_attn.ops import biases, caches, masks, rotary
from keras_attn.ops.additive_attention import additive_attention
from keras_attn.ops.attention import attention_kernel, dot_product_attention
from keras_attn.ops.linear import (
    linear_attention,
    linear_attention_step,
    linear_attention_weights,
)
from keras_attn.ops.positions import segment_positions, sinusoids

__all__ = [
    "additive_attention",
    "attention_kernel",
    "biases",
    "caches",
    "dot_product_attention",
    "linear_attention",
    "linear_attention_step",
    "linear_attention_weights",
    "masks",
    "rotary",
    "segment_positions",
    "sinusoids",
]
