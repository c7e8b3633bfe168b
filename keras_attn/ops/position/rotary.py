"""Rotary position embedding: rotation of feature pairs by position-dependent angles."""

# Keras's functions are inferred to return None for a backend without them.
# pyright: reportOperatorIssue=false, reportOptionalOperand=false
# pyright: reportOptionalSubscript=false

import collections.abc
import math
import numbers
import typing

import numpy as np
from keras import ops

from keras_attn._types import Tensor

__all__ = ["normalize_scaling", "rotary_frequencies", "rotate"]

_REQUIRED = object()
_LENGTH = "original_max_position_embeddings"
# Type of scaling -> key -> default value.
_KEYS: dict[str, dict[str, typing.Any]] = {
    "linear": {"factor": _REQUIRED},
    "ntk": {"factor": _REQUIRED},
    "yarn": {
        "factor": _REQUIRED,
        _LENGTH: _REQUIRED,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "attention_factor": None,
        "truncate": True,
    },
    "llama3": {
        "factor": _REQUIRED,
        _LENGTH: _REQUIRED,
        "low_freq_factor": _REQUIRED,
        "high_freq_factor": _REQUIRED,
    },
}
# A position is split into a multiple of this number and a remainder.
_BLOCK = 512


def rotary_frequencies(
    dim: int,
    max_wavelength: float = 10000,
    scaling: collections.abc.Mapping[str, typing.Any] | None = None,
) -> tuple[np.ndarray, float]:
    """Return the angle per position of each feature pair, and a factor of the result.

    The frequency of pair `i` is `max_wavelength ** (-2 i / dim)`. `scaling` changes the
    frequencies for texts longer than those of the training. It has the format of
    `rope_scaling` (or `rope_parameters`) in published `config.json` files:

    - `{"rope_type": "linear", "factor": f}`: all frequencies are divided by `f`.
    - `{"rope_type": "ntk", "factor": f}`: `max_wavelength * f ** (dim / (dim - 2))`
      replaces `max_wavelength`: the lowest frequency is divided by `f`, the highest is
      unchanged. The published type "dynamic", which depends on the length `L` of a text
      beyond the length `L0` of the training, equals this type with the factor
      `f * L / L0 - (f - 1)` at that length.
    - `{"rope_type": "yarn", "factor": f, "original_max_position_embeddings": n}`:
      frequencies of pairs with less than `beta_slow` (1) rotations within `n` positions
      are divided by `f`, those with more than `beta_fast` (32) are unchanged, with a
      linear ramp between them; if `truncate` (True), the ramp begins and ends at
      integer pairs. The rotated features are multiplied by `attention_factor`
      (`0.1 * ln(f) + 1`).
    - `{"rope_type": "llama3", "factor": f, "original_max_position_embeddings": n,
      "low_freq_factor": l, "high_freq_factor": h}`: frequencies are divided by `f`
      below `l` rotations within `n` positions, unchanged above `h`, and interpolated
      between.

    Args:
        dim: Number of features that are rotated, even.
        max_wavelength: Number above 1, the longest wavelength divided by 2 pi;
            `rope_theta` in published files.
        scaling: A dict as above, or `None`. The key `"type"` may replace `"rope_type"`.

    Returns:
        A tuple `(frequencies, factor)`: a float64 NumPy array `(dim // 2,)` in radians
        (a float32 frequency is wrong by 0.003 radians at position 100,000), and the
        factor of cosines and sines.

    Raises:
        ValueError: If `dim` is not positive and even, or `scaling` is invalid.

    Example:
        >>> from keras_attn.ops import rotary
        >>> frequencies, factor = rotary.rotary_frequencies(
        ...     4, scaling={"rope_type": "linear", "factor": 2}
        ... )
        >>> frequencies.tolist(), factor
        ([0.5, 0.005], 1.0)

    Reference:
        Su et al. 2021, "RoFormer" (https://arxiv.org/abs/2104.09864); Chen et al.
        2023, "Extending Context Window of Large Language Models via Positional
        Interpolation" (https://arxiv.org/abs/2306.15595); Peng et al. 2023, "YaRN"
        (https://arxiv.org/abs/2309.00071), section 3.1 for NTK; Dubey et al. 2024,
        "The Llama 3 Herd of Models" (https://arxiv.org/abs/2407.21783).
    """
    if dim <= 0 or dim % 2:
        raise ValueError(
            "The number of features to rotate must be positive and even, since pairs "
            f"are rotated. Received: {dim=}"
        )
    config = normalize_scaling(scaling) or {}
    kind = config.get("rope_type")
    base = float(max_wavelength)
    if kind == "ntk" and dim > 2:  # A single pair has frequency 1 for every base.
        base *= config["factor"] ** (dim / (dim - 2))
    frequencies = base ** (-np.arange(0, dim, 2) / dim)
    if kind == "linear":
        return frequencies / config["factor"], 1.0
    if kind == "yarn":
        return _yarn(frequencies, base, **config)
    if kind == "llama3":
        return _llama3(frequencies, **config), 1.0
    return frequencies, 1.0


