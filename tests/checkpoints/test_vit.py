"""The Vision Transformer out of files that `transformers` has written."""

import numpy as np
import pytest
from published import (
    difference,
    published,
    saved_back,
    saved_by_keras,
    theirs,
    torch,
    transformers,
)
from tensors import array, assert_equal

from keras_attn import checkpoints
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
    "as usual": {},
    "no biases": {"qkv_bias": False, "hidden_act": "gelu_new", "num_channels": 1},
    # Its kernel is large enough to be read in parts.
    "one large patch": {"patch_size": 64, "image_size": 64, "hidden_size": 48},
    "pairs": {"patch_size": [4, 4], "image_size": 8, "hidden_act": "quick_gelu"},
}
HEADS_OF = {
    "hidden_states": ("ViTModel", "last_hidden_state"),
    "classification": ("ViTForImageClassification", "logits"),
}


def made(task, folder, **options):
    config = transformers.ViTConfig(**SIZES | options)
    return published(folder, HEADS_OF[task][0], config)


def images(model, seed=0):
    """As models of ours take them."""
    height, width, channels = model.input_shape[1:]
    return np.random.default_rng(seed).normal(size=(3, height, width, channels))


def outputs(model, task, x):
    """What a model of theirs gives, which wants channels before rows and columns."""
    return theirs(model, HEADS_OF[task][1], pixel_values=np.moveaxis(x, -1, 1))


@pytest.mark.every_backend
@pytest.mark.parametrize("task", HEADS_OF)
@pytest.mark.parametrize("kind", KINDS)
def test_equal_to_theirs(kind, task, tmp_path):
    model = made(task, tmp_path / "theirs", **KINDS[kind])
    ours = checkpoints.load(tmp_path / "theirs")
    x = images(ours)
    expected = outputs(model, task, x)
    assert difference(ours(x), expected) < 1e-4
    back, told = saved_back(ours, tmp_path / "ours", type(model).__name__)
    assert all("pooler" in name for name in told["missing_keys"])
    assert difference(outputs(back, task, x), expected) < 1e-5
    again = saved_by_keras(ours, tmp_path)
    assert_equal(again(x), ours(x))


def test_inputs_outputs_and_maps(tmp_path):
    made("classification", tmp_path)
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


@pytest.mark.parametrize("task", HEADS_OF)
def test_a_new_head(task, tmp_path):
    """On a model without one, and in place of another; the rest is what it was."""
    made(task, tmp_path / "theirs")
    load = checkpoints.load
    ours = load(tmp_path / "theirs", task="classification", num_classes=3)
    x = images(ours)
    states = load(tmp_path / "theirs", task="hidden_states")(x)
    kernel, bias = map(array, ours.get_layer("logits").weights)
    assert kernel.std() > 0.1 and not bias.any()
    assert difference(ours(x), array(states)[:, 0] @ kernel) < 1e-5
    back, told = saved_back(ours, tmp_path / "ours", "ViTForImageClassification")
    assert not told["missing_keys"] and back.config.num_labels == 3
    assert difference(outputs(back, "classification", x), array(ours(x))) < 1e-5


def test_class_token_and_its_position_are_added_in_float32(tmp_path):
    model = made("hidden_states", tmp_path).to(torch.bfloat16)
    model.save_pretrained(tmp_path)
    ours = checkpoints.load(tmp_path)
    x = images(ours)
    expected = outputs(model.to(torch.float32), "hidden_states", x)
    assert difference(ours(x), expected) < 1e-4
    halves = checkpoints.load(tmp_path, dtype="bfloat16")
    assert {weight.dtype for weight in halves.weights} == {"bfloat16"}


def test_files_of_a_model_that_fills_in_patches(tmp_path):
    config = transformers.ViTConfig(**SIZES, encoder_stride=4)
    model = published(tmp_path, "ViTForMaskedImageModeling", config)
    ours = checkpoints.load(tmp_path)
    x = images(ours)
    assert difference(ours(x), outputs(model.vit, "hidden_states", x)) < 1e-4


def test_patches_that_are_not_square(tmp_path):
    made("hidden_states", tmp_path, patch_size=[4, 6])
    with pytest.raises(ValueError, match=r"`patch_size` must .*Received: .*\[4, 6\]"):
        checkpoints.load(tmp_path)
