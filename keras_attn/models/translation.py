"""Translation models."""

import keras

from keras_attn import layers
from keras_attn.layers._internal.arguments import positive_int
from keras_attn.models.embeddings import two_embeddings

__all__ = ["transformer_translator"]


def transformer_translator(
    source_vocabulary_size,
    target_vocabulary_size=None,
    num_layers=6,
    hidden_dim=512,
    intermediate_dim=2048,
    num_heads=8,
    dropout=0.1,
    normalize_first=False,
    share_embeddings=True,
    activation="relu",
    name="transformer_translator",
    dtype=None,
):
    """The encoder-decoder Transformer for translation, as a Functional model.

    The defaults are the paper's base model; the big one is `hidden_dim=1024,
    intermediate_dim=4096, num_heads=16, dropout=0.3`.

    Args:
        source_vocabulary_size: int, number of source token ids; 0 is padding.
        target_vocabulary_size: int, number of target token ids; 0 is padding.
            Default: source and target share one vocabulary.
        num_layers: int, number of encoder blocks and of decoder blocks; or a pair.
        hidden_dim: int, model width.
        intermediate_dim: int, width of the feed-forward networks' middle.
        num_heads: int, attention heads of each layer; must divide `hidden_dim`.
        dropout: float in [0, 1).
        normalize_first: bool, whether blocks normalize their branches' inputs; each
            stack then ends with a normalization of its own.
        share_embeddings: bool. True: the output projection is the target embedding,
            and where there is one vocabulary, so is the source embedding. False:
            three matrices.
        activation: of the feed-forward networks.
        name, dtype: of the model and of its layers.

    Returns:
        A `keras.Model` from `{"source": int32 (B, S), "target": int32 (B, T)}` to
        logits `(B, T, target vocabulary)`.

    Raises:
        ValueError: for sizes that are not positive or do not divide.

    Example:
        >>> model = transformer_translator(37000)
        >>> model.count_params()
        63082496

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need"
        (https://arxiv.org/abs/1706.03762).
    """
    pair = isinstance(num_layers, (tuple, list))
    encoder_layers, decoder_layers = (
        positive_int("num_layers", number)
        for number in (num_layers if pair else (num_layers, num_layers))
    )

    def embed(embedding, ids, name):
        x = embedding(ids)
        x = layers.SinusoidalPositionEmbedding(dtype=dtype, name=f"{name}_position")(x)
        return keras.layers.Dropout(dropout, dtype=dtype, name=f"{name}_dropout")(x)

    def block(layer_class, name):
        return layer_class(
            intermediate_dim,
            num_heads,
            dropout=dropout,
            activation=activation,
            normalize_first=normalize_first,
            dtype=dtype,
            name=name,
        )

    def end(x, name):
        if not normalize_first:
            return x
        return keras.layers.LayerNormalization(
            epsilon=1e-5, dtype=dtype, name=f"{name}_norm"
        )(x)

    source_embedding, target_embedding = two_embeddings(
        source_vocabulary_size,
        target_vocabulary_size,
        hidden_dim,
        share_embeddings,
        dtype,
    )
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    encoded = embed(source_embedding, source, "source")
    for i in range(encoder_layers):
        encoded = block(layers.TransformerEncoder, f"encoder_{i}")(encoded)
    encoded = end(encoded, "encoder")
    decoded = embed(target_embedding, target, "target")
    for i in range(decoder_layers):
        decoded = block(layers.TransformerDecoder, f"decoder_{i}")(decoded, encoded)
    decoded = end(decoded, "decoder")
    logits = target_embedding(decoded, reverse=True)
    return keras.Model({"source": source, "target": target}, logits, name=name)
