"""Position biases: ALiBi, and the relative positions of T5."""

from typing import Any

import keras
from keras import initializers, ops

from keras_attn._types import InitializerLike, Shape, Tensor
from keras_attn.layers._internal import arguments
from keras_attn.ops.masks import Span
from keras_attn.ops.position import bias as biases

__all__ = ["AlibiPositionBias", "PositionBias", "RelativePositionBias"]


class PositionBias(keras.layers.Layer):
    """Base of the layers that add a bias to attention scores by position."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    def build(self, scores_shape: Shape) -> None:
        """Make the weights for `scores_shape[1]` heads."""

    def bias(self, num_heads: int) -> biases.Bias:
        """Return the bias on the scores of `num_heads` heads."""
        raise NotImplementedError

    def call(self, scores: Tensor, start_index: Any = 0) -> Tensor:
        if len(scores.shape) != 4:
            raise ValueError(
                f"Layer '{self.name}' expects attention scores of shape (batch, heads, "
                f"queries, keys). Received: scores of shape {tuple(scores.shape)}"
            )
        _, _, queries, keys = ops.shape(scores)
        if not isinstance(start_index, int):
            start_index = ops.cast(start_index, "int32")
        bias = self.bias(scores.shape[1])
        bias = bias.evaluate(Span(start_index, queries), Span(0, keys))
        # In float32: half precision would round the biases of distant keys to the same.
        return ops.cast(ops.cast(scores, "float32") + bias, scores.dtype)

    def compute_output_shape(self, scores_shape: Shape) -> Shape:
        return scores_shape


@keras.saving.register_keras_serializable(package="keras_attn")
class AlibiPositionBias(PositionBias):
    """ALiBi: subtracts a slope times the query-key distance from attention scores.

    The slope differs from head to head; nothing is learned. Given to an attention layer
    as `position=`, or called on scores.

    Args:
        **kwargs: `name` and `dtype` of `keras.layers.Layer`.

    Call arguments:
        scores: floats `(B, N, T, S)`.
        start_index: int or int32 scalar tensor, position of the first query; the first
            key has position 0.

    Returns:
        A tensor of the shape and dtype of `scores`.

    Example:
        >>> import keras
        >>> from keras_attn import layers
        >>> position = layers.AlibiPositionBias()
        >>> attention = layers.MultiHeadSelfAttention(num_heads=8, position=position)
        >>> attention(keras.Input((None, 64)), use_causal_mask=True).shape
        (None, None, 64)

    Reference:
        Press et al. 2021, "Train Short, Test Long: Attention with Linear Biases Enables
        Input Length Extrapolation" (https://arxiv.org/abs/2108.12409).
    """

    def bias(self, num_heads: int) -> biases.Bias:
        """Return the bias on the scores of `num_heads` heads."""
        return biases.alibi(biases.alibi_slopes(num_heads))


@keras.saving.register_keras_serializable(package="keras_attn")
class RelativePositionBias(PositionBias):
    """T5's relative positions: a learned bias for each head and bucket of distances.

    Given to an attention layer as `position=`, or called on scores; the number of heads
    is that of the attention layer. One object may be given to several layers, which
    then share its weights, as in T5. They still share them after saving and loading,
    while `keras.models.clone_model` gives each layer its own.

    Args:
        num_buckets: int, number of buckets: small distances have a bucket each, larger
            ones share buckets on a logarithmic scale.
        max_distance: int, from this distance on all share the last bucket.
        bidirectional: bool. True: half of the buckets are for keys after the query.
            False, for causal attention: these count as distance zero.
        initializer: initializer of the biases.
        **kwargs: `name`, `dtype` and `trainable` of `keras.layers.Layer`.

    Call arguments:
        scores: floats `(B, N, T, S)`.
        start_index: int or int32 scalar tensor, position of the first query; the first
            key has position 0.

    Returns:
        A tensor of the shape and dtype of `scores`.

    Raises:
        ValueError: for sizes that are not positive ints, too few buckets, or attention
            with a number of heads that differs from that of the first layer.

    Example:
        >>> import keras
        >>> from keras_attn import layers
        >>> position = layers.RelativePositionBias()
        >>> x = keras.Input((None, 64))
        >>> for _ in range(2):
        ...     x = layers.MultiHeadSelfAttention(num_heads=8, position=position)(x)
        >>> tuple(position.table.shape)
        (32, 8)

    Reference:
        Raffel et al. 2019, "Exploring the Limits of Transfer Learning with a Unified
        Text-to-Text Transformer", section 2.1 (https://arxiv.org/abs/1910.10683).
    """

    def __init__(
        self,
        num_buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = True,
        initializer: InitializerLike = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_buckets = arguments.positive_int("num_buckets", num_buckets)
        self.max_distance = arguments.positive_int("max_distance", max_distance)
        self.bidirectional = arguments.boolean("bidirectional", bidirectional)
        self.initializer = initializers.get(initializer)
        exact = self.num_buckets // (4 if bidirectional else 2)
        if exact < 1 or self.max_distance <= exact:
            raise ValueError(
                "`num_buckets` must be at least 2, or 4 if `bidirectional`, and "
                "`max_distance` more than the number of distances that have a bucket "
                f"each. Received: {num_buckets=}, {max_distance=}, {bidirectional=}"
            )

    def build(self, scores_shape: Shape) -> None:
        """Make the weights for `scores_shape[1]` heads."""
        self.num_heads = arguments.positive_int("num_heads", scores_shape[1])
        self.table = self.add_weight(
            name="table",
            shape=(self.num_buckets, self.num_heads),
            initializer=self.initializer,
        )

    def bias(self, num_heads: int) -> biases.Bias:
        """Return the bias on the scores of `num_heads` heads."""
        if num_heads != self.num_heads:
            raise ValueError(
                f"Layer '{self.name}' has weights for {self.num_heads} heads. "
                f"Received: attention with num_heads={num_heads}"
            )
        return biases.relative(self.table, self.max_distance, self.bidirectional)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_buckets": self.num_buckets,
            "max_distance": self.max_distance,
            "bidirectional": self.bidirectional,
            "initializer": initializers.serialize(self.initializer),
        }
