"""Attention without heads: what the score functions of 2014 and 2015 share."""

import keras
from keras import ops

from keras_attn.layers._internal import arguments
from keras_attn.layers.attention.query_value_call import QueryValueCall

__all__ = ["SingleAttention", "as_head"]


class SingleAttention(QueryValueCall):
    """Base of `DotProductAttention` and `AdditiveAttention`: one head, no projection of
    the values."""

    cache_heads = 1

    def _build_parts(self, query_shape, value_shape, key_shape):
        self._check_shapes(query_shape, value_shape, key_shape)
        score_dim = self._build_score(query_shape, key_shape)
        self.head_dims = (score_dim, value_shape[-1])

    def _build_score(self, query_shape, key_shape):
        """Makes the weights of the score; returns the width of a projected key."""
        raise NotImplementedError

    def _project_value(self, value):
        return as_head(value)

    def _project_output(self, attended):
        return ops.squeeze(attended, axis=2)

    def _output_dim(self, query_dim, value_dim):
        return value_dim

    def _weights_shape(self, batch, length, total):
        return (batch, length, total)

    def _weights(self, weights):
        return ops.squeeze(weights, axis=1)

    def _dense(self, name, units, shape, use_bias=False):
        dense = keras.layers.Dense(
            units,
            use_bias=use_bias,
            kernel_initializer=arguments.clone_initializer(self.kernel_initializer),
            dtype=self.dtype_policy,
            name=name,
        )
        dense.build(shape)
        return dense


def as_head(x):
    """`(B, T, H)` to `(B, T, 1, H)`."""
    return ops.expand_dims(x, axis=2)
