"""Pooling of sentence embeddings, in both versions of its config."""

import json
import pathlib
from typing import Any

import numpy as np
import pytest
from published import ids_and_mask, save_reference, transformers
from tensors import array

from keras_attn import checkpoints

WIDTH = 8
SIZES = {
    "vocab_size": 13,
    "hidden_size": WIDTH,
    "intermediate_size": 9,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "max_position_embeddings": 7,
}
POOLINGS = {
    "first": lambda x, mask: x[:, 0],
    "mean": lambda x, mask: (x * mask).sum(axis=1) / mask.sum(axis=1),
    "max": lambda x, mask: np.where(mask, x, -np.inf).max(axis=1),
}
NEW = {"first": "cls", "mean": ["mean"], "max": "max"}
OLD = {"first": "cls_token", "mean": "mean_tokens", "max": "max_tokens"}


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    save_reference(tmp_path / "bert", "BertModel", transformers.BertConfig(**SIZES))
    return tmp_path / "bert"


def write_modules(
    folder: pathlib.Path, config: dict[str, Any], normalize: bool = False
) -> None:
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling/config.json").write_text(json.dumps(config))
    kinds = {"": "Transformer", "1_Pooling": "Pooling"}
    if normalize:
        kinds["2_Normalize"] = "Normalize"
    modules = [{"path": path, "type": f"a.{kind}"} for path, kind in kinds.items()]
    (folder / "modules.json").write_text(json.dumps(modules))


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("mode", POOLINGS)
def test_pooling_is_loaded_and_saved(
    mode: str, normalize: bool, folder: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    ids, mask = ids_and_mask([6, 2, 4], SIZES["vocab_size"])
    hidden = array(checkpoints.load(folder, task="hidden_states")(ids))
    expected = POOLINGS[mode](hidden.astype("float64"), mask[:, :, None])
    if normalize:
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    for config in (
        {"embedding_dimension": WIDTH, "pooling_mode": NEW[mode], "x": True},
        {f"pooling_mode_{name}": key == mode for key, name in OLD.items()},
    ):
        write_modules(folder, config, normalize)
        model = checkpoints.load(folder, task="sentence_embedding")
        np.testing.assert_allclose(model(ids), expected, atol=1e-5)
    saved = checkpoints.save(model, tmp_path / "saved")
    model = checkpoints.load(saved, task="sentence_embedding")
    np.testing.assert_allclose(model(ids), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"pooling_mode": "lasttoken"},
            r"'mean', 'max'\]. Received: pooling_mode=\['lasttoken'\]",
        ),
        ({"pooling_mode": ["cls", "max"]}, r"Received: pooling_mode=\['cls', 'max'\]"),
        ({"pooling_mode_weightedmean_tokens": True}, "pooling_mode_weightedmean"),
        ({}, r"Received: pooling_mode=\[\]"),
    ],
)
def test_unsupported_poolings_raise(
    config: dict[str, Any], message: str, folder: pathlib.Path
) -> None:
    write_modules(folder, config)
    with pytest.raises(ValueError, match=message):
        checkpoints.load(folder, task="sentence_embedding")


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        ("[", "Expected JSON.*modules.json"),
        ("{}", "Expected a JSON array.*modules.json"),
        ("[3]", "a list of modules.*Received: module=3"),
        ('[{"type": "a.Dense", "path": ""}]', r"Received: types=\['Dense'\]"),
        ('[{"type": "a.Pooling"}]', "with 'type' and 'path'"),
        (
            '[{"type": "a.Pooling", "path": "../elsewhere"}]',
            "`modules.json` must name files inside the folder.*'../elsewhere'",
        ),
    ],
)
def test_invalid_modules_raise(
    modules: str, message: str, folder: pathlib.Path
) -> None:
    (folder / "modules.json").write_text(modules)
    with pytest.raises(ValueError, match=message):
        checkpoints.load(folder, task="sentence_embedding")
