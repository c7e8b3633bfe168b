"""T5's relative positions: a learned number for each bucket of distances."""

import keras
from keras import initializers

from keras_attn.layers._internal import arguments
from keras_attn.layers.position.position_bias import PositionBias
from keras_attn.ops.position import bias as biases

__all__ = ["RelativePositionBias"]


@keras.saving.register_keras_serializable(package="keras_attn")
class RelativePositionBias(PositionBias):
    """Attention scores plus a learned number for each head and bucket of distances.

    Given to an attention layer as `position=`, or called on scores. One object may be
    given to several layers, which then share its numbers, as in T5; saved and loaded
    they share them still, while `keras.models.clone_model` gives each its own.

    Args:
        num_heads: int, N.
        num_buckets: int, how many buckets there are: small distances have one each,
            larger ones share them on a logarithmic scale.
        max_distance: int, from which on all distances share the last bucket.
        bidirectional: bool. True: half of the buckets are for keys after the query.
            False, for causal attention: those count as distance zero.
        initializer: initializer of the numbers.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Call arguments:
        scores: `(B, N, T, S)` floats.
        start_index: int or int32 scalar tensor, position of the first query, where
            keys start at 0.

    Returns:
        A tensor like `scores`.

    Raises:
        ValueError: for sizes that are not positive ints, too few buckets, or attention
            of another number of heads.

    Example:
        >>> position = RelativePositionBias(num_heads=8)
        >>> layers = [MultiHeadSelfAttention(8, position=position) for _ in range(2)]

    Reference:
        Raffel et al. 2019, "Exploring the Limits of Transfer Learning with a Unified
        Text-to-Text Transformer", section 2.1 (https://arxiv.org/abs/1910.10683).
    """

    def __init__(
        self,
        num_heads,
        num_buckets=32,
        max_distance=128,
        bidirectional=True,
        initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads = arguments.positive_int("num_heads", num_heads)
        self.num_buckets = arguments.positive_int("num_buckets", num_buckets)
        self.max_distance = arguments.positive_int("max_distance", max_distance)
        self.bidirectional = arguments.boolean("bidirectional", bidirectional)
        self.initializer = initializers.get(initializer)
        exact = num_buckets // (4 if bidirectional else 2)
        if exact < 1 or max_distance <= exact:
            raise ValueError(
                "`num_buckets` must be at least 2, or 4 if `bidirectional`, and "
                "`max_distance` be more than what has a bucket of its own. "
                f"Received: {num_buckets=}, {max_distance=}, {bidirectional=}"
            )

    def build(self, scores_shape=None):
        self.table = self.add_weight(
            name="table",
            shape=(self.num_buckets, self.num_heads),
            initializer=self.initializer,
        )

    def bias(self, num_heads):
        """The `keras_attn.ops.position.bias.Bias` of so many heads."""
        if num_heads != self.num_heads:
            raise ValueError(
                f"Layer '{self.name}' has numbers for {self.num_heads} heads. "
                f"Received: attention of {num_heads}"
            )
        return biases.relative(self.table, self.max_distance, self.bidirectional)

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "num_buckets": self.num_buckets,
            "max_distance": self.max_distance,
            "bidirectional": self.bidirectional,
            "initializer": initializers.serialize(self.initializer),
        }
