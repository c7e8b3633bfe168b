"""From the last states of an encoder to the first ones of a decoder."""

import keras

from keras_attn.layers._internal import arguments

__all__ = ["StateBridge"]


class StateBridge(keras.layers.Layer):
    """A learned projection, with a tanh, to each of several states.

    Args:
        units: int, width of a state.
        count: int, number of states.
        kernel_initializer: of the projections.

    Call arguments:
        state: `(B, X)`.

    Returns:
        A list of `count` tensors `(B, units)`.

    Reference:
        Bahdanau et al. 2014, appendix A.2.2 (https://arxiv.org/abs/1409.0473).
    """

    def __init__(self, units, count, kernel_initializer, **kwargs):
        super().__init__(**kwargs)
        self.dense = [
            keras.layers.Dense(
                units,
                activation="tanh",
                kernel_initializer=arguments.clone_initializer(kernel_initializer),
                dtype=self.dtype_policy,
                name=f"state{i}",
            )
            for i in range(count)
        ]

    def build(self, state_shape):
        for dense in self.dense:
            dense.build(state_shape)

    def call(self, state):
        return [dense(state) for dense in self.dense]
