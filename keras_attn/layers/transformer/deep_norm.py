"""DeepNorm: the constants for blocks of very deep stacks, and how weights start."""

import contextlib

import keras
from keras import initializers

from keras_attn.layers._internal import arguments

__all__ = ["ScaledInitializer", "deep_norm", "scaled", "values_scaled"]


def deep_norm(num_encoder_layers=0, num_decoder_layers=0):
    """The arguments that make blocks DeepNorm ones, for stacks of these depths.

    They are for blocks that normalize after the sum, `normalize_first=False`.

    Args:
        num_encoder_layers: int, number of encoder blocks; 0 where there is none.
        num_decoder_layers: int, number of decoder blocks; 0 where there is none.

    Returns:
        A dict of `"encoder"` and `"decoder"`, as far as there are any, each a dict of
        the arguments `residual_scale` and `branch_gain` of its blocks.

    Raises:
        ValueError: for numbers that are not ints, below 0, or both 0.

    Example:
        >>> constants = deep_norm(num_decoder_layers=8)
        >>> constants["decoder"]
        {'residual_scale': 2.0, 'branch_gain': 0.3535533905932738}
        >>> block = TransformerDecoder(256, num_heads=8, **constants["decoder"])

    Reference:
        Wang et al. 2022, "DeepNet: Scaling Transformers to 1,000 Layers", figure 2
        (https://arxiv.org/abs/2203.00555).
    """
    n, m = num_encoder_layers, num_decoder_layers
    if not all(arguments.is_int(count) and count >= 0 for count in (n, m)) or not n + m:
        raise ValueError(
            "The numbers of layers must be ints of at least 0, one of them more. "
            f"Received: {num_encoder_layers=}, {num_decoder_layers=}"
        )
    if n and m:
        depth = (n**4 * m) ** (1 / 16)
        constants = {
            "encoder": (0.81 * depth, 0.87 / depth),
            "decoder": ((3 * m) ** 0.25, (12 * m) ** -0.25),
        }
    else:
        depth = 2 * (n or m)
        name = "encoder" if n else "decoder"
        constants = {name: (depth**0.25, (4 * depth) ** -0.25)}
    return {
        name: {"residual_scale": alpha, "branch_gain": beta}
        for name, (alpha, beta) in constants.items()
    }


@keras.saving.register_keras_serializable(package="keras_attn")
class ScaledInitializer(keras.initializers.Initializer):
    """Another initializer's values, times `gain`.

    Weights are scaled as they are made, not after: a block may be built while a graph
    is traced, where an assignment would be repeated in every step, or lost.
    """

    def __init__(self, initializer, gain):
        self.initializer = initializers.get(initializer)
        self.gain = gain

    def __call__(self, shape, dtype=None):
        return self.gain * self.initializer(shape, dtype=dtype)

    def clone(self):
        return ScaledInitializer(
            arguments.clone_initializer(self.initializer), self.gain
        )

    def get_config(self):
        return {
            "initializer": initializers.serialize(self.initializer),
            "gain": self.gain,
        }


def scaled(initializer, gain):
    """An initializer whose values are `gain` times those of `initializer`."""
    if not isinstance(initializer, initializers.VarianceScaling):
        return ScaledInitializer(initializer, gain)
    # Its own kind again, since Keras tells that which axes of a kernel are inputs.
    config = initializers.VarianceScaling.get_config(initializer)
    config["scale"] *= gain**2
    return initializers.VarianceScaling.from_config(config)


@contextlib.contextmanager
def values_scaled(layer, gain):
    """A context in which to build an attention layer: values and outputs start scaled.

    Query and key start as they would: they make the weights, not what is added up.
    """
    plain, make = layer.kernel_initializer, layer._dense

    def make_scaled(name, *args, **kwargs):
        if name in ("value", "attention_output"):
            layer.kernel_initializer = scaled(plain, gain)
        try:
            return make(name, *args, **kwargs)
        finally:
            layer.kernel_initializer = plain

    layer._dense = make_scaled
    try:
        yield
    finally:
        del layer._dense
