"""DeepNorm: the constants of blocks in very deep stacks."""

from typing import Any

from keras_attn.layers._internal import arguments
from keras_attn.layers.transformer.residual import Residual

__all__ = ["deep_norm"]


def deep_norm(
    num_encoder_layers: int = 0, num_decoder_layers: int = 0
) -> dict[str, dict[str, Any]]:
    """Return the arguments that make blocks DeepNorm ones, for stacks of given depths.

    They are for post-norm blocks, `normalize_first=False`.

    Args:
        num_encoder_layers: int, number of encoder blocks, or 0.
        num_decoder_layers: int, number of decoder blocks, or 0.

    Returns:
        A dict with the keys `"encoder"` and `"decoder"`, for the stacks that exist.
        Each value is a dict of the arguments `residual` and `branch_gain` of a block:
        alpha is the scale of the residual, beta the gain.

    Raises:
        ValueError: for numbers that are not ints, below 0, or both 0.

    Example:
        >>> from keras_attn import layers
        >>> constants = layers.deep_norm(num_decoder_layers=8)
        >>> constants["decoder"]["residual"].scale
        2.0
        >>> round(constants["decoder"]["branch_gain"], 4)
        0.3536
        >>> block = layers.TransformerDecoder(256, num_heads=8, **constants["decoder"])

    Reference:
        Wang et al. 2022, "DeepNet: Scaling Transformers to 1,000 Layers", figure 2
        (https://arxiv.org/abs/2203.00555).
    """
    n, m = num_encoder_layers, num_decoder_layers
    if not all(arguments.is_int(count) and count >= 0 for count in (n, m)) or not n + m:
        raise ValueError(
            "The numbers of layers must be ints of at least 0, and one of them above "
            f"0. Received: {num_encoder_layers=}, {num_decoder_layers=}"
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
        name: {"residual": Residual(scale=alpha), "branch_gain": beta}
        for name, (alpha, beta) in constants.items()
    }
