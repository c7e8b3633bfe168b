"""Sinusoids of positions, and positions in packed sequences."""

# Keras's functions are inferred to return None for a backend without them.
# pyright: reportOptionalIterable=false, reportOptionalOperand=false
# pyright: reportOptionalSubscript=false

from keras import ops

from keras_attn._types import Tensor

__all__ = ["segment_positions", "sinusoids"]


def segment_positions(segment_ids: Tensor) -> Tensor:
    """Return positions that restart at zero in each segment of packed sequences.

    Args:
        segment_ids: int `(B, T)`; neighbors of the same segment have the same id.

    Returns:
        int32 `(B, T)`, the `positions` argument of position layers.

    Example:
        >>> import keras
        >>> import numpy as np
        >>> from keras_attn.ops import segment_positions
        >>> positions = segment_positions(np.array([[1, 1, 1, 2, 2, 0]]))
        >>> keras.ops.convert_to_numpy(positions).tolist()
        [[0, 1, 2, 0, 1, 0]]
    """
    segment_ids = ops.convert_to_tensor(segment_ids)
    positions = ops.arange(ops.shape(segment_ids)[1], dtype="int32")
    is_first = ops.not_equal(segment_ids[:, 1:], segment_ids[:, :-1])
    starts = ops.where(is_first, positions[1:], 0)
    starts = ops.concatenate([ops.zeros_like(starts[:, :1]), starts], axis=1)
    return positions - ops.associative_scan(ops.maximum, starts, axis=1)


def sinusoids(
    positions: Tensor,
    dim: int,
    max_wavelength: float = 10000,
    interleaved: bool = True,
) -> Tensor:
    """Return sines and cosines of positions at geometrically growing wavelengths.

    The angle of feature pair `i` is `position / max_wavelength ** (2 i / dim)`. It is
    computed in float32 for all dtypes: in half precision, neighboring positions above a
    few hundred are equal.

    Args:
        positions: ints or floats of any shape.
        dim: Number of features, a positive int; an odd number ends with a sine.
        max_wavelength: The longest wavelength, divided by 2 pi.
        interleaved: True: sin, cos, sin, cos, ... as in the paper; False: all sines,
            then all cosines.

    Returns:
        float32 `(*positions.shape, dim)`.

    Example:
        >>> import keras
        >>> import numpy as np
        >>> from keras_attn.ops import sinusoids
        >>> values = keras.ops.convert_to_numpy(sinusoids(np.arange(2), 4))
        >>> values.round(2).tolist()[0]
        [0.0, 1.0, 0.0, 1.0]

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.5
        (https://arxiv.org/abs/1706.03762).
    """
    pairs = (dim + 1) // 2
    exponent = ops.arange(pairs, dtype="float32") * (2.0 / dim)
    frequencies = ops.power(1.0 / float(max_wavelength), exponent)
    angles = ops.cast(positions, "float32")[..., None] * frequencies
    sines, cosines = ops.sin(angles), ops.cos(angles)
    if not interleaved:
        return ops.concatenate([sines, cosines], axis=-1)[..., :dim]
    stacked = ops.stack([sines, cosines], axis=-1)
    shape = (*ops.shape(positions), 2 * pairs)
    return ops.reshape(stacked, shape)[..., :dim]
