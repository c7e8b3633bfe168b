"""Sines and cosines of positions compared with NumPy in float64."""

from typing import Any

import keras
import numpy as np
import pytest
from tensors import array, assert_close

from keras_attn.ops import sinusoids


def expected(
    positions: Any, dim: int, wavelength: float = 10000, interleaved: bool = True
) -> np.ndarray:
    """Return each feature, from the formula of the paper."""
    pairs = (dim + 1) // 2
    table = np.zeros((*np.shape(positions), dim))
    for channel in range(dim):
        if interleaved:
            pair, function = channel // 2, (np.sin, np.cos)[channel % 2]
        else:
            pair, function = channel % pairs, (np.sin, np.cos)[channel // pairs]
        angle = np.asarray(positions, "float64") / wavelength ** (2 * pair / dim)
        table[..., channel] = function(angle)
    return table


@pytest.mark.every_backend
@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("dim", [1, 2, 7, 12])
def test_against_the_formula(dim: int, interleaved: bool) -> None:
    result = sinusoids(keras.ops.arange(50), dim, interleaved=interleaved)
    assert result.shape == (50, dim)
    assert_close(result, expected(np.arange(50), dim, interleaved=interleaved))


def test_other_wavelengths_and_shapes() -> None:
    positions = np.random.default_rng(0).integers(0, 200, (2, 3))
    result = sinusoids(keras.ops.convert_to_tensor(positions), 5, max_wavelength=77)
    assert result.shape == (2, 3, 5)
    assert_close(result, expected(positions, 5, wavelength=77), 1e-4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int32"])
def test_computed_in_float32(dtype: str) -> None:
    positions = keras.ops.cast(keras.ops.arange(3), dtype)
    result = sinusoids(positions, 6)
    assert keras.backend.standardize_dtype(result.dtype) == "float32"
    assert_close(result, expected(np.arange(3), 6))


@pytest.mark.parametrize("floatx", ["float32", "float16"])
def test_far_positions(floatx: str) -> None:
    """float16 has no odd integers above 2048; float32 angles are exact to 1e-3 here."""
    old = keras.config.floatx()
    keras.config.set_floatx(floatx)
    try:
        positions = np.arange(5001, 5014)
        result = array(sinusoids(keras.ops.convert_to_tensor(positions), 8))
    finally:
        keras.config.set_floatx(old)
    assert_close(result, expected(positions, 8), 2e-3)
    assert np.abs(np.diff(result, axis=0)).max(-1).min() > 0.4
