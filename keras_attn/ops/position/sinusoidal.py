"""Functions of the position alone."""

from keras import ops

__all__ = ["segment_positions", "sinusoids"]


def segment_positions(segments):
    """Positions that start again at zero with each segment.

    Args:
        segments: int tensor `(B, T)`, the same number for neighbours of one segment.

    Returns:
        An int32 tensor `(B, T)`, as position layers take it for `positions`.

    Example:
        >>> segment_positions([[1, 1, 1, 2, 2, 0]])
        [[0, 1, 2, 0, 1, 0]]
    """
    segments = ops.convert_to_tensor(segments)
    place = ops.arange(ops.shape(segments)[1], dtype="int32")
    is_first = ops.not_equal(segments[:, 1:], segments[:, :-1])
    starts = ops.where(is_first, place[1:], 0)
    starts = ops.concatenate([ops.zeros_like(starts[:, :1]), starts], axis=1)
    return place - ops.associative_scan(ops.maximum, starts, axis=1)


def sinusoids(positions, dim, max_wavelength=10000, interleaved=True):
    """Sine and cosine of the position at geometrically growing wavelengths.

    Channel pair `i` turns with the angle `position / max_wavelength ** (2 i / dim)`.
    Computed in float32 whatever the inputs: in half precision neighbouring positions
    past a few hundred become equal.

    Args:
        positions: int or float tensor of any shape.
        dim: number of channels, a positive int; odd ones end on a sine.
        max_wavelength: the longest wavelength, over 2 pi.
        interleaved: True gives sin, cos, sin, cos, ... (the paper's layout); False
            gives all sines, then all cosines.

    Returns:
        A float32 tensor of shape `(*positions.shape, dim)`.

    Example:
        >>> sinusoids(keras.ops.arange(50), 512).shape
        (50, 512)

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
    pairs_last = ops.stack([sines, cosines], axis=-1)
    shape = (*ops.shape(positions), 2 * pairs)
    return ops.reshape(pairs_last, shape)[..., :dim]
