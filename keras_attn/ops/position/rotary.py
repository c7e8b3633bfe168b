"""Rotary positions: pairs of features turned by angles that grow with the position."""

import collections.abc
import math
import numbers

import numpy as np
from keras import ops

__all__ = ["PAIRINGS", "normalize_scaling", "rotary_frequencies", "rotate"]

PAIRINGS = ("half", "interleaved")

_REQUIRED = object()
_LENGTH = "original_max_position_embeddings"
_KEYS = {
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
# Positions are taken apart into a multiple of this and a rest.
_BLOCK = 512


def rotary_frequencies(dim, max_wavelength=10000, scaling=None):
    """Radians per position of each pair of features, and what scales the result.

    Pair `i` has the frequency `max_wavelength ** (-2 i / dim)`. `scaling` changes the
    frequencies for texts longer than those of the training. It is written as in the
    `rope_scaling` (or `rope_parameters`) of published `config.json` files:

    - `{"rope_type": "linear", "factor": f}`: all frequencies divided by `f`.
    - `{"rope_type": "ntk", "factor": f}`: `max_wavelength * f ** (dim / (dim - 2))` in
      place of `max_wavelength`: the slowest is divided by `f`, the fastest stays.
      The type "dynamic" of published files, which changes with the length `L` of a
      text past the `L0` of the training, is at that length this one with
      `f * L / L0 - (f - 1)` as its factor.
    - `{"rope_type": "yarn", "factor": f, "original_max_position_embeddings": n}`:
      pairs that turn less than `beta_slow` (1) times within `n` positions are divided
      by `f`, those that turn more than `beta_fast` (32) times stay, with a ramp
      between them, which begins and ends at whole pairs if `truncate` (True). What is
      rotated is multiplied by `attention_factor` (`0.1 * ln(f) + 1`).
    - `{"rope_type": "llama3", "factor": f, "original_max_position_embeddings": n,
      "low_freq_factor": l, "high_freq_factor": h}`: divided by `f` below `l` turns
      within `n` positions, unchanged above `h`, interpolated between.

    Args:
        dim: int, number of features that are rotated, an even one.
        max_wavelength: number above 1, the longest wavelength, over 2 pi; `rope_theta`
            in published files.
        scaling: None or a dict as above. The type may be spelled `"type"` as well.

    Returns:
        A float64 NumPy array `(dim // 2,)` (in float64, since a float32 frequency is
        wrong by 0.003 radians at position 100,000), and a Python float, the factor
        of cosines and sines.

    Raises:
        ValueError: if `dim` is odd, or `scaling` is none of the above.

    Example:
        >>> rotary_frequencies(4, scaling={"rope_type": "linear", "factor": 2})
        (array([0.5  , 0.005]), 1.0)

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
    scaling = normalize_scaling(scaling)
    kind = scaling["rope_type"] if scaling else None
    base = float(max_wavelength)
    if kind == "ntk" and dim > 2:  # A single pair has frequency 1 on any base.
        base *= scaling["factor"] ** (dim / (dim - 2))
    frequencies = base ** (-np.arange(0, dim, 2) / dim)
    if kind == "linear":
        return frequencies / scaling["factor"], 1.0
    if kind == "yarn":
        return _yarn(frequencies, base, **scaling)
    if kind == "llama3":
        return _llama3(frequencies, **scaling), 1.0
    return frequencies, 1.0


def _yarn(frequencies, base, factor, beta_fast, beta_slow, truncate, **scaling):
    dim = 2 * len(frequencies)

    def pair_that_turns(times):
        wavelength = scaling[_LENGTH] / times
        return dim * math.log(wavelength / (2 * math.pi)) / (2 * math.log(base))

    first, last = pair_that_turns(beta_fast), pair_that_turns(beta_slow)
    if truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, dim - 1)
    width = max(last - first, 0.001)  # A ramp of no width becomes a step.
    slow = np.clip((np.arange(dim // 2) - first) / width, 0, 1)
    attention_factor = scaling["attention_factor"]
    if attention_factor is None:
        attention_factor = 0.1 * math.log(factor) + 1.0
    return _between(frequencies, frequencies / factor, slow), attention_factor


def _llama3(frequencies, factor, low_freq_factor, high_freq_factor, **scaling):
    turns = scaling[_LENGTH] * frequencies / (2 * math.pi)
    slow = (high_freq_factor - turns) / (high_freq_factor - low_freq_factor)
    return _between(frequencies, frequencies / factor, np.clip(slow, 0, 1))


def _between(some, others, share):
    return (1 - share) * some + share * others


def normalize_scaling(scaling):
    """`scaling` of `rotary_frequencies` as a new dict with all its keys, or None.

    Raises:
        ValueError: if it is no dict, of no known type, has unknown keys, lacks one, or
            has one of an impossible value.
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
            " ('dynamic' changes with the length of each text: give 'ntk' instead, "
            "with the factor of one length)"
        )
        raise ValueError(
            f"`scaling` must be None or a dict whose 'rope_type' is one of "
            f"{list(_KEYS)}{hint if kind == 'dynamic' else ''}. Received: {scaling=}"
        )
    known = _KEYS[kind]
    given = {
        key: value
        for key, value in scaling.items()
        # In published files, None stands for what is not given.
        if key not in ("rope_type", "type") and value is not None
    }
    required = [key for key in known if known[key] is _REQUIRED]
    if not set(required) <= set(given) <= set(known):
        optional = [key for key in known if key not in required]
        raise ValueError(
            f"`scaling` of type '{kind}' must have the keys {required}"
            + (f", may have {optional}," if optional else "")
            + f" and no others. Received: {scaling=}"
        )
    values = {key: _value(key, given.get(key, known[key]), scaling) for key in known}
    if kind == "yarn":
        _check_order(values, "beta_slow", "beta_fast", scaling)
    if kind == "llama3":
        _check_order(values, "low_freq_factor", "high_freq_factor", scaling)
    return {"rope_type": kind, **values}


