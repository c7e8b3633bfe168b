"""Errors of loading and saving: one-line messages, and no partial files."""

import json
import pathlib
import pickle
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from published import save_reference, transformers
from safetensors.numpy import load_file, save_file

from keras_attn import checkpoints, models

SIZES = {
    "vocab_size": 11,
    "hidden_size": 8,
    "intermediate_size": 9,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "max_position_embeddings": 7,
    "pad_token_id": 0,
}


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """Return a folder with a small BERT."""
    save_reference(tmp_path / "bert", "BertModel", transformers.BertConfig(**SIZES))
    return tmp_path / "bert"


def change_config(folder: pathlib.Path, **changes: Any) -> None:
    path = folder / "config.json"
    content = json.loads(path.read_text())
    content.update(changes)
    path.write_text(json.dumps({k: v for k, v in content.items() if v is not None}))


def change_weights(
    folder: pathlib.Path, change: Callable[[dict[str, np.ndarray]], object]
) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


SHARD = "model-00001-of-00001.safetensors"


def write_index(folder: pathlib.Path, **entries: Any) -> None:
    (folder / "model.safetensors").rename(folder / SHARD)
    content = {"weight_map": entries}
    (folder / "model.safetensors.index.json").write_text(json.dumps(content))


def truncate_weights(folder: pathlib.Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-5])


def pickle_weights(folder: pathlib.Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"a": 1}))


QUERY = "encoder.layer.0.attention.self.query.weight"
BAD_FOLDERS = {
    "missing config": (
        lambda f: (f / "config.json").unlink(),
        FileNotFoundError,
        "`config.json` in the folder of a published model",
    ),
    "config that is not an object": (
        lambda f: (f / "config.json").write_text("[1]"),
        ValueError,
        "Expected a JSON object.*config.json",
    ),
    "config that is not JSON": (
        lambda f: (f / "config.json").write_text("{"),
        ValueError,
        "Expected JSON.*config.json",
    ),
    "missing config entry": (
        lambda f: change_config(f, hidden_size=None),
        ValueError,
        "must contain 'hidden_size'",
    ),
    "missing model type": (
        lambda f: change_config(f, model_type=None),
        ValueError,
        "must be one of.*'bert'.*model_type=None",
    ),
    "unsupported model type": (
        lambda f: change_config(f, model_type="mamba"),
        ValueError,
        "must be one of.*'bert'.*model_type='mamba'",
    ),
    "unsupported activation": (
        lambda f: change_config(f, hidden_act="gegelu"),
        ValueError,
        "activation.*must be one of.*'gegelu'",
    ),
    "missing weights": (
        lambda f: (f / "model.safetensors").unlink(),
        FileNotFoundError,
        "Expected `model.safetensors` or `model.safetensors.index.json`",
    ),
    "pickled weights": (pickle_weights, ValueError, "Pickled.*'pytorch_model.bin'"),
    "truncated file": (truncate_weights, ValueError, "truncated or corrupt"),
    "corrupt file": (
        lambda f: (f / "model.safetensors").write_bytes(b"\xff" * 400),
        ValueError,
        "truncated or corrupt",
    ),
    "empty file": (
        lambda f: (f / "model.safetensors").write_bytes(b""),
        ValueError,
        "truncated or corrupt",
    ),
    "missing tensor": (
        lambda f: change_weights(f, lambda t: t.pop(QUERY)),
        ValueError,
        f"BertModel.*missing: bert.{QUERY}$",
    ),
    "unexpected tensor": (
        lambda f: change_weights(f, lambda t: t.update(more=np.zeros(3, "f4"))),
        ValueError,
        "unexpected: more$",
    ),
    "tensor of the wrong shape": (
        lambda f: change_config(f, hidden_size=10),
        ValueError,
        r"wrong shape: .*word_embeddings.weight \(11, 8\), expected \(11, 10\)|"
        "more",
    ),
    "too few blocks": (
        lambda f: change_config(f, num_hidden_layers=2),
        ValueError,
        r"missing: bert.encoder.layer.1.*and 8 more$",
    ),
    "missing shard": (
        lambda f: write_index(f, a="model-00001-of-00002.safetensors"),
        FileNotFoundError,
        "Expected a weight file.*model-00001",
    ),
    "empty index": (
        lambda f: write_index(f),
        ValueError,
        "must contain a `weight_map`",
    ),
    "tensor that is in no file": (
        lambda f: write_index(f, other=SHARD),
        ValueError,
        "file that contains it.*'other'",
    ),
    "parent path": (
        lambda f: write_index(f, a=f"../bert/{SHARD}"),
        ValueError,
        "inside the folder.*'../bert",
    ),
    "absolute path": (
        lambda f: write_index(f, a=str(f / SHARD)),
        ValueError,
        "inside the folder",
    ),
    "parent path in an unused index": (
        lambda f: (f / "model.safetensors.index.json").write_text(
            json.dumps({"weight_map": {"a": "../a.safetensors"}})
        ),
        ValueError,
        "inside the folder.*'../a.safetensors'",
    ),
    "causal decoder": (
        lambda f: change_config(f, is_decoder=True),
        ValueError,
        "not supported. Received: model_type='bert', is_decoder=True",
    ),
    "path that is not a string": (
        lambda f: write_index(f, a=3),
        ValueError,
        "inside the folder. Received: file 3",
    ),
}


