"""The token embeddings of the two sides of a translation model."""

from keras_attn import layers

__all__ = ["two_embeddings"]


def two_embeddings(
    source_vocabulary_size,
    target_vocabulary_size,
    hidden_dim,
    share_embeddings,
    dtype,
):
    """Embeddings of the source and of the target, which also projects back.

    Args:
        source_vocabulary_size: int.
        target_vocabulary_size: int; None where both sides have one vocabulary.
        hidden_dim: int, width of the vectors.
        share_embeddings: bool, whether the target's projection is its embedding and,
            where there is one vocabulary, both embeddings are one layer.
        dtype: of the layers.

    Returns:
        A pair of `TokenEmbedding`s.
    """

    def embedding(vocabulary_size, name, tie_weights=True):
        return layers.TokenEmbedding(
            vocabulary_size,
            hidden_dim,
            scale=True,
            tie_weights=tie_weights,
            dtype=dtype,
            name=name,
        )

    has_one_vocabulary = target_vocabulary_size is None
    target = embedding(
        source_vocabulary_size if has_one_vocabulary else target_vocabulary_size,
        "target_embedding",
        tie_weights=share_embeddings,
    )
    if has_one_vocabulary and share_embeddings:
        return target, target
    return embedding(source_vocabulary_size, "source_embedding"), target
