"""From the last states of an encoder to the initial states of a decoder."""

from typing import Any

import keras

from keras_attn._types import InitializerLike, Shape, Tensor
from keras_attn.layers._internal import arguments

__all__ = ["StateBridge"]


class StateBridge(keras.layers.Layer):
    """A learned projection with a tanh to each of several states.

    Args:
        units: int, width of a state.
        num_states: int, number of states.
        kernel_initializer: initializer of the projections.
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        state: `(B, X)`.

    Returns:
        A list of `num_states` tensors `(B, units)`.

    Reference:
        Bahdanau et al. 2014, appendix A.2.2 (https://arxiv.org/abs/1409.0473).
    """

    def __init__(
        self,
        units: int,
        num_states: int,
        kernel_initializer: InitializerLike,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.dense: list[Any] = [
            keras.layers.Dense(
                units,
                activation="tanh",
                kernel_initializer=arguments.clone_initializer(kernel_initializer),
                dtype=self.dtype_policy,
                name=f"state{i}",
            )
            for i in range(num_states)
        ]

    def build(self, state_shape: Shape) -> None:
        for dense in self.dense:
            dense.build(state_shape)

    def call(self, state: Tensor) -> list[Tensor]:
        return [dense(state) for dense in self.dense]
