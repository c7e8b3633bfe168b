"""Language models."""

import keras

from keras_attn import layers
from keras_attn.layers._internal.arguments import copy_of, positive_int

__all__ = ["causal_language_model"]


def causal_language_model(
    vocabulary_size,
    num_layers=6,
    hidden_dim=512,
    intermediate_dim=2048,
    num_heads=8,
    dropout=0.1,
    normalize_first=True,
    tie_weights=True,
    max_length=None,
    activation="gelu",
    attention=None,
    name="causal_language_model",
    dtype=None,
):
    """The decoder-only Transformer, which foretells each next token.

    The defaults are GPT-2's arrangement (normalization first, GELU, one matrix for
    input and output) with the positions of the first Transformer; `max_length=1024`
    gives GPT-2's learned ones.

    Args:
        vocabulary_size: int, number of token ids; 0 is padding.
        num_layers: int, number of decoder blocks.
        hidden_dim: int, model width.
        intermediate_dim: int, width of the feed-forward networks' middle.
        num_heads: int, attention heads of each layer; must divide `hidden_dim`.
        dropout: float in [0, 1).
        normalize_first: bool, whether blocks normalize their branches' inputs; the
            stack then ends with a normalization of its own.
        tie_weights: bool, whether the output projection is the token embedding.
        max_length: int, number of learned positions, the longest text there can be;
            None for sinusoidal positions, which have no end.
        activation: of the feed-forward networks.
        attention: a layer to make copies of for the blocks' attention, as
            `MultiHeadSelfAttention(num_heads, sliding_window=64)` or `LinearSelfAttention`, in
            place of the usual one; `num_heads` is then its own.
        name, dtype: of the model and of its layers.

    Returns:
        A `keras.Model` from ids int32 `(B, T)`, its input `"target"`, to logits
        `(B, T, vocabulary_size)`; those at position `t` are of the token at `t + 1`.

    Raises:
        ValueError: for sizes that are not positive or do not divide.

    Example:
        >>> model = causal_language_model(8000, num_layers=2)
        >>> found = generate(model, {"target": prompt_ids}, end_token_id=3)

    Reference:
        Radford et al. 2019, "Language Models are Unsupervised Multitask Learners".
    """
    num_layers = positive_int("num_layers", num_layers)
    embedding = layers.TokenEmbedding(
        vocabulary_size,
        hidden_dim,
        scale=max_length is None,  # or sinusoids of unit size would drown the vectors
        tie_weights=tie_weights,
        dtype=dtype,
        name="embedding",
    )
    if max_length is None:
        position = layers.SinusoidalPositionEmbedding(dtype=dtype, name="position")
    else:
        position = layers.PositionEmbedding(max_length, dtype=dtype, name="position")
    target = keras.Input((None,), dtype="int32", name="target")
    x = position(embedding(target))
    x = keras.layers.Dropout(dropout, dtype=dtype, name="dropout")(x)
    for i in range(num_layers):
        x = layers.TransformerDecoder(
            intermediate_dim,
            num_heads,
            dropout=dropout,
            activation=activation,
            normalize_first=normalize_first,
            attention=attention and copy_of(attention, "self_attention"),
            dtype=dtype,
            name=f"decoder_{i}",
        )(x)
    if normalize_first:
        x = keras.layers.LayerNormalization(epsilon=1e-5, dtype=dtype, name="norm")(x)
    return keras.Model(target, embedding(x, reverse=True), name=name)
