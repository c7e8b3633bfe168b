"""Models of text that is read in both directions at once."""

import keras
from keras import ops

from keras_attn import layers
from keras_attn.layers._internal.arguments import positive_int
from keras_attn.layers.embedding.output_bias import OutputBias
from keras_attn.layers.embedding.pooling import TokenPooling

__all__ = ["masked_language_model", "text_classifier"]


def masked_language_model(
    vocabulary_size,
    num_layers=12,
    hidden_dim=768,
    intermediate_dim=3072,
    num_heads=12,
    max_length=512,
    num_token_types=None,
    dropout=0.1,
    activation="gelu",
    layer_norm_epsilon=1e-12,
    name="masked_language_model",
    dtype=None,
):
    """BERT, which tells the tokens that a mask token stands for from those around.

    The defaults are the paper's BERT-Base, segments aside. It is trained on texts some
    of whose tokens were replaced by a mask token, with the tokens that stood there as
    labels and 0, padding, as the label of all others.

    Args:
        vocabulary_size: int, number of token ids; 0 is padding.
        num_layers: int, number of encoder blocks.
        hidden_dim: int, model width.
        intermediate_dim: int, width of the feed-forward networks' middle.
        num_heads: int, attention heads of each layer; must divide `hidden_dim`.
        max_length: int, number of learned positions, the longest text there can be.
        num_token_types: int, number of kinds of segments (BERT's token types: 2, the
            first and the second sentence); None for a model that knows none.
        dropout: float in [0, 1).
        activation: of the feed-forward networks and of the prediction head.
        layer_norm_epsilon: float, epsilon of the normalization layers.
        name, dtype: of the model and of its layers.

    Returns:
        A `keras.Model` from ids int32 `(B, T)`, its input `"tokens"`, to logits
        `(B, T, vocabulary_size)`; those at position `t` are of the token at `t`. With
        `num_token_types` from `{"tokens": (B, T), "segments": (B, T)}`, both int32, where
        the numbers of the segments begin at 0.

    Raises:
        ValueError: for sizes that are not positive or do not divide; from the model,
            for a text longer than `max_length`.

    Example:
        >>> model = masked_language_model(8000, num_layers=2)
        >>> model.compile("adam", training.MaskedCrossentropy())
        >>> model.fit(ids_with_mask_tokens, ids_under_mask_tokens)

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
    return keras.Model(inputs, logits, name=name)


def text_classifier(
    vocabulary_size,
    num_classes,
    num_layers=12,
    hidden_dim=768,
    intermediate_dim=3072,
    num_heads=12,
    max_length=512,
    num_token_types=None,
    dropout=0.1,
    pooling="first",
    activation="gelu",
    layer_norm_epsilon=1e-12,
    name="text_classifier",
    dtype=None,
):
    """The encoder of `masked_language_model`, with classes of a whole text above it.

    Layers up to the last encoder block have the same names in both, so that weights
    can be copied from a trained masked language model. Between the pooled vector and
    the logits there is dropout only, not the dense layer with tanh that BERT has there.

    Args:
        vocabulary_size: int, number of token ids; 0 is padding.
        num_classes: int, number of classes.
        pooling: `"first"`, the vector of the first token (BERT's class token), or
            `"mean"`, the mean over the tokens that are not padding, zero where there
            are none.
        num_layers, hidden_dim, intermediate_dim, num_heads, max_length, num_token_types,
            dropout, activation, layer_norm_epsilon, name, dtype: see
            `masked_language_model`.

    Returns:
        A `keras.Model` from what `masked_language_model` takes to logits
        `(B, num_classes)`.

    Raises:
        ValueError: for sizes that are not positive or do not divide, another
            `pooling`; from the model, for a text longer than `max_length`.

    Example:
        >>> model = text_classifier(8000, num_classes=3, num_layers=2)
        >>> for layer in model.layers:
        ...     if layer.name == "embedding" or layer.name.startswith("encoder_"):
        ...         layer.set_weights(pretrained.get_layer(layer.name).get_weights())

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
    tokens = inputs["tokens"] if num_token_types else inputs
    x = TokenPooling(pooling, dtype=dtype, name="pooled")(x, ops.not_equal(tokens, 0))
    x = keras.layers.Dropout(dropout, dtype=dtype, name="pooled_dropout")(x)
    logits = keras.layers.Dense(num_classes, dtype=dtype, name="logits")(x)
    return keras.Model(inputs, logits, name=name)


def _encoder(
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
):
    """What both models begin with: the inputs, `(B, T, D)`, and the embedding."""
    num_layers = positive_int("num_layers", num_layers)
    max_length = positive_int("max_length", max_length)
    num_token_types = positive_int("num_token_types", num_token_types, optional=True)
    embedding = layers.TokenEmbedding(
        vocabulary_size, hidden_dim, dtype=dtype, name="embedding"
    )
    inputs = tokens = keras.Input((None,), dtype="int32", name="tokens")
    x = embedding(tokens)
    x = layers.PositionEmbedding(max_length, dtype=dtype, name="position")(x)
    if num_token_types is not None:
        segments = keras.Input((None,), dtype="int32", name="segments")
        inputs = {"tokens": tokens, "segments": segments}
        # Learned vectors to add, chosen by number, are what it has, and it leaves the
        # mask of the tokens on the sum, other than `keras.layers.Add`.
        x = layers.PositionEmbedding(num_token_types, dtype=dtype, name="segment")(
            x, positions=segments
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
