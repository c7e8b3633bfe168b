"""What cannot be loaded or saved is told in one clear sentence, and leaves nothing."""

import json
import pickle

import keras
import numpy as np
import pytest
from published import published, transformers
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
def folder(tmp_path):
    """A small BERT as it was saved."""
    published(tmp_path / "bert", "BertModel", transformers.BertConfig(**SIZES))
    return tmp_path / "bert"


def change_config(folder, **changes):
    path = folder / "config.json"
    content = json.loads(path.read_text())
    content.update(changes)
    path.write_text(json.dumps({k: v for k, v in content.items() if v is not None}))


def change_weights(folder, change):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


SHARD = "model-00001-of-00001.safetensors"


def write_index(folder, **entries):
    (folder / "model.safetensors").rename(folder / SHARD)
    content = {"weight_map": entries}
    (folder / "model.safetensors.index.json").write_text(json.dumps(content))


def truncated(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-5])


def pickled(folder):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"a": 1}))


QUERY = "encoder.layer.0.attention.self.query.weight"
BAD = {
    "no config": (
        lambda f: (f / "config.json").unlink(),
        FileNotFoundError,
        "`config.json` in the folder of a published model",
    ),
    "a config of something else": (
        lambda f: (f / "config.json").write_text("[1]"),
        ValueError,
        "Expected a JSON object.*config.json",
    ),
    "a broken config": (
        lambda f: (f / "config.json").write_text("{"),
        ValueError,
        "Expected JSON.*config.json",
    ),
    "a config that lacks something": (
        lambda f: change_config(f, hidden_size=None),
        ValueError,
        "must hold 'hidden_size'",
    ),
    "a family of none": (
        lambda f: change_config(f, model_type=None),
        ValueError,
        "must be one of.*'bert'.*model_type=None",
    ),
    "another family": (
        lambda f: change_config(f, model_type="mamba"),
        ValueError,
        "must be one of.*'bert'.*model_type='mamba'",
    ),
    "an activation": (
        lambda f: change_config(f, hidden_act="gegelu"),
        ValueError,
        "activation.*must be one of.*'gegelu'",
    ),
    "no weights": (
        lambda f: (f / "model.safetensors").unlink(),
        FileNotFoundError,
        "Expected `model.safetensors` or `model.safetensors.index.json`",
    ),
    "pickled weights": (pickled, ValueError, "Pickled.*'pytorch_model.bin'"),
    "a truncated file": (truncated, ValueError, "truncated or corrupt"),
    "a corrupt file": (
        lambda f: (f / "model.safetensors").write_bytes(b"\xff" * 400),
        ValueError,
        "truncated or corrupt",
    ),
    "an empty file": (
        lambda f: (f / "model.safetensors").write_bytes(b""),
        ValueError,
        "truncated or corrupt",
    ),
    "a weight missing": (
        lambda f: change_weights(f, lambda t: t.pop(QUERY)),
        ValueError,
        f"BertModel.*missing: bert.{QUERY}$",
    ),
    "a weight left over": (
        lambda f: change_weights(f, lambda t: t.update(more=np.zeros(3, "f4"))),
        ValueError,
        "left over: more$",
    ),
    "a weight of another shape": (
        lambda f: change_config(f, hidden_size=10),
        ValueError,
        r"of another shape: .*word_embeddings.weight \(11, 8\), expected \(11, 10\)|"
        "more",
    ),
    "more blocks than there are": (
        lambda f: change_config(f, num_hidden_layers=2),
        ValueError,
        r"missing: bert.encoder.layer.1.*and 8 more$",
    ),
    "a shard missing": (
        lambda f: write_index(f, a="model-00001-of-00002.safetensors"),
        FileNotFoundError,
        "file of the weights is missing.*model-00001",
    ),
    "an index of nothing": (
        lambda f: write_index(f),
        ValueError,
        "must hold a `weight_map`",
    ),
    "a tensor that is in no file": (
        lambda f: write_index(f, other=SHARD),
        ValueError,
        "not in its file.*'other'",
    ),
    "a path up": (
        lambda f: write_index(f, a=f"../bert/{SHARD}"),
        ValueError,
        "inside the folder.*'../bert",
    ),
    "an absolute path": (
        lambda f: write_index(f, a=str(f / SHARD)),
        ValueError,
        "inside the folder",
    ),
    "a path up, of an index that is not read": (
        lambda f: (f / "model.safetensors.index.json").write_text(
            json.dumps({"weight_map": {"a": "../a.safetensors"}})
        ),
        ValueError,
        "inside the folder.*'../a.safetensors'",
    ),
    "a decoder": (
        lambda f: change_config(f, is_decoder=True),
        ValueError,
        "not supported. Received: bert, is_decoder=True",
    ),
    "a path that is none": (
        lambda f: write_index(f, a=3),
        ValueError,
        "inside the folder. Received: file 3",
    ),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_folder(bad, folder):
    spoil, error, message = BAD[bad]
    spoil(folder)
    with pytest.raises(error, match=message) as told:
        checkpoints.load(folder)
    assert "\n" not in str(told.value)


def test_no_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match="folder with a published model"):
        checkpoints.load(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"task": "translation"}, "one of.*'hidden_states'.*task='translation'"),
        ({"task": "classification"}, "give `num_classes`.*num_classes=None"),
        ({"task": "classification", "num_classes": 0}, "num_classes=0"),
        (
            {"task": "hidden_states", "num_classes": 3},
            "is for the task 'classification'",
        ),
        ({"task": "masked_language_model"}, "missing: cls.predictions.bias"),
    ],
)
def test_bad_arguments(arguments, message, folder):
    with pytest.raises(ValueError, match=message):
        checkpoints.load(folder, **arguments)


def test_a_failed_load_leaves_nothing_behind(folder):
    """Variables that were never made are not made later either."""
    change_weights(folder, lambda t: t.pop(QUERY))
    with pytest.raises(ValueError):
        checkpoints.load(folder, dtype="float16")
    assert keras.config.dtype_policy().name == "float32"
    layer = keras.layers.Dense(3)
    layer(np.ones((1, 2)))
    with keras.StatelessScope():
        pass
    assert len(layer.weights) == 2


def test_only_such_models_are_saved(folder, tmp_path):
    model = models.text_classifier(11, 2, 1, 8, 9, 2, max_length=7)
    with pytest.raises(ValueError, match="Expected a model that `checkpoints.load`"):
        checkpoints.save(model, tmp_path / "out")
    model = checkpoints.load(folder)
    with pytest.raises(FileExistsError, match="overwrite=True"):
        checkpoints.save(model, folder)
    with pytest.raises(FileNotFoundError, match="tokenizer_from=.*nowhere"):
        checkpoints.save(model, tmp_path / "out", tokenizer_from=tmp_path / "nowhere")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("mine")
    with pytest.raises(FileExistsError, match="something else"):
        checkpoints.save(model, tmp_path / "other", overwrite=True)
    model.get_layer("encoder_0")._feedforward._output_dense.enable_lora(2)
    with pytest.raises(ValueError, match="adapters are to be merged.*lora"):
        checkpoints.save(model, tmp_path / "out")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bert", "other"]
