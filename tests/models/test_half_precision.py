"""Training of models whose layers have half precision, and quantized policies."""

import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from safetensors.numpy import save_file
from tensors import array

from keras_attn import checkpoints, inspection, layers, models, training

SMALL: dict[str, Any] = dict(
    num_layers=1, hidden_dim=8, intermediate_dim=12, num_heads=2
)
MAKERS = {
    "causal_language_model": lambda **k: models.causal_language_model(11, **SMALL, **k),
    "masked_language_model": lambda **k: models.masked_language_model(11, **SMALL, **k),
    "text_classifier": lambda **k: models.text_classifier(11, 3, **SMALL, **k),
    "transformer_translator": lambda **k: models.transformer_translator(
        11, **SMALL, **k
    ),
    "recurrent_translator": lambda **k: models.recurrent_translator(
        11, hidden_dim=8, **k
    ),
    "vision_transformer": lambda **k: models.vision_transformer(
        8, 3, patch_size=4, **SMALL, **k
    ),
}
MIXED = "mixed_float16"


@pytest.fixture
def global_policy() -> Any:
    previous = keras.config.dtype_policy()
    yield keras.config.set_dtype_policy
    keras.config.set_dtype_policy(previous)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a published GPT-2 without blocks."""
    config = {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": 11,
        "n_positions": 16,
        "n_embd": 4,
        "n_layer": 0,
        "n_head": 2,
        "embd_pdrop": 0.0,
        "layer_norm_epsilon": 1e-5,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    shapes = {"wte.weight": (11, 4), "wpe.weight": (16, 4)}
    shapes |= {"ln_f.weight": (4,), "ln_f.bias": (4,)}
    rng = np.random.default_rng(0)
    tensors = {n: rng.normal(size=s).astype("float32") for n, s in shapes.items()}
    save_file(tensors, tmp_path / "model.safetensors")
    return tmp_path


def is_scaled(model: keras.Model) -> bool:
    model.compile(keras.optimizers.SGD(1.0), "mse")
    return isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)


@pytest.mark.parametrize("name", MAKERS)
def test_mixed_float16_scales_the_loss(name: str) -> None:
    assert is_scaled(MAKERS[name](dtype=MIXED))
    assert not is_scaled(MAKERS[name]())


@pytest.mark.every_backend
def test_every_way_to_ask_for_mixed_float16(
    global_policy: Any, folder: Path, tmp_path: Path
) -> None:
    policy = keras.DTypePolicy(MIXED)
    make = MAKERS["causal_language_model"]
    model = make(dtype=MIXED)
    model.save(tmp_path / "model.keras")
    pruned = inspection.prune_heads(model, {"decoder_0/self_attention": [0]})
    ways = {
        "policy": make(dtype=policy),
        "config": make(dtype=keras.dtype_policies.serialize(policy)),
        "map": make(dtype=keras.dtype_policies.DTypePolicyMap(MIXED)),
        "saved": keras.saving.load_model(tmp_path / "model.keras"),
        "cloned": keras.models.clone_model(model),
        "config of a model": type(model).from_config(model.get_config()),
        "pruned": pruned,
        "published": checkpoints.load(folder, dtype=MIXED),
        "attention": make(
            attention=layers.MultiHeadSelfAttention(2, dtype=keras.DTypePolicy(MIXED))
        ),
    }
    global_policy(MIXED)
    ways["global"] = make()
    ways["global, published"] = checkpoints.load(folder)
    global_policy("float32")
    assert [name for name, way in ways.items() if not is_scaled(way)] == []
    assert not is_scaled(checkpoints.load(folder))


def test_small_gradients_of_mixed_float16_are_not_lost() -> None:
    model = MAKERS["vision_transformer"](dtype=MIXED)
    model.compile(keras.optimizers.SGD(1e4), SmallLoss())
    before = [array(w) for w in model.trainable_weights]
    x = np.random.default_rng(0).normal(size=(4, 8, 8, 3)).astype("float32")
    model.fit(x, np.zeros((4, 3)), verbose=0)
    after = [array(w) for w in model.trainable_weights]
    changed = [not np.array_equal(a, b) for a, b in zip(after, before)]
    assert np.mean(changed) > 0.9  # the bias of a key has no gradient


class SmallLoss(keras.losses.Loss):
    """Loss with gradients below the smallest float16, 6e-8."""

    def call(self, y_true: Any, y_pred: Any) -> Any:
        return 3e-8 * keras.ops.sum(keras.ops.square(y_pred), axis=-1)


def fitted(model: keras.Model, optimizer: keras.optimizers.Optimizer) -> float:
    """Train a language model and return the share of numbers that change."""
    ids = np.random.default_rng(0).integers(1, 11, (8, 5)).astype("int32")
    model.compile(optimizer, training.MaskedCrossentropy(), jit_compile=False)
    before = [array(w) for w in model.trainable_weights]
    model.fit(ids, ids, epochs=2, verbose=0)
    after = [array(w) for w in model.trainable_weights]
    return float(np.mean([(a != b).mean() for a, b in zip(after, before)]))


@pytest.mark.slow
@pytest.mark.on_pytorch
def test_training_in_bfloat16_warns(folder: Path) -> None:
    def make(dtype: str) -> keras.Model:
        return checkpoints.load(folder, dtype=dtype)

    expected = "bfloat16.*trained with Adam.*beta_2=0.999 is rounded to 1.*mixed_bfloat"
    for model in (make("bfloat16"), MAKERS["masked_language_model"](dtype="bfloat16")):
        model.compile(keras.optimizers.Adam(1e-3), "mse")
        with pytest.warns(UserWarning, match=expected):
            model.make_train_function()
    wrapped = training.LayerwiseOptimizer(keras.optimizers.Adam(1e-3), {})
    with pytest.warns(UserWarning, match="LayerwiseOptimizer.*beta_2=0.999"):
        fitted(make("bfloat16"), wrapped)
    with pytest.warns(UserWarning, match="1/256 of a weight is lost: the model"):
        assert fitted(make("bfloat16"), keras.optimizers.SGD(0.5)) > 0.2
    assert fitted(make("mixed_bfloat16"), keras.optimizers.Adam(1e-3)) > 0.5


def test_inference_in_bfloat16_does_not_warn() -> None:
    model = MAKERS["causal_language_model"](dtype="bfloat16")
    model.compile("adam", training.MaskedCrossentropy())
    ids = np.array([[1, 2, 3]])
    model.evaluate(ids, ids, verbose=0)
    assert np.isfinite(np.asarray(model.predict(ids, verbose=0), "float32")).all()


@pytest.mark.parametrize("name", MAKERS)
def test_quantized_policies_raise(name: str) -> None:
    with pytest.raises(
        ValueError, match=r"model.quantize\('int8'\).*int8_from_float32"
    ):
        MAKERS[name](dtype="int8_from_float32")


def test_other_quantized_policies_raise(global_policy: Any, folder: Path) -> None:
    make = MAKERS["causal_language_model"]
    for policy in (
        "float8_from_mixed_bfloat16",
        keras.dtype_policies.get("int4/64_from_float32"),
        keras.dtype_policies.DTypePolicyMap("int8_from_float32"),
    ):
        with pytest.raises(ValueError, match="of floats.*Received: dtype="):
            make(dtype=policy)
    with pytest.raises(ValueError, match="int8_from_float32"):
        checkpoints.load(folder, dtype="int8_from_float32")
    global_policy("int8_from_float32")
    with pytest.raises(ValueError, match="int8_from_float32"):
        make()
