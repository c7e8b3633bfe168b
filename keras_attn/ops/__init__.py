"""Mathematics of attention: pure functions on tensors, no variables."""

from keras_attn.ops import kv_cache, masks
from keras_attn.ops.attention.additive import additive_attention
from keras_attn.ops.attention.dot_product import attention_kernel, dot_product_attention
from keras_attn.ops.attention.linear import (
    linear_attention,
    linear_attention_step,
    linear_attention_weights,
)
from keras_attn.ops.position import bias as biases
from keras_attn.ops.position import rotary
from keras_attn.ops.position.sinusoidal import segment_positions, sinusoids

__all__ = [
    "additive_attention",
    "attention_kernel",
    "biases",
    "dot_product_attention",
    "kv_cache",
    "linear_attention",
    "linear_attention_step",
    "linear_attention_weights",
    "masks",
    "rotary",
    "segment_positions",
    "sinusoids",
]
