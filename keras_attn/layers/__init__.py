"""Attention layers, and the blocks that are built of them."""

from keras_attn.layers.attention.linear_attention import LinearSelfAttention
from keras_attn.layers.attention.multi_head_attention import (
    CrossAttention,
    MultiHeadAttention,
    MultiHeadSelfAttention,
)
from keras_attn.layers.attention.single_head import (
    AdditiveAttention,
    DotProductAttention,
)
from keras_attn.layers.embedding.token_embedding import TokenEmbedding
from keras_attn.layers.position.bias import AlibiPositionBias, RelativePositionBias
from keras_attn.layers.position.learned import PositionEmbedding
from keras_attn.layers.position.rotary import RotaryPositionEmbedding
from keras_attn.layers.position.sinusoidal import SinusoidalPositionEmbedding
from keras_attn.layers.recurrent.decoder import RecurrentDecoder
from keras_attn.layers.recurrent.encoder import RecurrentEncoder
from keras_attn.layers.transformer.decoder import TransformerDecoder
from keras_attn.layers.transformer.deep_norm import deep_norm
from keras_attn.layers.transformer.encoder import TransformerEncoder
from keras_attn.layers.transformer.feed_forward import FeedForward
from keras_attn.layers.transformer.residual import Residual

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
    "Residual",
    "RotaryPositionEmbedding",
    "SinusoidalPositionEmbedding",
    "TokenEmbedding",
    "TransformerDecoder",
    "TransformerEncoder",
    "deep_norm",
]
