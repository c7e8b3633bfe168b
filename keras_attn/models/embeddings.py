"""Source and target token embeddings of translation models."""

from keras_attn import layers
from keras_attn._types import DTypeLike, InitializerLike
from keras_attn.layers._internal import arguments

__all__ = ["translation_embeddings"]


def translation_embeddings(
    source_vocabulary_size: int,
    target_vocabulary_size: int | None,
    hidden_dim: int,
    share_embeddings: bool,
    dtype: DTypeLike | None,
    embeddings_initializer: InitializerLike | None = None,
) -> tuple[layers.TokenEmbedding, layers.TokenEmbedding]:
    """Return the token embeddings of the source and of the target.

    The target embedding also computes the logits, with `reverse=True`.

    Args:
        source_vocabulary_size: int, number of source token ids.
        target_vocabulary_size: int, number of target token ids. None: source and
            target share one vocabulary.
        hidden_dim: int, width of the embeddings.
        share_embeddings: bool, whether the output projection is tied to the target
            embedding and, with one vocabulary, the same layer embeds both sides.
        dtype: dtype or dtype policy of the layers.
        embeddings_initializer: initializer of the embeddings and of a separate output
            projection. Default: that of `TokenEmbedding`.

    Returns:
        A tuple `(source_embedding, target_embedding)` of `TokenEmbedding` layers,
        which are the same layer if the embeddings of one vocabulary are shared.
    """

    def embedding(
        vocabulary_size: int, name: str, tie_weights: bool = True
    ) -> layers.TokenEmbedding:
        return layers.TokenEmbedding(
            vocabulary_size,
            hidden_dim,
            scale=True,
            tie_weights=tie_weights,
            embeddings_initializer=arguments.clone_initializer(embeddings_initializer),
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
