"""Rotary positions compared with NumPy in float64 and with `transformers`."""

import types
from typing import Any

import keras
import numpy as np
import pytest
from tensors import array, assert_close, assert_equal, gradients, normal

from keras_attn._types import Tensor
from keras_attn.ops.position import rotary

BATCH, LENGTH, HEADS, WIDTH = 2, 5, 3, 8
layouts = pytest.mark.parametrize("interleaved", [False, True])

LINEAR = {"rope_type": "linear", "factor": 3.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 256,
}
SCALINGS = {
    "linear": LINEAR,
    "yarn": YARN,
    "yarn_no_truncate": {**YARN, "beta_fast": 16, "beta_slow": 2, "truncate": False},
    "yarn_factor": {**YARN, "factor": 2.5, "attention_factor": 1.25},
    "llama3": LLAMA3,
}


def rotate_complex(
    x: Any,
    positions: Any,
    wavelength: float = 10000,
    dim: int | None = None,
    interleaved: bool = False,
) -> np.ndarray:
    """Multiply pairs of features, as complex numbers, by `exp(i * angle)`."""
    dim = int(dim or x.shape[-1])
    x = np.array(x, "float64")
    first = np.arange(dim // 2)
    first, second = first, first + dim // 2
    if interleaved:
        first, second = np.arange(0, dim, 2), np.arange(1, dim, 2)
    frequencies = wavelength ** (-2 * np.arange(dim // 2) / dim)
    angles = np.asarray(positions, "float64")[..., None, None] * frequencies
    numbers = (x[..., first] + 1j * x[..., second]) * np.exp(1j * angles)
    x[..., first], x[..., second] = numbers.real, numbers.imag
    return x


def rotate(
    x: Any,
    positions: Any,
    dim: int | None = None,
    interleaved: bool = False,
    **kwargs: Any,
) -> Tensor:
    frequencies, factor = rotary.rotary_frequencies(dim or x.shape[-1], **kwargs)
    positions = keras.ops.convert_to_tensor(positions)
    x = keras.ops.convert_to_tensor(x)
    return rotary.rotate(x, positions, frequencies, interleaved, factor)


@pytest.mark.every_backend
@layouts
@pytest.mark.parametrize("dim", [2, 6, WIDTH])
def test_against_complex_numbers(interleaved: bool, dim: int) -> None:
    x = normal(BATCH, LENGTH, HEADS, WIDTH)
    rows = np.array([0, 7, 1, 1, 90], "int32")
    for positions in rows, np.stack([rows, rows[::-1]]):
        result = rotate(x, positions, dim, interleaved)
        assert_close(
            result, rotate_complex(x, positions, dim=dim, interleaved=interleaved), 1e-5
        )
        assert_equal(result[..., dim:], x[..., dim:])
    result = rotate(x, rows, dim, interleaved, max_wavelength=50)
    assert_close(result, rotate_complex(x, rows, 50, dim, interleaved), 1e-5)


@pytest.mark.every_backend
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_far_positions(dtype: str) -> None:
    """At position 100,000, half precision adds only the rounding of the result."""
    rounding = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 0.0}[dtype]
    x = np.concatenate([np.ones((1, 40, 1, 32)), np.zeros((1, 40, 1, 32))], -1)
    positions = np.arange(100_000, 100_040, dtype="int32")
    result = rotate(keras.ops.cast(x, dtype), positions)
    assert keras.backend.standardize_dtype(result.dtype) == dtype
    result = array(keras.ops.cast(result, "float32"))
    assert np.abs(result - rotate_complex(x, positions)).max() < rounding + 2e-4


@pytest.mark.every_backend
@layouts
def test_gradient_rotates_back(interleaved: bool) -> None:
    x, upstream = normal(1, LENGTH, 1, WIDTH), normal(1, LENGTH, 1, WIDTH, seed=1)
    positions = np.arange(LENGTH, dtype="int32") * 100

    def weighted(x: Any) -> Tensor:
        return rotate(x, positions, 6, interleaved) * keras.ops.convert_to_tensor(
            upstream
        )

    (result,) = gradients(weighted, x)
    assert_close(
        result,
        rotate_complex(upstream, -positions, dim=6, interleaved=interleaved),
        2e-5,
    )
    assert_close(result, rotate(upstream, -positions, 6, interleaved), 2e-5)


@pytest.fixture(scope="module")
def transformers() -> types.SimpleNamespace:
    """Return the parts of `transformers` that these tests use."""
    pytest.importorskip("transformers")
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
    from transformers.models.gptj import modeling_gptj as gptj
    from transformers.models.llama import modeling_llama as llama

    return types.SimpleNamespace(
        LlamaConfig=LlamaConfig, inits=ROPE_INIT_FUNCTIONS, gptj=gptj, llama=llama
    )


def llama_config(
    transformers: types.SimpleNamespace,
    width: int,
    scaling: dict[str, Any],
    wavelength: float = 10000.0,
) -> Any:
    return transformers.LlamaConfig(
        hidden_size=2 * width,
        num_attention_heads=2,
        max_position_embeddings=256,
        rope_parameters={"rope_theta": wavelength, **scaling},
    )


@pytest.mark.parametrize("name", ["default", *SCALINGS])
@pytest.mark.parametrize("width", [4, 16, 64])
def test_llama_of_transformers(
    transformers: types.SimpleNamespace, width: int, name: str
) -> None:
    import torch

    scaling = SCALINGS.get(name, {"rope_type": "default"})
    config = llama_config(transformers, width, scaling, wavelength=5000.0)
    x = normal(BATCH, LENGTH, HEADS, width)
    positions = np.array([[0, 1, 2, 3, 4], [9, 70, 3, 100, 0]])
    angles = transformers.llama.LlamaRotaryEmbedding(config)
    tensor = torch.tensor(x)
    cosines, sines = angles(tensor, torch.tensor(positions))
    expected, _ = transformers.llama.apply_rotary_pos_emb(
        tensor, tensor, cosines, sines, unsqueeze_dim=2
    )
    result = rotate(x, positions, scaling=scaling, max_wavelength=5000)
    assert_close(result, expected.numpy(), 2e-5)
    if name != "default" and width > 4:
        plain = array(rotate(x, positions, max_wavelength=5000))
        assert np.abs(plain - array(result)).max() > 0.1


@pytest.mark.parametrize("length", [512, 1000])
def test_dynamic_type_of_transformers_at_one_length(
    transformers: types.SimpleNamespace, length: int
) -> None:
    scaling = {"rope_type": "dynamic", "factor": 2.0}
    config = llama_config(transformers, 16, scaling)
    expected, _ = transformers.inits["dynamic"](config, None, seq_len=length)
    factor = 2.0 * length / 256 - 1.0
    result, attention_factor = rotary.rotary_frequencies(
        16, scaling={"rope_type": "ntk", "factor": factor}
    )
    np.testing.assert_allclose(result, expected.numpy(), rtol=1e-5)
    assert attention_factor == 1.0
    assert result[0] == 1.0
    assert result[-1] == pytest.approx(10000 ** (-14 / 16) / factor)


@pytest.mark.parametrize("dim", [4, WIDTH])
def test_gptj_of_transformers(transformers: types.SimpleNamespace, dim: int) -> None:
    import torch

    x = normal(BATCH, LENGTH, HEADS, WIDTH)
    positions = np.array([[0, 1, 2, 3, 4], [9, 70, 3, 100, 0]])
    table = transformers.gptj.create_sinusoidal_positions(128, dim)
    sines, cosines = torch.split(table[torch.tensor(positions)], dim // 2, dim=-1)
    expected = transformers.gptj.apply_rotary_pos_emb(
        torch.tensor(x[..., :dim]), sines, cosines
    )
    expected = np.concatenate([expected.numpy(), x[..., dim:]], axis=-1)
    assert_close(rotate(x, positions, dim, True), expected, 1e-5)


def test_attention_factor_of_the_paper() -> None:
    _, factor = rotary.rotary_frequencies(64, scaling=YARN)
    assert factor == pytest.approx(0.1 * np.log(4.0) + 1)
    _, factor = rotary.rotary_frequencies(64, scaling={**YARN, "factor": 1.0})
    assert factor == 1.0


def test_ramps_of_width_zero_are_steps() -> None:
    """Test lengths above the longest wavelength and below the shortest."""
    plain, _ = rotary.rotary_frequencies(WIDTH, 100)
    long = {**YARN, "original_max_position_embeddings": 10**6}
    result, _ = rotary.rotary_frequencies(WIDTH, 100, long)
    np.testing.assert_allclose(result, plain)
    short = {**YARN, "original_max_position_embeddings": 2}
    result, _ = rotary.rotary_frequencies(WIDTH, 100, short)
    np.testing.assert_allclose(result[1:], plain[1:] / 4)


def test_two_features_have_frequency_one() -> None:
    result, _ = rotary.rotary_frequencies(2, scaling={"rope_type": "ntk", "factor": 9})
    assert_equal(result, [1.0])


@pytest.mark.parametrize(
    ("scaling", "expected"),
    [
        (None, None),
        ({"rope_type": "default"}, None),
        ({"type": "linear", "factor": 3}, LINEAR),
        ({"rope_type": "linear", "type": "linear", "factor": np.float32(3)}, LINEAR),
        (
            {**YARN, "attention_factor": None, "beta_fast": 8},
            {
                **YARN,
                "beta_fast": 8.0,
                "beta_slow": 1.0,
                "attention_factor": None,
                "truncate": True,
            },
        ),
        (LLAMA3, LLAMA3),
    ],
)
def test_scaling_as_published(scaling: Any, expected: Any) -> None:
    result = rotary.normalize_scaling(scaling)
    assert result == expected
    assert result is None or result is not scaling
    assert rotary.normalize_scaling(result) == result
    assert {type(value) for value in (result or {}).values()} <= {
        *(str, float, int, bool, type(None))
    }


@pytest.mark.parametrize(
    ("scaling", "message"),
    [
        ("yarn", "None or a dict.*'linear', 'ntk', 'yarn', 'llama3'.*='yarn'"),
        ({"factor": 2.0}, "'rope_type' is one of.*Received: scaling={'factor'"),
        ({"rope_type": "longrope"}, "'rope_type' is one of.*longrope"),
        ({"rope_type": []}, "'rope_type' is one of"),
        ({"rope_type": "dynamic", "factor": 2.0}, "depends on the length.*'ntk'"),
        ({"rope_type": "linear"}, r"must have the keys \['factor'\] and no others"),
        ({**LINEAR, "beta_fast": 2}, "no others.*'beta_fast': 2"),
        ({**YARN, "low_freq_factor": 1}, "may have.*'beta_fast'.*and no others"),
        ({"rope_type": "yarn", "factor": 2.0}, "original_max_position_embeddings"),
        ({**LINEAR, "factor": None}, "must have the keys"),
        ({**LINEAR, "factor": 0.5}, r"scaling\['factor'\]` must be a number of at"),
        ({**LINEAR, "factor": "2"}, "a number of at least 1.*'factor': '2'"),
        ({**LINEAR, "factor": True}, "a number of at least 1"),
        ({**YARN, "beta_slow": 0}, "'beta_slow'.*a positive number"),
        ({**YARN, "beta_slow": 40}, "'beta_slow'.*must be below.*'beta_fast'"),
        ({**YARN, "truncate": 1}, "'truncate'.*a bool"),
        ({**LLAMA3, "low_freq_factor": 4}, "must be below.*'high_freq_factor'"),
    ],
)
def test_invalid_scaling(scaling: dict[str, Any] | None, message: str) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        rotary.rotary_frequencies(8, scaling=scaling)
    assert "Received: scaling=" in str(raised.value)


@pytest.mark.parametrize("dim", [7, 0, -2])
def test_invalid_dims(dim: int) -> None:
    with pytest.raises(ValueError, match=f"positive and even.*Received: {dim=}"):
        rotary.rotary_frequencies(dim)
