"""Vision Transformer loaded from files that `transformers` has saved."""

import pathlib
from typing import Any

import keras
import numpy as np
import pytest
from published import (
    keras_round_trip,
    load_in_transformers,
    max_difference,
    run_reference,
    save_reference,
    torch,
    transformers,
)
from tensors import array, assert_equal

from keras_attn import checkpoints
from keras_attn._types import Tensor
from keras_attn.inspection import attention_maps

HEIGHT, WIDTH, CLASSES = 8, 12, 5
SIZES = {
    "image_size": [HEIGHT, WIDTH],  # 2 x 3 patches
    "patch_size": 4,
    "hidden_size": 14,
    "intermediate_size": 17,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "num_labels": CLASSES,
}
KINDS = {
    "default": {},
    "no biases": {"qkv_bias": False, "hidden_act": "gelu_new", "num_channels": 1},
    # The convolution weight is large enough to be read in chunks.
    "one large patch": {"patch_size": 64, "image_size": 64, "hidden_size": 48},
    "pairs": {"patch_size": [4, 4], "image_size": 8, "hidden_act": "quick_gelu"},
}
TASKS = {
    "hidden_states": ("ViTModel", "last_hidden_state"),
    "classification": ("ViTForImageClassification", "logits"),
}


def make_model(task: str, folder: pathlib.Path, **options: Any) -> Any:
    config = transformers.ViTConfig(**SIZES | options)
    return save_reference(folder, TASKS[task][0], config)


def images(model: keras.Model, seed: int = 0) -> np.ndarray:
    """Return random images `(3, height, width, channels)`."""
    height, width, channels = model.input_shape[1:]
    return np.random.default_rng(seed).normal(size=(3, height, width, channels))


def reference_outputs(reference: Any, task: str, x: Tensor) -> np.ndarray:
    """Return the outputs of a `transformers` model, which expects channels first."""
    return run_reference(reference, TASKS[task][1], pixel_values=np.moveaxis(x, -1, 1))


@pytest.mark.every_backend
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("kind", KINDS)
def test_outputs(kind: str, task: str, tmp_path: pathlib.Path) -> None:
    reference = make_model(task, tmp_path / "reference", **KINDS[kind])
    model = checkpoints.load(tmp_path / "reference")
    x = images(model)
    expected = reference_outputs(reference, task, x)
    assert max_difference(model(x), expected) < 1e-4
    reloaded, loading_info = load_in_transformers(
        model, tmp_path / "saved", type(reference).__name__
    )
    assert all("pooler" in name for name in loading_info["missing_keys"])
    assert max_difference(reference_outputs(reloaded, task, x), expected) < 1e-5
    round_trip = keras_round_trip(model, tmp_path)
    assert_equal(round_trip(x), model(x))


def test_inputs_outputs_and_attention_maps(tmp_path: pathlib.Path) -> None:
    make_model("classification", tmp_path)
    model = checkpoints.load(tmp_path)
    assert model.input.name == "image"
    assert model.input_shape == (None, HEIGHT, WIDTH, 3)
    assert model.output_shape == (None, CLASSES)
    states = checkpoints.load(tmp_path, task="hidden_states")
    assert states.output_shape == (None, 1 + 6, 14)
    maps = attention_maps(model, {"image": images(model)})
    assert {name: weights.shape for name, weights in maps.items()} == {
        "encoder_0": (3, 2, 7, 7),
        "encoder_1": (3, 2, 7, 7),
    }


@pytest.mark.parametrize("task", TASKS)
def test_new_head(task: str, tmp_path: pathlib.Path) -> None:
    """A new head is added or replaces another one; other weights are unchanged."""
    folder = tmp_path / "reference"
    make_model(task, folder)
    model = checkpoints.load(folder, task="classification", num_classes=3)
    x = images(model)
    states = checkpoints.load(folder, task="hidden_states")(x)
    weight, bias = map(array, model.get_layer("logits").weights)
    assert weight.std() > 0.1 and not bias.any()
    outputs = array(model(x))
    assert max_difference(outputs, array(states)[:, 0] @ weight) < 1e-5
    reloaded, loading_info = load_in_transformers(
        model, tmp_path / "saved", "ViTForImageClassification"
    )
    assert not loading_info["missing_keys"] and reloaded.config.num_labels == 3
    expected = reference_outputs(reloaded, "classification", x)
    assert max_difference(outputs, expected) < 1e-5


def test_class_token_and_its_position_are_added_in_float32(
    tmp_path: pathlib.Path,
) -> None:
    reference = make_model("hidden_states", tmp_path).to(torch.bfloat16)
    reference.save_pretrained(tmp_path)
    model = checkpoints.load(tmp_path)
    x = images(model)
    expected = reference_outputs(reference.to(torch.float32), "hidden_states", x)
    assert max_difference(model(x), expected) < 1e-4
    half_precision = checkpoints.load(tmp_path, dtype="bfloat16")
    assert {weight.dtype for weight in half_precision.weights} == {"bfloat16"}


def test_files_of_a_masked_image_model(tmp_path: pathlib.Path) -> None:
    config = transformers.ViTConfig(**SIZES, encoder_stride=4)
    reference = save_reference(tmp_path, "ViTForMaskedImageModeling", config)
    model = checkpoints.load(tmp_path)
    x = images(model)
    expected = reference_outputs(reference.vit, "hidden_states", x)
    assert max_difference(model(x), expected) < 1e-4


def test_patches_that_are_not_square_raise(tmp_path: pathlib.Path) -> None:
    make_model("hidden_states", tmp_path, patch_size=[4, 6])
    with pytest.raises(ValueError, match=r"`patch_size` must .*Received: .*\[4, 6\]"):
        checkpoints.load(tmp_path)
