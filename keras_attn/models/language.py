"""Decoder-only language models."""

import keras

from keras_attn import layers
from keras_attn._types import ActivationLike, DTypeLike
from keras_attn.layers._internal.arguments import copy_layer, positive_int
from keras_attn.models.half_precision import check_dtype, functional_model
from keras_attn.models.initial_values import QKV_GAIN, output_gain

__all__ = ["causal_language_model"]


def causal_language_model(
    vocabulary_size: int,
    num_layers: int = 6,
    hidden_dim: int = 512,
    intermediate_dim: int = 2048,
    num_heads: int = 8,
    *,
    dropout: float = 0.1,
    normalize_first: bool = True,
    tie_weights: bool = True,
    max_length: int | None = None,
    activation: ActivationLike = "gelu",
    attention: keras.layers.Layer | None = None,
    name: str = "causal_language_model",
    dtype: DTypeLike | None = None,
) -> keras.Model:
    """Return a decoder-only Transformer that predicts the next token.

    The defaults are those of GPT-2 (pre-norm, GELU, tied input and output embeddings)
    with the sinusoidal positions of the original Transformer. `max_length=1024` selects
    the learned positions of GPT-2.

    Initial values: the query, key and value projections are those of Xavier for one
    matrix of the three, and in pre-norm blocks the last layer of each residual branch
    is divided by the square root of the number of branches, as in GPT-2; see
    `docs/training.md`. A layer given as `attention` keeps its own.

    Args:
        vocabulary_size: int, number of token ids. Id 0 is padding.
        num_layers: int, number of decoder blocks.
        hidden_dim: int, model width.
        intermediate_dim: int, width of the hidden layer of the feed-forward networks.
        num_heads: int, number of attention heads per layer. Must divide `hidden_dim`.
        dropout: float in [0, 1), dropout rate.
        normalize_first: bool, whether the blocks are pre-norm. A final layer
            normalization then follows the last block.
        tie_weights: bool, whether the output projection is tied to the token
            embedding.
        max_length: int, number of learned positions, which is the longest sequence
            that the model accepts. None: sinusoidal positions, for any length.
        activation: activation of the feed-forward networks, a name or a function.
        attention: a layer that each block uses a copy of as its self-attention, for
            example `MultiHeadSelfAttention(num_heads, sliding_window=64)` or
            `LinearSelfAttention(num_heads)`; `num_heads` is then not used. None:
            `MultiHeadSelfAttention` with the defaults of the block.
        name: str, name of the model.
        dtype: dtype or dtype policy of the layers.

    Returns:
        A `keras.Model` from token ids, int32 `(B, T)`, to logits
        `(B, T, vocabulary_size)`. The name of the input is `"token_ids"`. The logits at
        position `t` are those of the token at `t + 1`.

    Raises:
        ValueError: if a size is not positive, if `num_heads` does not divide
            `hidden_dim`, or if `dtype` is a quantized policy.

    Example:
        >>> import numpy as np
        >>> from keras_attn import models
        >>> model = models.causal_language_model(
        ...     50, num_layers=1, hidden_dim=8, intermediate_dim=16, num_heads=2
        ... )
        >>> logits = model(np.array([[4, 5, 6]]))
        >>> tuple(logits.shape)
        (1, 3, 50)

    Reference:
        Radford et al. 2019, "Language Models are Unsupervised Multitask Learners".
    """
    check_dtype(dtype)
    num_layers = positive_int("num_layers", num_layers)
    embedding = layers.TokenEmbedding(
        vocabulary_size,
        hidden_dim,
        # Unscaled embeddings are small compared with sinusoids, whose amplitude is 1.
        scale=max_length is None,
        tie_weights=tie_weights,
        dtype=dtype,
        name="embedding",
    )
    if max_length is None:
        position = layers.SinusoidalPositionEmbedding(dtype=dtype, name="position")
    else:
        position = layers.PositionEmbedding(max_length, dtype=dtype, name="position")
    token_ids = keras.Input((None,), dtype="int32", name="token_ids")
    x = position(embedding(token_ids))  # (B, T, D)
    x = keras.layers.Dropout(dropout, dtype=dtype, name="dropout")(x)
    for i in range(num_layers):
        x = layers.TransformerDecoder(
            intermediate_dim,
            num_heads,
            dropout=dropout,
            activation=activation,
            normalize_first=normalize_first,
            attention=attention and copy_layer(attention, "self_attention"),
            qkv_gain=QKV_GAIN,
            output_gain=output_gain(num_layers, 2, normalize_first),
            dtype=dtype,
            name=f"decoder_{i}",
        )(x)
    if normalize_first:
        x = keras.layers.LayerNormalization(epsilon=1e-5, dtype=dtype, name="norm")(x)
    return functional_model(token_ids, embedding(x, reverse=True), name)
