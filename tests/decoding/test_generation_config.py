"""Files of generation configs."""

import json
import os

import pytest

from keras_attn.decoding import BeamSearch, GenerationConfig, generate

OLD = GenerationConfig(max_new_tokens=3, strategy=BeamSearch(2))
NEW = GenerationConfig(max_new_tokens=5, end_token_id=(3, 4))


@pytest.mark.parametrize("name", ["", "config.json"])
def test_a_file_is_replaced(tmp_path, name):
    for config in (OLD, NEW):
        config.save(tmp_path / name)
        assert GenerationConfig.load(tmp_path / name) == config
    (file,) = tmp_path.iterdir()
    assert file.name == (name or "generation_config.json")
    other = tmp_path / "other.json"
    other.touch()
    assert file.stat().st_mode == other.stat().st_mode


def test_a_link_is_not_replaced(tmp_path):
    OLD.save(tmp_path / "file.json")
    (tmp_path / "link").symlink_to("file.json")
    NEW.save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert GenerationConfig.load(tmp_path / "file.json") == NEW


def test_a_missing_folder_is_created(tmp_path):
    OLD.save(tmp_path / "new")
    assert (tmp_path / "new" / "generation_config.json").is_file()
    assert GenerationConfig.load(tmp_path / "new") == OLD


@pytest.mark.parametrize(
    "arguments",
    [
        {"strategy": "beam"},
        {"end_token_id": "x"},
        {"end_token_id": 1.5},
        {"prefix": [[1], [2, 3]]},
        {"banned_token_ids": [None]},
    ],
)
def test_wrong_values_are_refused(arguments):
    (name,) = arguments
    with pytest.raises(ValueError, match=f"`{name}` must .*Received: {name}="):
        GenerationConfig(**arguments)


@pytest.mark.parametrize("config", [{"max_new_tokens": 3}, 3, GenerationConfig])
def test_a_config_is_a_generation_config(config):
    with pytest.raises(ValueError, match="`config` must be a `GenerationConfig`"):
        generate(None, None, config=config)


def test_a_file_without_a_generation_config_is_refused(tmp_path):
    (tmp_path / "other.json").write_text('{"name": "x"}')
    with pytest.raises(ValueError, match=r"generation config.*\['name'\]"):
        GenerationConfig.load(tmp_path / "other.json")


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError(28, "No space"), KeyboardInterrupt()])
def test_a_failure_leaves_the_old_file(tmp_path, monkeypatch, step, error):
    OLD.save(tmp_path)

    def fail(*arguments):
        raise error

    with monkeypatch.context() as patch, pytest.raises(type(error)) as raised:
        patch.setattr(os, step, fail)
        NEW.save(tmp_path)
    if isinstance(error, OSError):
        assert "No space). Received: path=" in str(raised.value)
    assert GenerationConfig.load(tmp_path) == OLD
    assert [file.name for file in tmp_path.iterdir()] == ["generation_config.json"]


def test_a_path_that_cannot_be_written(tmp_path):
    with pytest.raises(FileNotFoundError, match="cannot be written.*Received: path="):
        NEW.save(tmp_path / "missing" / "folder" / "config.json")
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="cannot be written"):
        NEW.save(tmp_path / "file" / "config.json")


@pytest.mark.parametrize(
    "fields",
    [
        [1],
        {"max_tokens": 3},
        {"max_new_tokens": -1},
        {"strategy": {"class_name": "Guess"}},
        {"strategy": {"num_beams": 2}},
        {"strategy": {"class_name": "BeamSearch", "number": 2}},
        {"strategy": "BeamSearch"},
    ],
)
def test_other_fields_are_refused(tmp_path, fields):
    (tmp_path / "config.json").write_text(json.dumps({"keras_attn": fields}))
    with pytest.raises(ValueError, match=r"GenerationConfig.*Received: path="):
        GenerationConfig.load(tmp_path / "config.json")
