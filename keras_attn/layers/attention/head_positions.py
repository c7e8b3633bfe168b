"""The position objects of an attention layer: one that rotates, one that adds."""

from keras_attn.layers._internal import arguments
from keras_attn.layers.position.position_bias import PositionBias
from keras_attn.layers.position.rotary import RotaryPositionEmbedding

__all__ = ["Position"]


class Position:
    """What is given as `position=` to an attention layer, checked.

    Args:
        given: a `RotaryPositionEmbedding`, an `AlibiPositionBias`, a
            `RelativePositionBias`, a list of a rotation and a bias, or None.

    Attributes:
        given: the same, out of a config as well.
        parts: list of the layers in it.

    Raises:
        ValueError: for anything else, and for two of one kind.
    """

    def __init__(self, given):
        is_list = isinstance(given, (list, tuple))
        parts = [arguments.deserialize(x) for x in (given if is_list else [given])]
        self.parts = [part for part in parts if part is not None]
        self.given = parts if is_list else parts[0]
        kinds = RotaryPositionEmbedding, PositionBias
        if not all(isinstance(part, kinds) for part in self.parts):
            raise ValueError(
                "`position` must be a RotaryPositionEmbedding, an AlibiPositionBias, a "
                "RelativePositionBias, a list of a rotation and a bias, or None. "
                f"Received: position={given!r}"
            )
        found = [[p for p in self.parts if isinstance(p, kind)] for kind in kinds]
        if any(len(same) > 1 for same in found):
            raise ValueError(
                "`position` may have one rotation and one bias: two of a kind exclude "
                f"each other. Received: position={[p.name for p in self.parts]}"
            )
        self._rotation, self._bias = (next(iter(same), None) for same in found)
        if self._bias is not None:
            self._bias.num_users += 1

    def build(self, num_heads, heads_shape):
        """Builds the parts, unless they are built, and checks the number of heads."""
        if self._rotation is not None and not self._rotation.built:
            self._rotation.build(heads_shape)
        if self._bias is not None:
            if not self._bias.built:
                self._bias.build()
            self._bias.bias(num_heads)

    def rotate(self, heads, start_index):
        """Heads `(B, T, N, H)`, turned by their positions from `start_index` on."""
        if self._rotation is None:
            return heads
        return self._rotation.rotate(heads, start_index)

    def bias(self, num_heads):
        """The `keras_attn.ops.position.bias.Bias` for the scores, or None."""
        return None if self._bias is None else self._bias.bias(num_heads)

    def serialize(self):
        """For a config."""
        if isinstance(self.given, list):
            return [self._serialize(part) for part in self.given]
        return self._serialize(self.given)

    def _serialize(self, part):
        config = arguments.serialize(part)
        if part is not None and part is self._bias and part.num_users > 1:
            # As Keras marks what is shared, when a model is loaded, too. By itself it
            # would forget the mark of the first in a Functional model's config.
            config["shared_object_id"] = id(part)
        return config
