"""Recurrent encoder-decoder models for translation."""

import functools
from collections.abc import Callable
from typing import Any

import keras

from keras_attn import layers
from keras_attn._types import DTypeLike
from keras_attn.layers._internal.arguments import positive_int
from keras_attn.layers.attention.attention_layer import AttentionLayer
from keras_attn.models.embeddings import translation_embeddings
from keras_attn.models.half_precision import check_dtype, functional_model

__all__ = ["recurrent_translator"]

_ATTENTIONS: dict[str, Callable[..., AttentionLayer]] = {
    "additive": layers.AdditiveAttention,
    "dot": functools.partial(layers.DotProductAttention, "dot"),
    "scaled": functools.partial(layers.DotProductAttention, "scaled"),
    "general": functools.partial(layers.DotProductAttention, "general"),
}


def recurrent_translator(
    source_vocabulary_size: int,
    target_vocabulary_size: int | None = None,
    attention: Any = "additive",
    cell: str = "gru",
    num_layers: int = 1,
    *,
    hidden_dim: int = 512,
    dropout: float = 0.1,
    bidirectional: bool = True,
    input_feeding: bool = True,
    residual: bool = False,
    share_embeddings: bool = True,
    name: str = "recurrent_translator",
    dtype: DTypeLike | None = None,
) -> keras.Model:
    """Return a recurrent encoder-decoder for translation.

    Decoding, attention maps and export work as for `transformer_translator`.

    Args:
        source_vocabulary_size: int, number of source token ids. Id 0 is padding.
        target_vocabulary_size: int, number of target token ids. Id 0 is padding.
            None: source and target share one vocabulary.
        attention: `"additive"` (Bahdanau), `"dot"`, `"scaled"` or `"general"` (Luong),
            or an attention layer of keras_attn. The scores of `"general"` are divided
            by the square root of `hidden_dim`, without which training is slow. None:
            no attention; the decoder receives only the final states of the encoder.
        cell: `"gru"` or `"lstm"`.
        num_layers: int, number of encoder layers and of decoder layers.
        hidden_dim: int, width of the embeddings, the encoder outputs and the decoder
            states.
        dropout: float in [0, 1), dropout rate of the inputs of the recurrent layers.
        bidirectional: bool, whether the encoder is bidirectional, with `hidden_dim / 2`
            units per direction.
        input_feeding: bool, see `keras_attn.layers.RecurrentDecoder`.
        residual: bool, see `keras_attn.layers.RecurrentDecoder`.
        share_embeddings: bool. True: the output projection is tied to the target
            embedding and, with one vocabulary, to the source embedding as well. False:
            the model has three separate matrices.
        name: str, name of the model.
        dtype: dtype or dtype policy of the layers.

    Returns:
        A `keras.Model` from `{"source": (B, S), "target": (B, T)}`, both int32, to
        logits `(B, T, V)`, where V is the size of the target vocabulary.

    Raises:
        ValueError: if a size is not positive, if `attention` or `cell` is not
            supported, or if `dtype` is a quantized policy.

    Example:
        >>> from keras_attn import models
        >>> model = models.recurrent_translator(50, attention="general", hidden_dim=8)
        >>> model.output_shape
        (None, None, 50)

    Reference:
        Bahdanau et al. 2014 (https://arxiv.org/abs/1409.0473), Luong et al. 2015
        (https://arxiv.org/abs/1508.04025), Sutskever et al. 2014
        (https://arxiv.org/abs/1409.3215).
    """
    check_dtype(dtype)
    hidden_dim = positive_int("hidden_dim", hidden_dim)
    if isinstance(attention, str) and attention in _ATTENTIONS:
        options = {"scale": hidden_dim**-0.5} if attention == "general" else {}
        attention = _ATTENTIONS[attention](dtype=dtype, name="attention", **options)
    elif not isinstance(attention, (AttentionLayer, type(None))):
        raise ValueError(
            f"`attention` must be one of {tuple(_ATTENTIONS)}, an attention layer of "
            f"keras_attn, or None. Received: attention={attention!r}"
        )

    shared_options: dict[str, Any] = dict(
        num_layers=num_layers,
        cell=cell,
        residual=residual,
        dropout=dropout,
        dtype=dtype,
    )
    source_embedding, target_embedding = translation_embeddings(
        source_vocabulary_size,
        target_vocabulary_size,
        hidden_dim,
        share_embeddings,
        dtype,
    )
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    encoded, state = layers.RecurrentEncoder(
        hidden_dim, bidirectional=bidirectional, name="encoder", **shared_options
    )(source_embedding(source))
    decoded = layers.RecurrentDecoder(
        hidden_dim,
        attention=attention,
        input_feeding=input_feeding,
        name="decoder",
        **shared_options,
    )(
        target_embedding(target),
        None if attention is None else encoded,
        state,
    )
    decoded = keras.layers.Dropout(dropout, dtype=dtype, name="dropout")(decoded)
    logits = target_embedding(decoded, reverse=True)
    return functional_model({"source": source, "target": target}, logits, name)