def _yarn(
    frequencies: np.ndarray,
    base: float,
    factor: float,
    beta_fast: float,
    beta_slow: float,
    truncate: bool,
    **scaling: typing.Any,
) -> tuple[np.ndarray, float]:
    dim = 2 * len(frequencies)

    def pair_of(rotations: float) -> float:
        """Return the index, a float, of the pair with a number of rotations."""
        wavelength = scaling[_LENGTH] / rotations
        return dim * math.log(wavelength / (2 * math.pi)) / (2 * math.log(base))

    first, last = pair_of(beta_fast), pair_of(beta_slow)
    if truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, dim - 1)
    width = max(last - first, 0.001)  # A ramp of width zero becomes a step.
    slow = np.clip((np.arange(dim // 2) - first) / width, 0, 1)
    attention_factor = scaling["attention_factor"]
    if attention_factor is None:
        attention_factor = 0.1 * math.log(factor) + 1.0
    return _interpolate(frequencies, frequencies / factor, slow), attention_factor


def _llama3(
    frequencies: np.ndarray,
    factor: float,
    low_freq_factor: float,
    high_freq_factor: float,
    **scaling: typing.Any,
) -> np.ndarray:
    rotations = scaling[_LENGTH] * frequencies / (2 * math.pi)
    slow = (high_freq_factor - rotations) / (high_freq_factor - low_freq_factor)
    return _interpolate(frequencies, frequencies / factor, np.clip(slow, 0, 1))


def _interpolate(start: np.ndarray, end: np.ndarray, share: np.ndarray) -> np.ndarray:
    return (1 - share) * start + share * end


def normalize_scaling(
    scaling: collections.abc.Mapping[str, typing.Any] | None,
) -> dict[str, typing.Any] | None:
    """Return a copy of a `scaling` dict with all keys of its type.

    Args:
        scaling: See `rotary_frequencies`.

    Returns:
        A dict, or `None` for `None` and for the type "default".

    Raises:
        ValueError: If `scaling` is not a dict of a known type, has an unknown key,
            lacks a required one, or has an invalid value.

    Example:
        >>> from keras_attn.ops import rotary
        >>> rotary.normalize_scaling({"type": "linear", "factor": 2})
        {'rope_type': 'linear', 'factor': 2.0}
    """
    if scaling is None:
        return None
    kind = None
    if isinstance(scaling, collections.abc.Mapping):
        kind = scaling.get("rope_type", scaling.get("type"))
    if kind == "default":
        return None
    if not isinstance(kind, str) or kind not in _KEYS:
        hint = (
            " ('dynamic' depends on the length of each text: use 'ntk' instead, "
            "with the factor for one length)"
        )
        raise ValueError(
            f"`scaling` must be None or a dict whose 'rope_type' is one of "
            f"{list(_KEYS)}{hint if kind == 'dynamic' else ''}. Received: {scaling=}"
        )
    defaults = _KEYS[kind]
    entries = {
        key: value
        for key, value in scaling.items()
        # Published files write null for a key that is not set.
        if key not in ("rope_type", "type") and value is not None
    }
    required = [key for key in defaults if defaults[key] is _REQUIRED]
    if not set(required) <= set(entries) <= set(defaults):
        optional = [key for key in defaults if key not in required]
        raise ValueError(
            f"`scaling` of type '{kind}' must have the keys {required}"
            + (f", may have {optional}," if optional else "")
            + f" and no others. Received: {scaling=}"
        )
    values = {
        key: _value(key, entries.get(key, defaults[key]), scaling) for key in defaults
    }
    if kind == "yarn":
        _check_order(values, "beta_slow", "beta_fast", scaling)
    if kind == "llama3":
        _check_order(values, "low_freq_factor", "high_freq_factor", scaling)
    return {"rope_type": kind, **values}


def _value(
    key: str, value: typing.Any, scaling: collections.abc.Mapping[str, typing.Any]
) -> bool | int | float | None:
    """Return a valid value of a key, as a built-in type, or raise a ValueError."""
    if key == "truncate":
        if isinstance(value, bool):
            return value
        expected = "a bool"
    elif value is None:
        return None
    else:
        minimum = 1 if key == "factor" else 0
        if isinstance(value, numbers.Real) and not isinstance(value, bool):
            value = typing.cast(float, value)
            if minimum <= value < math.inf and value > 0:
                is_length = key == _LENGTH and value == int(value)
                return int(value) if is_length else float(value)
        expected = "a number of at least 1" if minimum else "a positive number"
    raise ValueError(f"`scaling['{key}']` must be {expected}. Received: {scaling=}")


def _check_order(
    values: dict[str, typing.Any],
    low: str,
    high: str,
    scaling: collections.abc.Mapping[str, typing.Any],
) -> None:
    if not values[low] < values[high]:
        raise ValueError(
            f"`scaling['{low}']` must be below `scaling['{high}']`. "
            f"Received: {scaling=}"
        )


def rotate(
    x: Tensor,
    positions: Tensor,
    frequencies: np.ndarray,
    interleaved: bool = False,
    factor: float = 1.0,
) -> Tensor:
    """Rotate pairs of features of `x` by `position * frequency`.

    Angles and products are computed in float32 for all dtypes of `x`. Angles are exact
    to 0.0002 radians up to position 100,000; a plain product of two float32 numbers is
    wrong by 0.007.

    Args:
        x: floats `(B, T, N, H)`.
        positions: ints `(T,)` or `(B, T)`; may be negative.
        frequencies: NumPy array `(R / 2,)`, in radians per position. The first `R` of
            the `H` features are rotated, the others are unchanged.
        interleaved: False: features `i` and `i + R / 2` are a pair (GPT-NeoX, Llama);
            True: features `2 i` and `2 i + 1` (RoFormer, GPT-J).
        factor: Factor of the rotated features.

    Returns:
        A tensor of the shape and dtype of `x`.

    Example:
        >>> import keras
        >>> import numpy as np
        >>> from keras_attn.ops import rotary
        >>> x = np.array([1.0, 0.0], "float32") * np.ones((1, 3, 1, 1), "float32")
        >>> rotated = rotary.rotate(x, np.arange(3), np.array([np.pi / 2]))
        >>> keras.ops.convert_to_numpy(rotated)[0, :, 0].round().astype(int).tolist()
        [[1, 0], [0, 1], [-1, 0]]

    Reference:
        Su et al. 2021, "RoFormer: Enhanced Transformer with Rotary Position Embedding",
        section 3.4 (https://arxiv.org/abs/2104.09864).
    """
    pairs = len(frequencies)
    width = 2 * pairs
    angles = _angles(positions, frequencies)[..., None, :]  # The same for all heads.
    cosines, sines = ops.cos(angles), ops.sin(angles)
    if factor != 1.0:
        cosines, sines = cosines * factor, sines * factor
    if interleaved:
        first, second = x[..., 0:width:2], x[..., 1:width:2]
    else:
        first, second = x[..., :pairs], x[..., pairs:width]
    first, second = ops.cast(first, "float32"), ops.cast(second, "float32")
    rotated = [first * cosines - second * sines, second * cosines + first * sines]
    rotated = [ops.cast(part, x.dtype) for part in rotated]
    if interleaved:
        shape = (*ops.shape(x)[:-1], width)
        rotated = [ops.reshape(ops.stack(rotated, axis=-1), shape)]
    if width < x.shape[-1]:
        rotated.append(x[..., width:])
    return ops.concatenate(rotated, axis=-1) if len(rotated) > 1 else rotated[0]


def _angles(positions: Tensor, frequencies: np.ndarray) -> Tensor:
    """Return angles up to multiples of 2 pi, float32 `(*positions.shape, R / 2)`.

    The angle of a block of positions is reduced modulo 2 pi in float64, in advance, so
    that both products and their float32 rounding errors are small.
    """
    block = np.remainder(_BLOCK * frequencies + np.pi, 2 * np.pi) - np.pi
    block = ops.convert_to_tensor(block, "float32")
    single = ops.convert_to_tensor(frequencies, "float32")
    positions = ops.cast(positions, "float32")
    blocks = ops.floor(positions / _BLOCK)
    rest = positions - _BLOCK * blocks
    return blocks[..., None] * block + rest[..., None] * single
