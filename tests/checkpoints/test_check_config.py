"""Impossible entries of a config are refused by name, before anything is built."""

import json
import pathlib
from typing import Any

import keras
import numpy as np
import pytest
from published import save_reference, transformers
from safetensors.numpy import load_file, save_file

from keras_attn import checkpoints, decoding
from keras_attn.checkpoints.check_config import check_config
from keras_attn.checkpoints.folder import Config

SIZES = {
    "vocab_size": 11,
    "hidden_size": 8,
    "intermediate_size": 9,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "max_position_embeddings": 7,
}
SHAPES = {"embedding": (11, 8), "kernel": (8, 9), "bias": (9,)}
GOOD = {
    **SIZES,
    "pad_token_id": 0,
    "layer_norm_eps": 1e-12,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "classifier_dropout": None,
    "tie_word_embeddings": True,
    "rope_theta": 10000,
    "rope_parameters": {"rope_theta": 10000.0, "factor": 2.0},
}
WRONG = [
    *({"num_hidden_layers": value} for value in ("x", None, 2.5, -1, 10**9, True)),
    {"num_attention_heads": 0},
    *({"vocab_size": value} for value in (10**9, 0)),
    *({"max_position_embeddings": value} for value in (None, 0)),
    *({"layer_norm_eps": value} for value in (float("nan"), -1, "small")),
    *({"hidden_dropout_prob": value} for value in (1.0, -0.1, None)),
    {"hidden_act": [1]},
    *({"pad_token_id": value} for value in (2.5, 11, -7)),
    {"tie_word_embeddings": "false"},
    {"rope_theta": 0},
    {"rope_parameters": {"rope_theta": 0}},
    {"rope_parameters": [1]},
]


def test_possible_entries():
    check_config(Config(GOOD), SHAPES, uses_padding=True)
    check_config(Config({}), SHAPES, uses_padding=True)
    check_config(Config(pad_token_id=-1), SHAPES, uses_padding=False)


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_impossible_entries(wrong: dict[str, Any]):
    (key,) = wrong
    with pytest.raises(ValueError, match=f"{key}|rope_theta.*Received"):
        check_config(Config({**GOOD, **wrong}), SHAPES, uses_padding=True)


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    config = transformers.BertConfig(**SIZES, pad_token_id=0)
    save_reference(tmp_path / "bert", "BertModel", config)
    return tmp_path / "bert"


@pytest.mark.parametrize("wrong", [{"model_type": ["bert"]}, {"vocab_size": 10**9}])
def test_load(folder: pathlib.Path, wrong: dict[str, Any]):
    content = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**content, **wrong}))
    with pytest.raises(ValueError, match=f"{next(iter(wrong))}.*Received"):
        checkpoints.load(folder)


def test_tensors_of_integers(folder: pathlib.Path):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    name = next(n for n in tensors if "word_embeddings" in n)
    save_file({**tensors, name: np.ones((11, 8), "int32")}, path)
    with pytest.raises(ValueError, match=f"not of a float dtype: {name} I32"):
        checkpoints.load(folder)


def test_clones_cannot_be_saved(folder: pathlib.Path, tmp_path: pathlib.Path):
    clone = keras.models.clone_model(checkpoints.load(folder))
    with pytest.raises(ValueError, match="clone.*Received"):
        checkpoints.save(clone, tmp_path / "saved")


def test_yarn_passes_over_finetuned(tmp_path: pathlib.Path):
    config = transformers.LlamaConfig(**SIZES, pad_token_id=0)
    save_reference(tmp_path / "llama", "LlamaForCausalLM", config)
    path = tmp_path / "llama" / "config.json"
    content = json.loads(path.read_text())
    content.pop("rope_parameters", None)
    scaling = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4}
    ids = np.array([[1, 2, 3, 4, 5, 6]])
    outputs = []
    for more in ({}, {"finetuned": True}):
        entry = {"rope_theta": 10000.0, "rope_scaling": {**scaling, **more}}
        path.write_text(json.dumps({**content, **entry}))
        outputs.append(np.asarray(checkpoints.load(tmp_path / "llama")(ids)))
    np.testing.assert_array_equal(*outputs)


@pytest.mark.slow
def test_words_that_a_published_model_bans(tmp_path: pathlib.Path):
    config = transformers.MarianConfig(
        vocab_size=12,
        d_model=8,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=9,
        decoder_ffn_dim=9,
        pad_token_id=11,
        eos_token_id=0,
        decoder_start_token_id=11,
    )
    folder = tmp_path / "marian"
    save_reference(folder, "MarianMTModel", config)
    tensors = load_file(folder / "model.safetensors")
    bias = np.full((1, 12), -9.0, "float32")
    bias[0, 11] = 9.0  # the padding id has the largest logit
    save_file({**tensors, "final_logits_bias": bias}, folder / "model.safetensors")
    inputs = {"source": np.array([[1, 2, 3]])}
    options = {"start_token_id": 11, "max_new_tokens": 3, "jit_compile": False}

    content = {"pad_token_id": 11, "bad_words_ids": [[11], [1, 2]]}
    (folder / "generation_config.json").write_text(json.dumps(content))
    model = checkpoints.load(folder)
    assert model.banned_token_ids == (11,)
    result = decoding.generate(model, inputs, **options)
    assert 11 not in np.asarray(result["token_ids"])
    result = decoding.generate(model, inputs, banned_token_ids=[], **options)
    assert np.asarray(result["token_ids"])[0, 0].tolist() == [11, 11, 11]
    loaded = decoding.GenerationConfig.load(folder)
    assert list(loaded.banned_token_ids) == [11]
