"""BERT: a masked language model and a text classifier with the same encoder."""

from typing import Any

import keras
from keras import ops

from keras_attn import layers
from keras_attn._types import ActivationLike, DTypeLike
from keras_attn.layers._internal.arguments import positive_int
from keras_attn.layers.embedding.output_bias import OutputBias
from keras_attn.layers.embedding.pooling import TokenPooling
from keras_attn.models.half_precision import check_dtype, functional_model

__all__ = ["masked_language_model", "text_classifier"]


def masked_language_model(
    vocabulary_size: int,
    num_layers: int = 12,
    hidden_dim: int = 768,
    intermediate_dim: int = 3072,
    num_heads: int = 12,
    *,
    max_length: int = 512,
    num_token_types: int | None = None,
    dropout: float = 0.1,
    activation: ActivationLike = "gelu",
    layer_norm_epsilon: float = 1e-12,
    name: str = "masked_language_model",
    dtype: DTypeLike | None = None,
) -> keras.Model:
    """Return BERT with its masked language modeling head.

    The defaults are those of BERT-Base without token types. For training, some tokens
    of each sequence are replaced by a mask token; the labels are the original tokens at
    the replaced positions and 0 (padding) at all other positions.

    Args:
        vocabulary_size: int, number of token ids. Id 0 is padding.
        num_layers: int, number of encoder blocks.
        hidden_dim: int, model width.
        intermediate_dim: int, width of the hidden layer of the feed-forward networks.
        num_heads: int, number of attention heads per layer. Must divide `hidden_dim`.
        max_length: int, number of learned positions, which is the longest sequence
            that the model accepts.
        num_token_types: int, size of the token type embedding; 2 in BERT, for the first
            and the second sentence of a pair. None: the model has no token types.
        dropout: float in [0, 1), dropout rate.
        activation: activation of the feed-forward networks and of the prediction head,
            a name or a function.
        layer_norm_epsilon: float, epsilon of the normalization layers.
        name: str, name of the model.
        dtype: dtype or dtype policy of the layers.

    Returns:
        A `keras.Model` from token ids, int32 `(B, T)`, to logits
        `(B, T, vocabulary_size)`. The name of the input is `"token_ids"`. The logits at
        position `t` are those of the token at `t`. With `num_token_types`, the inputs
        are `{"token_ids": (B, T), "token_type_ids": (B, T)}`, both int32; token types
        are numbered from 0.

    Raises:
        ValueError: if a size is not positive, if `num_heads` does not divide
            `hidden_dim`, or if `dtype` is a quantized policy. Calling the model raises
            it for a sequence longer than `max_length`.

    Example:
        >>> import numpy as np
        >>> from keras_attn import models
        >>> model = models.masked_language_model(
        ...     50,
        ...     num_layers=1,
        ...     hidden_dim=8,
        ...     intermediate_dim=16,
        ...     num_heads=2,
        ...     max_length=10,
        ...     num_token_types=2,
        ... )
        >>> token_ids = np.array([[4, 5, 6, 7]])
        >>> token_type_ids = np.array([[0, 0, 1, 1]])
        >>> logits = model({"token_ids": token_ids, "token_type_ids": token_type_ids})
        >>> tuple(logits.shape)
        (1, 4, 50)

    Reference:
        Devlin et al. 2018, "BERT: Pre-training of Deep Bidirectional Transformers for
        Language Understanding" (https://arxiv.org/abs/1810.04805).
    """
    inputs, x, embedding = _encoder(
        vocabulary_size,
        num_layers,
        hidden_dim,
        intermediate_dim,
        num_heads,
        max_length,
        num_token_types,
        dropout,
        activation,
        layer_norm_epsilon,
        dtype,
    )
    x = keras.layers.Dense(hidden_dim, activation, dtype=dtype, name="head")(x)
    x = keras.layers.LayerNormalization(
        epsilon=layer_norm_epsilon, dtype=dtype, name="head_norm"
    )(x)
    logits = embedding(x, reverse=True)
    logits = OutputBias(dtype=dtype, name="head_bias")(logits)
    return functional_model(inputs, logits, name)