@pytest.mark.parametrize("case", BAD_FOLDERS)
def test_bad_folder(case: str, folder: pathlib.Path) -> None:
    damage, error, message = BAD_FOLDERS[case]
    damage(folder)
    with pytest.raises(error, match=message) as raised:
        checkpoints.load(folder)
    assert "\n" not in str(raised.value)


def test_missing_folder(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError, match="folder with a published model"):
        checkpoints.load(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"task": "translation"}, "one of.*'hidden_states'.*task='translation'"),
        ({"task": "classification"}, "pass `num_classes`.*num_classes=None"),
        ({"task": "classification", "num_classes": 0}, "num_classes=0"),
        (
            {"task": "hidden_states", "num_classes": 3},
            "requires the task 'classification'",
        ),
        ({"task": "masked_language_model"}, "missing: cls.predictions.bias"),
    ],
)
def test_bad_arguments(
    arguments: dict[str, Any], message: str, folder: pathlib.Path
) -> None:
    with pytest.raises(ValueError, match=message):
        checkpoints.load(folder, **arguments)


def test_failed_load_does_not_change_global_state(folder: pathlib.Path) -> None:
    """The variables of the failed model are not created later."""
    change_weights(folder, lambda t: t.pop(QUERY))
    with pytest.raises(ValueError):
        checkpoints.load(folder, dtype="float16")
    assert keras.config.dtype_policy().name == "float32"
    layer = keras.layers.Dense(3)
    layer(np.ones((1, 2)))
    with keras.StatelessScope():
        pass
    assert len(layer.weights) == 2


def test_save_errors(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    model = models.text_classifier(11, 2, 1, 8, 9, num_heads=2, max_length=7)
    with pytest.raises(
        ValueError, match="Expected a model returned by `checkpoints.load`"
    ):
        checkpoints.save(model, tmp_path / "out")
    model = checkpoints.load(folder)
    with pytest.raises(FileExistsError, match="overwrite=True"):
        checkpoints.save(model, folder)
    with pytest.raises(FileNotFoundError, match="tokenizer_from=.*nowhere"):
        checkpoints.save(model, tmp_path / "out", tokenizer_from=tmp_path / "nowhere")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("mine")
    with pytest.raises(FileExistsError, match="is not a published model"):
        checkpoints.save(model, tmp_path / "other", overwrite=True)
    model.get_layer("encoder_0")._feed_forward._output_dense.enable_lora(2)
    with pytest.raises(ValueError, match="merge adapters.*lora"):
        checkpoints.save(model, tmp_path / "out")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bert", "other"]
