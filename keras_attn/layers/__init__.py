"""Attention layers and the blocks made of them."""

from keras_attn.layers.attention.additive_attention import AdditiveAttention
from keras_attn.layers.attention.cross_attention import CrossAttention
from keras_attn.layers.attention.dot_product_attention import DotProductAttention
from keras_attn.layers.attention.linear_attention import LinearSelfAttention
from keras_attn.layers.attention.multi_head_attention import MultiHeadAttention
from keras_attn.layers.attention.self_attention import MultiHeadSelfAttention
from keras_attn.layers.embedding.token_embedding import TokenEmbedding
from keras_attn.layers.position.alibi_position_bias import AlibiPositionBias
from keras_attn.layers.position.learned import PositionEmbedding
from keras_attn.layers.position.relative_position_bias import RelativePositionBias
from keras_attn.layers.position.rotary import RotaryPositionEmbedding
from keras_attn.layers.position.sinusoidal import (
    SinusoidalPositionEmbedding,
)
from keras_attn.layers.recurrent.decoder import RecurrentDecoder
from keras_attn.layers.recurrent.encoder import RecurrentEncoder
from keras_attn.layers.transformer.decoder import TransformerDecoder
from keras_attn.layers.transformer.deep_norm import deep_norm
from keras_attn.layers.transformer.encoder import TransformerEncoder
from keras_attn.layers.transformer.feed_forward import FeedForward

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