def text_classifier(
    vocabulary_size: int,
    num_classes: int,
    num_layers: int = 12,
    hidden_dim: int = 768,
    intermediate_dim: int = 3072,
    *,
    num_heads: int = 12,
    max_length: int = 512,
    num_token_types: int | None = None,
    dropout: float = 0.1,
    pooling: str = "first",
    activation: ActivationLike = "gelu",
    layer_norm_epsilon: float = 1e-12,
    name: str = "text_classifier",
    dtype: DTypeLike | None = None,
) -> keras.Model:
    """Return the encoder of `masked_language_model` with a classification head.

    The layers up to the last encoder block have the same names in both models, so that
    the weights of a trained masked language model can be copied. The head is dropout
    and a projection to the logits; it does not have BERT's dense layer with tanh.

    Args:
        vocabulary_size: int, number of token ids. Id 0 is padding.
        num_classes: int, number of classes.
        num_layers: int, number of encoder blocks.
        hidden_dim: int, model width.
        intermediate_dim: int, width of the hidden layer of the feed-forward networks.
        num_heads: int, number of attention heads per layer. Must divide `hidden_dim`.
        max_length: int, number of learned positions, which is the longest sequence
            that the model accepts.
        num_token_types: int or None, size of the token type embedding.
        dropout: float in [0, 1), dropout rate.
        pooling: `"first"` pools to the vector of the first token (the class token of
            BERT), `"mean"` to the mean over all tokens that are not padding, which is
            zero for a sequence of padding.
        activation: activation of the feed-forward networks, a name or a function.
        layer_norm_epsilon: float, epsilon of the normalization layers.
        name: str, name of the model.
        dtype: dtype or dtype policy of the layers.

    Returns:
        A `keras.Model` from the inputs of `masked_language_model` to logits
        `(B, num_classes)`.

    Raises:
        ValueError: if a size is not positive, if `num_heads` does not divide
            `hidden_dim`, if `pooling` is not supported, or if `dtype` is a quantized
            policy. Calling the model raises it
            for a sequence longer than `max_length`.

    Example:
        >>> from keras_attn import models
        >>> sizes = dict(num_layers=1, hidden_dim=8, intermediate_dim=16, num_heads=2)
        >>> pretrained = models.masked_language_model(50, **sizes)
        >>> model = models.text_classifier(50, num_classes=3, **sizes)
        >>> for name in ("embedding", "position", "norm", "encoder_0"):
        ...     weights = pretrained.get_layer(name).get_weights()
        ...     model.get_layer(name).set_weights(weights)
        >>> model.output_shape
        (None, 3)

    Reference:
        Devlin et al. 2018 (https://arxiv.org/abs/1810.04805), section 4.1.
    """
    num_classes = positive_int("num_classes", num_classes)
    if pooling not in ("first", "mean"):
        raise ValueError(
            f"`pooling` must be 'first' or 'mean'. Received: pooling={pooling!r}"
        )
    inputs, x, _ = _encoder(
        vocabulary_size,
        num_layers,
        hidden_dim,
        intermediate_dim,
        num_heads,
        max_length,
        num_token_types,
        dropout,
        activation,
        layer_norm_epsilon,
        dtype,
    )
    token_ids = inputs["token_ids"] if isinstance(inputs, dict) else inputs
    padding_mask = ops.not_equal(token_ids, 0)
    x = TokenPooling(pooling, dtype=dtype, name="pooled")(x, padding_mask)  # (B, D)
    x = keras.layers.Dropout(dropout, dtype=dtype, name="pooled_dropout")(x)
    logits = keras.layers.Dense(num_classes, dtype=dtype, name="logits")(x)
    return functional_model(inputs, logits, name)


def _encoder(
    vocabulary_size: int,
    num_layers: int,
    hidden_dim: int,
    intermediate_dim: int,
    num_heads: int,
    max_length: int,
    num_token_types: int | None,
    dropout: float,
    activation: ActivationLike,
    layer_norm_epsilon: float,
    dtype: DTypeLike | None,
) -> tuple[
    keras.KerasTensor | dict[str, keras.KerasTensor],
    keras.KerasTensor,
    layers.TokenEmbedding,
]:
    """Return the inputs, the hidden states `(B, T, D)` and the token embedding."""
    check_dtype(dtype)
    num_layers = positive_int("num_layers", num_layers)
    max_length = positive_int("max_length", max_length)
    num_token_types = positive_int("num_token_types", num_token_types, optional=True)
    embedding = layers.TokenEmbedding(
        vocabulary_size, hidden_dim, dtype=dtype, name="embedding"
    )
    # `Any`: the inferred type of `keras.Input` includes a list.
    token_ids: Any = keras.Input((None,), dtype="int32", name="token_ids")
    inputs = token_ids
    x = embedding(token_ids)
    x = layers.PositionEmbedding(max_length, dtype=dtype, name="position")(x)
    if num_token_types is not None:
        token_type_ids = keras.Input((None,), dtype="int32", name="token_type_ids")
        inputs = {"token_ids": token_ids, "token_type_ids": token_type_ids}
        # `PositionEmbedding` adds a learned vector per id and, unlike
        # `keras.layers.Add`, keeps the padding mask of the tokens.
        x = layers.PositionEmbedding(num_token_types, dtype=dtype, name="token_type")(
            x, positions=token_type_ids
        )
    x = keras.layers.LayerNormalization(
        epsilon=layer_norm_epsilon, dtype=dtype, name="norm"
    )(x)
    x = keras.layers.Dropout(dropout, dtype=dtype, name="dropout")(x)
    for i in range(num_layers):
        x = layers.TransformerEncoder(
            intermediate_dim,
            num_heads,
            dropout=dropout,
            activation=activation,
            layer_norm_epsilon=layer_norm_epsilon,
            dtype=dtype,
            name=f"encoder_{i}",
        )(x)
    return inputs, x, embedding