def _value(key, value, scaling):
    if key == "truncate":
        if isinstance(value, bool):
            return value
        expected = "a bool"
    elif value is None:
        return None
    else:
        least = 1 if key == "factor" else 0
        number = isinstance(value, numbers.Real) and not isinstance(value, bool)
        if number and least <= value < math.inf and value > 0:
            whole = key == _LENGTH and value == int(value)
            return int(value) if whole else float(value)
        expected = "a number of at least 1" if least else "a positive number"
    raise ValueError(f"`scaling['{key}']` must be {expected}. Received: {scaling=}")


def _check_order(values, low, high, scaling):
    if not values[low] < values[high]:
        raise ValueError(
            f"`scaling['{low}']` must be below `scaling['{high}']`. "
            f"Received: {scaling=}"
        )


def rotate(x, positions, frequencies, pairing="half", factor=1.0):
    """Turns pairs of features of `x` by `position * frequency`.

    Angles and products are float32 whatever the dtype of `x`. Angles are right to
    0.0002 radians up to position 100,000, where a product of two float32 numbers is
    wrong by 0.007.

    Args:
        x: float tensor `(B, T, N, H)`.
        positions: int tensor `(T,)` or `(B, T)`, also negative ones.
        frequencies: NumPy array `(R / 2,)` of radians per position. The first `R` of
            the `H` features are rotated, the others stay as they are.
        pairing: "half" makes a pair of features `i` and `i + R / 2` (GPT-NeoX, Llama),
            "interleaved" of `2 i` and `2 i + 1` (RoFormer, GPT-J).
        factor: float, what the rotated features are multiplied by.

    Returns:
        A tensor of the shape and dtype of `x`.

    Example:
        >>> x = keras.ops.ones((1, 3, 1, 2))
        >>> rotate(x, keras.ops.arange(3), np.array([np.pi / 2]))[0, :, 0]
        [[1., 1.], [-1., 1.], [-1., -1.]]

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
    if pairing == "half":
        first, second = x[..., :pairs], x[..., pairs:width]
    else:
        first, second = x[..., 0:width:2], x[..., 1:width:2]
    first, second = ops.cast(first, "float32"), ops.cast(second, "float32")
    turned = [first * cosines - second * sines, second * cosines + first * sines]
    turned = [ops.cast(part, x.dtype) for part in turned]
    if pairing == "interleaved":
        shape = (*ops.shape(x)[:-1], width)
        turned = [ops.reshape(ops.stack(turned, axis=-1), shape)]
    if width < x.shape[-1]:
        turned.append(x[..., width:])
    return ops.concatenate(turned, axis=-1) if len(turned) > 1 else turned[0]


def _angles(positions, frequencies):
    """`positions * frequencies` up to whole turns, float32 `(*positions.shape, R / 2)`.

    What a block of positions turns by is reduced to less than a turn in float64,
    beforehand, so that both products stay small and what float32 rounds off them, too.
    """
    block = np.remainder(_BLOCK * frequencies + np.pi, 2 * np.pi) - np.pi
    block = ops.convert_to_tensor(block, "float32")
    each = ops.convert_to_tensor(frequencies, "float32")
    positions = ops.cast(positions, "float32")
    blocks = ops.floor(positions / _BLOCK)
    rest = positions - _BLOCK * blocks
    return blocks[..., None] * block + rest[..., None] * each
