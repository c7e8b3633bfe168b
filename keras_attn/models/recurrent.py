"""The recurrent translation models that the Transformer came after."""

import functools

import keras

from keras_attn import layers
from keras_attn.layers._internal.arguments import positive_int
from keras_attn.layers.attention.attention_base import AttentionBase
from keras_attn.models.embeddings import two_embeddings

__all__ = ["recurrent_translator"]

_ATTENTIONS = {
    "additive": layers.AdditiveAttention,
    "dot": functools.partial(layers.DotProductAttention, "dot"),
    "scaled": functools.partial(layers.DotProductAttention, "scaled"),
    "general": functools.partial(layers.DotProductAttention, "general"),
}


def recurrent_translator(
    source_vocabulary_size,
    target_vocabulary_size=None,
    attention="additive",
    cell="gru",
    num_layers=1,
    hidden_dim=512,
    dropout=0.1,
    bidirectional=True,
    input_feeding=True,
    residual=False,
    share_embeddings=True,
    name="recurrent_translator",
    dtype=None,
):
    """A recurrent encoder-decoder for translation, as a Functional model.

    Used, decoded, mapped and exported as `transformer_translator` is.

    Args:
        source_vocabulary_size: int, number of source token ids; 0 is padding.
        target_vocabulary_size: int, number of target token ids; 0 is padding.
            Default: source and target share one vocabulary.
        attention: `"additive"` (Bahdanau), `"dot"`, `"scaled"` or `"general"`
            (Luong; scores over the square root of `hidden_dim`, without which it
            learns slowly), or one of this library's attention layers; None for a model
            all of whose knowledge of the source is one vector, the encoder's last
            states.
        cell: `"gru"` or `"lstm"`.
        num_layers: int, number of encoder layers and of decoder layers.
        hidden_dim: int, width of embeddings, encoder outputs and decoder states.
        dropout: float in [0, 1), of the inputs of the recurrent layers.
        bidirectional: bool, whether the encoder reads both ways, half of `hidden_dim`
            for each.
        input_feeding, residual: see `keras_attn.layers.RecurrentDecoder`.
        share_embeddings: bool. True: the output projection is the target embedding,
            and where there is one vocabulary, so is the source embedding. False:
            three matrices.
        name, dtype: of the model and of its layers.

    Returns:
        A `keras.Model` from `{"source": int32 (B, S), "target": int32 (B, T)}` to
        logits `(B, T, target vocabulary)`.

    Raises:
        ValueError: for sizes that are not positive, or another attention or cell.

    Example:
        >>> model = recurrent_translator(8000, attention="general", hidden_dim=256)
        >>> model.output_shape
        (None, None, 8000)

    Reference:
        Bahdanau et al. 2014 (https://arxiv.org/abs/1409.0473), Luong et al. 2015
        (https://arxiv.org/abs/1508.04025), Sutskever et al. 2014
        (https://arxiv.org/abs/1409.3215).
    """
    hidden_dim = positive_int("hidden_dim", hidden_dim)
    if isinstance(attention, str) and attention in _ATTENTIONS:
        options = {"scale": hidden_dim**-0.5} if attention == "general" else {}
        attention = _ATTENTIONS[attention](dtype=dtype, name="attention", **options)
    elif not isinstance(attention, (AttentionBase, type(None))):
        raise ValueError(
            f"`attention` must be one of {tuple(_ATTENTIONS)}, an attention layer of "
            f"keras_attn, or None. Received: attention={attention!r}"
        )

    sizes = dict(
        num_layers=num_layers,
        cell=cell,
        residual=residual,
        dropout=dropout,
        dtype=dtype,
    )
    source_embedding, target_embedding = two_embeddings(
        source_vocabulary_size,
        target_vocabulary_size,
        hidden_dim,
        share_embeddings,
        dtype,
    )
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    encoded, state = layers.RecurrentEncoder(
        hidden_dim, bidirectional=bidirectional, name="encoder", **sizes
    )(source_embedding(source))
    decoded = layers.RecurrentDecoder(
        hidden_dim,
        attention=attention,
        input_feeding=input_feeding,
        name="decoder",
        **sizes,
    )(
        target_embedding(target),
        None if attention is None else encoded,
        state,
    )
    decoded = keras.layers.Dropout(dropout, dtype=dtype, name="dropout")(decoded)
    logits = target_embedding(decoded, reverse=True)
    return keras.Model({"source": source, "target": target}, logits, name=name)
