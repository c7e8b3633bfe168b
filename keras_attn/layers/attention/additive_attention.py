"""Bahdanau's attention: the score is a small network's."""

import keras
from keras import initializers

from keras_attn.layers._internal import arguments
from keras_attn.layers.attention.single_attention import SingleAttention, as_head
from keras_attn.ops import additive_attention

__all__ = ["AdditiveAttention"]


@keras.saving.register_keras_serializable(package="keras_attn")
class AdditiveAttention(SingleAttention):
    """Attention of one head whose score is `v . tanh(query W + key U)`.

    W, U and v are learned. The output is a weighted mean of the values as they are.
    `keras.layers.AdditiveAttention` is the same without W and U.

    Args:
        units: int, width of the sum. Default: the query's width.
        use_bias: bool, whether the sum has a bias.
        dropout: float in [0, 1), rate at which attention weights are dropped.
        kernel_initializer: initializer of W, U and v.
        seed: int, seed of the dropout.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Raises:
        ValueError: for units that are not a positive int, or a rate outside [0, 1).

    Call arguments and returns: those of `DotProductAttention`; query and key may be of
    two widths.

    Example:
        >>> target, source = keras.Input((None, 64)), keras.Input((None, 32))
        >>> AdditiveAttention(units=48)(target, source).shape
        (None, None, 32)

    Reference:
        Bahdanau et al. 2014, "Neural Machine Translation by Jointly Learning to Align
        and Translate", section 3.1 (https://arxiv.org/abs/1409.0473).
    """

    def __init__(
        self,
        units=None,
        use_bias=False,
        dropout=0.0,
        kernel_initializer="glorot_uniform",
        seed=None,
        **kwargs,
    ):
        super().__init__(dropout, seed, **kwargs)
        self.units = arguments.positive_int("units", units, optional=True)
        self.use_bias = use_bias
        self.kernel_initializer = initializers.get(kernel_initializer)

    def _build_score(self, query_shape, key_shape):
        units = self.units or query_shape[-1]
        self._query_dense = self._dense("query", units, query_shape, self.use_bias)
        self._key_dense = self._dense("key", units, key_shape)
        self.vector = self.add_weight(
            name="vector",
            shape=(units,),
            initializer=arguments.clone_initializer(self.kernel_initializer),
        )
        return units

    def _project_query(self, query):
        return as_head(self._query_dense(query))

    def _project_key(self, key):
        return as_head(self._key_dense(key))

    def _attention(self, query, key, value, **kwargs):
        return additive_attention(query, key, value, self.vector, **kwargs)

    def get_config(self):
        return {
            **super().get_config(),
            "units": self.units,
            "use_bias": self.use_bias,
            "kernel_initializer": initializers.serialize(self.kernel_initializer),
        }
