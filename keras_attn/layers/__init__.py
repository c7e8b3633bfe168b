"""Attention layers and the blocks made of them."""

from keras_attn.layers.additive_attention import AdditiveAttention
from keras_attn.layers.alibi_position_bias import AlibiPositionBias
from keras_attn.layers.cross_attention import CrossAttention
from keras_attn.layers.deep_norm import deep_norm
from keras_attn.layers.dot_product_attention import DotProductAttention
from keras_attn.layers.feed_forward import FeedForward
from keras_attn.layers.linear_self_attention import LinearSelfAttention
from keras_attn.layers.multi_head_attention import MultiHeadAttention
from keras_attn.layers.position_embedding import PositionEmbedding
from keras_attn.layers.recurrent_decoder import RecurrentDecoder
from keras_attn.layers.recurrent_encoder import RecurrentEncoder
from keras_attn.layers.relative_position_bias import RelativePositionBias
from keras_attn.layers.rotary_position_embedding import RotaryPositionEmbedding
from keras_attn.layers.self_attention import MultiHeadSelfAttention
from keras_attn.layers.sinusoidal_position_embedding import (
    SinusoidalPositionEmbedding,
)
from keras_attn.layers.token_embedding import TokenEmbedding
from keras_attn.layers.transformer_decoder import TransformerDecoder
from keras_attn.layers.transformer_encoder import TransformerEncoder

__all__ = [
    "AdditiveAttention",
    "AlibiPositionBias",
    "CrossAttention",
    "DotProductAttention",
    "FeedForward",
    "LinearSelfAttention",
    "MultiHeadAttention",
    "MultiHeadSelfAttention",
    "PositionEmbedding",
    "RecurrentDecoder",
    "RecurrentEncoder",
    "RelativePositionBias",
    "RotaryPositionEmbedding",
    "SinusoidalPositionEmbedding",
    "TokenEmbedding",
    "TransformerDecoder",
    "TransformerEncoder",
    "deep_norm",
]
