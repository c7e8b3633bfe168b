"""The position objects of one attention layer: a rotation and a bias."""

from typing import Any

import keras

from keras_attn._keras_internals import is_sharing_objects
from keras_attn._types import Shape, Tensor
from keras_attn.layers._internal import arguments
from keras_attn.layers.position.bias import PositionBias
from keras_attn.layers.position.rotary import RotaryPositionEmbedding
from keras_attn.ops.position.bias import Bias

__all__ = ["AttentionPosition"]


class AttentionPosition:
    """The value of an attention layer's argument `position=`, checked.

    Args:
        argument: a `RotaryPositionEmbedding`, an `AlibiPositionBias`, a
            `RelativePositionBias`, a list of a rotation and a bias, or None; or the
            config that `serialize` returns.

    Attributes:
        argument: the same, deserialized.
        rotation: the `RotaryPositionEmbedding`, or None.
        position_bias: the `PositionBias`, or None.

    Raises:
        ValueError: for anything else, and for two rotations or two biases.
    """

    rotation: RotaryPositionEmbedding | None
    position_bias: PositionBias | None

    def __init__(self, argument: Any) -> None:
        is_list = isinstance(argument, (list, tuple))
        layers = [
            arguments.deserialize(x) for x in (argument if is_list else [argument])
        ]
        self.argument: Any = layers if is_list else layers[0]
        layers = [layer for layer in layers if layer is not None]
        kinds = RotaryPositionEmbedding, PositionBias
        if not all(isinstance(layer, kinds) for layer in layers):
            raise ValueError(
                "`position` must be a RotaryPositionEmbedding, an AlibiPositionBias, a "
                "RelativePositionBias, a list of a rotation and a bias, or None. "
                f"Received: position={argument!r}"
            )
        by_kind = [[x for x in layers if isinstance(x, kind)] for kind in kinds]
        if any(len(same) > 1 for same in by_kind):
            raise ValueError(
                "`position` may hold one rotation and one bias. "
                f"Received: position={[layer.name for layer in layers]}"
            )
        self.rotation, self.position_bias = (next(iter(same), None) for same in by_kind)

    def layers(self) -> list[keras.layers.Layer]:
        """Return the layers, for the attention layer to track."""
        return [x for x in (self.rotation, self.position_bias) if x is not None]

    def build(self, num_heads: int, heads_shape: Shape) -> None:
        """Build the layers that are not built yet, and check the number of heads.

        Args:
            num_heads: int N.
            heads_shape: shape of the query heads, `(B, T, N, H)`.
        """
        if self.rotation is not None and not self.rotation.built:
            self.rotation.build(heads_shape)
        if self.position_bias is not None:
            if not self.position_bias.built:
                self.position_bias.build((None, num_heads, None, None))
            self.position_bias.bias(num_heads)

    def rotate(self, heads: Tensor, start_index: Any) -> Tensor:
        """Rotate heads `(B, T, N, H)` by their positions from `start_index` on."""
        if self.rotation is None:
            return heads
        return self.rotation.rotate(heads, start_index)

    def bias(self, num_heads: int) -> Bias | None:
        """Return the bias on the attention scores, or None."""
        if self.position_bias is None:
            return None
        return self.position_bias.bias(num_heads)

    def serialize(self) -> Any:
        """Return the config of the argument."""
        if isinstance(self.argument, list):
            return [_serialize(layer) for layer in self.argument]
        return _serialize(self.argument)


def _serialize(layer: Any) -> Any:
    config = arguments.serialize(layer)
    if isinstance(layer, PositionBias) and is_sharing_objects():
        # While a model is saved, Keras marks layers that occur twice, so that they are
        # one object again after loading. It does not find those inside other layers.
        config["shared_object_id"] = id(layer)
    return config
