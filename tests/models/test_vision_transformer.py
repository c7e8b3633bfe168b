"""`vision_transformer`: compared with `transformers`, pooling, saving, errors."""

import inspect

import keras
import numpy as np
import pytest
from tensors import array, assert_close, fill_weights, normal
from torch_weights import copy_dense, copy_table, random_model, weights_of

from keras_attn.inspection import attention_maps
from keras_attn.models import vision_transformer

# 2 x 3 patches.
SMALL = dict(
    image_size=(8, 12),
    num_classes=5,
    patch_size=4,
    num_layers=2,
    hidden_dim=6,
    intermediate_dim=11,
    num_heads=2,
)
IN_BLOCK = [
    *(f"attention.{part}_proj" for part in "qkvo"),
    "layernorm_before",
    "layernorm_after",
    "mlp.fc1",
    "mlp.fc2",
]


@pytest.fixture(scope="module")
def models():
    return {
        pooling: fill_weights(vision_transformer(**SMALL, pooling=pooling))
        for pooling in ("token", "mean")
    }


def images(batch=3, seed=0):
    return normal(batch, 8, 12, 3, seed=seed)


def test_logits_of_transformers():
    import torch

    reference = random_model(
        "ViTForImageClassification",
        "ViTConfig",
        image_size=SMALL["image_size"],
        patch_size=4,
        num_hidden_layers=2,
        hidden_size=6,
        intermediate_size=11,
        num_attention_heads=2,
        num_labels=5,
        layer_norm_eps=1e-12,
    )
    weights = weights_of(reference)
    model = vision_transformer(**SMALL, layer_norm_epsilon=1e-12)
    start = "vit.embeddings."
    kernel = weights[f"{start}patch_embeddings.projection.weight"]
    bias = weights[f"{start}patch_embeddings.projection.bias"]
    model.get_layer("patches").set_weights([kernel.transpose(2, 3, 1, 0), bias])
    positions = weights[f"{start}position_embeddings"][0].copy()
    positions[0] += weights[f"{start}cls_token"][0, 0]
    copy_table(model.get_layer("position"), positions)
    for i in range(2):
        names = [f"vit.layers.{i}.{name}" for name in IN_BLOCK]
        copy_dense(model.get_layer(f"encoder_{i}"), weights, *names)
    copy_dense(model.get_layer("norm"), weights, "vit.layernorm")
    copy_dense(model.get_layer("logits"), weights, "classifier")
    # In `transformers`, the class token and its position embedding are two weights.
    assert model.count_params() == sum(map(np.size, weights.values())) - 6

    channels_first = torch.tensor(images().transpose(0, 3, 1, 2))
    with torch.no_grad():
        expected = reference(channels_first).logits.numpy()
    assert np.abs(expected).max() > 0.3
    assert_close(model(images()), expected, 1e-4)


@pytest.mark.on_pytorch
def test_mean_is_over_all_patches_only(models):
    model = models["mean"]
    patches = keras.Model(model.input, model.get_layer("norm").output)(images())
    assert patches.shape == (3, 6, 6)
    kernel, bias = map(array, model.get_layer("logits").weights)
    assert_close(model(images()), array(patches).mean(axis=1) @ kernel + bias)


@pytest.mark.on_pytorch
@pytest.mark.parametrize("pooling", ["token", "mean"])
def test_logits_depend_on_each_patch_and_its_position(models, pooling):
    model = models[pooling]
    before = array(model(images()))
    for row, column in np.ndindex(2, 3):
        changed = images()
        patch = np.s_[:, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4]
        changed[patch] = changed[patch][:, ::-1]
        assert np.abs(array(model(changed)) - before).max() > 1e-4
    swapped = np.concatenate([images()[:, 4:], images()[:, :4]], axis=1)
    assert np.abs(array(model(swapped)) - before).max() > 1e-4


@pytest.mark.on_pytorch
@pytest.mark.parametrize(("pooling", "length"), [("token", 7), ("mean", 6)])
def test_attention_maps(models, pooling, length):
    maps = attention_maps(models[pooling], {"image": images()})
    assert maps.keys() == {"encoder_0", "encoder_1"}
    for weights in maps.values():
        assert weights.shape == (3, 2, length, length)
        assert_close(weights.sum(axis=-1), np.ones((3, 2, length)))
        assert weights.std() > 1e-3


def test_inputs_and_outputs(models):
    model = models["token"]
    assert model.input.name == "image"
    assert model.input_shape == (None, 8, 12, 3)
    assert model.output_shape == (None, 5)
    assert vision_transformer(**{**SMALL, "image_size": 8}).input_shape[1:3] == (8, 8)


@pytest.mark.parametrize("pooling", ["token", "mean"])
def test_saved_and_loaded(models, tmp_path, pooling):
    model = models[pooling]
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert_close(loaded(images()), model(images()), 1e-6)
    assert loaded.name == "vision_transformer"


@pytest.mark.slow
@pytest.mark.every_backend
def test_training_lowers_the_loss():
    keras.utils.set_random_seed(0)
    model = vision_transformer(**{**SMALL, "num_layers": 1})
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    jit = keras.backend.backend() == "jax"  # without jit, JAX runs each operation alone
    model.compile(keras.optimizers.Adam(3e-2), loss, jit_compile=jit)
    labels = np.arange(8) % 5
    losses = model.fit(images(8), labels, epochs=12, verbose=0).history["loss"]
    assert losses[-1] < 0.5 * losses[0]


def test_dtype_and_name():
    model = vision_transformer(**SMALL, dtype="mixed_bfloat16", name="mine")
    assert model.name == "mine"
    with_weights = [layer for layer in model.layers if layer.weights]
    assert {layer.compute_dtype for layer in with_weights} == {"bfloat16"}
    assert {weight.dtype for weight in model.weights} == {"float32"}


def test_defaults_are_those_of_the_base_model_of_the_paper():
    parameters = inspect.signature(vision_transformer).parameters.values()
    defaults = {parameter.name: parameter.default for parameter in parameters}
    expected = dict(
        patch_size=16,
        num_layers=12,
        hidden_dim=768,
        intermediate_dim=3072,
        num_heads=12,
        pooling="token",
        activation="gelu",
    )
    assert defaults | expected == defaults


BAD = [
    ("image_size", (8, 10)),
    ("image_size", 0),
    ("image_size", (8, -4)),
    ("image_size", (8, 12, 3)),
    ("image_size", 8.0),
    ("num_classes", 0),
    ("patch_size", 0),
    ("patch_size", 5),
    ("patch_size", 2.5),
    ("num_layers", 0),
    ("hidden_dim", -6),
    ("intermediate_dim", 0),
    ("num_heads", 4),
    ("dropout", 1.0),
    ("pooling", "max"),
    ("num_channels", 0),
]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_bad_arguments(name, value):
    with pytest.raises(ValueError, match="Received: "):
        vision_transformer(**{**SMALL, name: value})
