"""Transformer encoder-decoder models for translation."""

from collections.abc import Callable, Sequence
from typing import Any

import keras

from keras_attn import layers
from keras_attn._types import ActivationLike, DTypeLike
from keras_attn.layers._internal.arguments import positive_int
from keras_attn.models.embeddings import translation_embeddings
from keras_attn.models.half_precision import check_dtype, functional_model
from keras_attn.models.initial_values import (
    QKV_GAIN,
    embeddings_initializer,
    output_gain,
)

__all__ = ["transformer_translator"]


def transformer_translator(
    source_vocabulary_size: int,
    target_vocabulary_size: int | None = None,
    num_layers: int | Sequence[int] = 6,
    hidden_dim: int = 512,
    intermediate_dim: int = 2048,
    *,
    num_heads: int = 8,
    dropout: float = 0.1,
    normalize_first: bool = False,
    share_embeddings: bool | None = None,
    activation: ActivationLike = "relu",
    name: str = "transformer_translator",
    dtype: DTypeLike | None = None,
) -> keras.Model:
    """Return a Transformer encoder-decoder for translation.

    The defaults are the base model of the paper, which has 63,082,496 parameters with a
    shared vocabulary of 37,000 tokens. The big model is `hidden_dim=1024,
    intermediate_dim=4096, num_heads=16, dropout=0.3`.

    Initial values: the embeddings, and a separate output projection, are normal with a
    standard deviation of `0.5 * hidden_dim**-0.5`, and the query, key and value
    projections are those of Xavier for one matrix of the three. In pre-norm blocks the
    last layer of each residual branch is divided by the square root of the number of
    branches of its stack, as in GPT-2. `docs/training.md` has the measurements, and the
    arguments that do the same in a stack of your own.

    Args:
        source_vocabulary_size: int, number of source token ids. Id 0 is padding.
        target_vocabulary_size: int, number of target token ids. Id 0 is padding.
            None: source and target share one vocabulary.
        num_layers: int, number of encoder blocks and of decoder blocks, or a pair of
            ints `(num_encoder_layers, num_decoder_layers)`.
        hidden_dim: int, model width.
        intermediate_dim: int, width of the hidden layer of the feed-forward networks.
        num_heads: int, number of attention heads per layer. Must divide `hidden_dim`.
        dropout: float in [0, 1), dropout rate.
        normalize_first: bool, whether the blocks are pre-norm. A final layer
            normalization then follows the encoder and the decoder.
        share_embeddings: bool. True: the output projection is tied to the target
            embedding and, with one vocabulary, to the source embedding as well. False:
            the model has three separate matrices. None: True with one vocabulary, as in
            the paper, and False with two, since a separate output projection learns
            faster.
        activation: activation of the feed-forward networks, a name or a function.
        name: str, name of the model.
        dtype: dtype or dtype policy of the layers.

    Returns:
        A `keras.Model` from `{"source": (B, S), "target": (B, T)}`, both int32, to
        logits `(B, T, V)`, where V is the size of the target vocabulary.

    Raises:
        ValueError: if a size is not positive, if `num_heads` does not divide
            `hidden_dim`, or if `dtype` is a quantized policy.

    Example:
        >>> import numpy as np
        >>> from keras_attn import models
        >>> model = models.transformer_translator(
        ...     50, 60, num_layers=1, hidden_dim=8, intermediate_dim=16, num_heads=2
        ... )
        >>> source, target = np.array([[4, 5, 6, 0]]), np.array([[2, 7, 8]])
        >>> tuple(model({"source": source, "target": target}).shape)
        (1, 3, 60)

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need"
        (https://arxiv.org/abs/1706.03762).
    """
    check_dtype(dtype)
    if share_embeddings is None:
        share_embeddings = target_vocabulary_size is None
    pair = num_layers if isinstance(num_layers, (tuple, list)) else [num_layers] * 2
    num_encoder_layers, num_decoder_layers = (
        positive_int("num_layers", number) for number in pair
    )

    def embed(
        embedding: layers.TokenEmbedding, ids: keras.KerasTensor, name: str
    ) -> keras.KerasTensor:
        x = embedding(ids)
        x = layers.SinusoidalPositionEmbedding(dtype=dtype, name=f"{name}_position")(x)
        return keras.layers.Dropout(dropout, dtype=dtype, name=f"{name}_dropout")(x)

    def block(
        layer_class: Callable[..., keras.layers.Layer], name: str, gain: float
    ) -> keras.layers.Layer:
        return layer_class(
            intermediate_dim,
            num_heads,
            dropout=dropout,
            activation=activation,
            normalize_first=normalize_first,
            qkv_gain=QKV_GAIN,
            output_gain=gain,
            dtype=dtype,
            name=name,
        )

    encoder_gain = output_gain(num_encoder_layers, 2, normalize_first)
    decoder_gain = output_gain(num_decoder_layers, 3, normalize_first)
    source_embedding, target_embedding = translation_embeddings(
        source_vocabulary_size,
        target_vocabulary_size,
        hidden_dim,
        share_embeddings,
        dtype,
        embeddings_initializer(positive_int("hidden_dim", hidden_dim)),
    )
    # `Any`: the inferred type of `keras.Input` includes a list.
    source: Any = keras.Input((None,), dtype="int32", name="source")
    target: Any = keras.Input((None,), dtype="int32", name="target")
    encoded = embed(source_embedding, source, "source")  # (B, S, D)
    for i in range(num_encoder_layers):
        encoded = block(layers.TransformerEncoder, f"encoder_{i}", encoder_gain)(
            encoded
        )
    if normalize_first:
        encoded = _normalize(encoded, "encoder_norm", dtype)
    decoded = embed(target_embedding, target, "target")  # (B, T, D)
    for i in range(num_decoder_layers):
        decoded = block(layers.TransformerDecoder, f"decoder_{i}", decoder_gain)(
            decoded, encoded
        )
    if normalize_first:
        decoded = _normalize(decoded, "decoder_norm", dtype)
    logits = target_embedding(decoded, reverse=True)  # (B, T, V)
    return functional_model({"source": source, "target": target}, logits, name)


def _normalize(
    x: keras.KerasTensor, name: str, dtype: DTypeLike | None
) -> keras.KerasTensor:
    """Apply the final normalization of a stack of pre-norm blocks."""
    norm: Any = keras.layers.LayerNormalization(epsilon=1e-5, dtype=dtype, name=name)
    return norm(x)
