"""Initializers whose values are scaled by a factor."""

from typing import Any

import keras
from keras import initializers

from keras_attn._types import InitializerLike, Shape, Tensor
from keras_attn.layers._internal import arguments

__all__ = ["ScaledInitializer", "scale_initializer"]


@keras.saving.register_keras_serializable(package="keras_attn")
class ScaledInitializer(keras.initializers.Initializer):
    """The values of another initializer times `gain`.

    The values are scaled when a weight is made, not by an assignment afterwards: a
    layer may be built while a graph is traced, where an assignment would be repeated
    at every step, or lost.
    """

    def __init__(self, initializer: InitializerLike, gain: float) -> None:
        self.initializer = initializers.get(initializer)
        self.gain = gain

    def __call__(self, shape: Shape, dtype: Any = None) -> Tensor:
        return self.gain * self.initializer(shape, dtype=dtype)

    def clone(self) -> "ScaledInitializer":
        return ScaledInitializer(
            arguments.clone_initializer(self.initializer), self.gain
        )

    def get_config(self) -> dict[str, Any]:
        return {
            "initializer": initializers.serialize(self.initializer),
            "gain": self.gain,
        }


def scale_initializer(initializer: InitializerLike, gain: float) -> InitializerLike:
    """Return an initializer with the values of `initializer` times `gain`."""
    if not isinstance(initializer, initializers.VarianceScaling):
        return ScaledInitializer(initializer, gain)
    # A `VarianceScaling` stays one: Keras passes only to these which axes of a weight
    # are inputs.
    config = initializers.VarianceScaling.get_config(initializer)
    config["scale"] *= gain**2
    return initializers.VarianceScaling.from_config(config)
