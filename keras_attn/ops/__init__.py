"""Mathematics of attention: pure functions on tensors, no variables."""

from keras_attn.ops import caches, masks
from keras_attn.ops.additive_attention import additive_attention
from keras_attn.ops.attention import dot_product_attention
from keras_attn.ops.positions import sinusoids

__all__ = [
    "additive_attention",
    "caches",
    "dot_product_attention",
    "masks",
    "sinusoids",
]
