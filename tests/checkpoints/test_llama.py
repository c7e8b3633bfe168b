"""Llama, Mistral, Qwen2 and Qwen3 loaded from files that `transformers` has saved."""

import pathlib
from typing import Any

import numpy as np
import pytest
from decoder_only import (
    IDS,
    MASK,
    VOCABULARY_SIZE,
    WINDOW,
    add_tensors,
    change_config,
    check_bfloat16,
    check_greedy_tokens,
    check_outputs,
    check_shards,
    has_dropout,
    make_reference,
    reference_outputs,
)
from published import max_difference, transformers

from keras_attn import checkpoints

# Grouped-query attention. The heads together are as wide as the model or wider.
SIZES = {
    "vocab_size": VOCABULARY_SIZE,
    "hidden_size": 24,
    "intermediate_size": 17,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
}
WIDE = {"head_dim": 6}
# The original context is shorter than the texts of the tests.
LINEAR = {"rope_type": "linear", "factor": 3.0, "rope_theta": 500.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 10000.0}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
    "rope_theta": 500.0,
}
SLIDING = {"use_sliding_window": True, "sliding_window": WINDOW}
MODELS = {
    "Llama": WIDE,
    "Mistral": WIDE | {"sliding_window": WINDOW},
    "Qwen2": SLIDING | {"max_window_layers": 1},
    "Qwen3": WIDE | SLIDING | {"layer_types": ["sliding_attention", "full_attention"]},
}
VARIANTS = {
    "Llama, tied": {"tie_word_embeddings": True},
    "Llama, biases": {"attention_bias": True, "mlp_bias": True},
    "Llama, no grouped queries": {"num_key_value_heads": None},
    "Llama, other options": {"hidden_act": "gelu", "rms_norm_eps": 0.1},
    "Llama, linear": WIDE | {"rope_parameters": LINEAR},
    "Llama, yarn": WIDE | {"rope_parameters": YARN, "max_position_embeddings": 16},
    "Llama, llama3": WIDE | {"rope_parameters": LLAMA3},
    "Mistral, no window": WIDE | {"sliding_window": None},
    "Qwen2, no window": {"max_window_layers": 0},
    "Qwen2, tied": SLIDING | {"tie_word_embeddings": True, "max_window_layers": 0},
    "Qwen3, biases": WIDE | {"attention_bias": True, "rms_norm_eps": 0.1},
}


def make_model(
    name: str, folder: pathlib.Path, suffix: str = "ForCausalLM", **options: Any
) -> Any:
    """Return the reference for a name in `MODELS` or `VARIANTS`."""
    options = SIZES | (MODELS | VARIANTS)[name] | options
    return make_reference(folder, name.partition(",")[0], suffix, options)


@pytest.mark.every_backend
@pytest.mark.parametrize("name", MODELS)
def test_outputs(name: str, tmp_path: pathlib.Path) -> None:
    check_outputs(make_model(name, tmp_path), tmp_path)


@pytest.mark.parametrize("name", VARIANTS)
def test_variants(name: str, tmp_path: pathlib.Path) -> None:
    check_outputs(make_model(name, tmp_path), tmp_path)


@pytest.mark.parametrize("name", MODELS)
def test_hidden_states(name: str, tmp_path: pathlib.Path) -> None:
    check_outputs(make_model(name, tmp_path, "Model"), tmp_path)


@pytest.mark.slow
@pytest.mark.on_pytorch
@pytest.mark.parametrize("name", ["Llama, llama3", "Mistral", "Qwen2", "Qwen3"])
def test_greedy_tokens(name: str, tmp_path: pathlib.Path) -> None:
    check_greedy_tokens(make_model(name, tmp_path), tmp_path)


def test_shards(tmp_path: pathlib.Path) -> None:
    check_shards(make_model("Qwen3", tmp_path), tmp_path)


@pytest.mark.parametrize("name", MODELS)
def test_bfloat16(name: str, tmp_path: pathlib.Path) -> None:
    check_bfloat16(make_model(name, tmp_path), tmp_path)


def test_hidden_states_of_a_model_with_a_head(tmp_path: pathlib.Path) -> None:
    """The untied output projection is not loaded."""
    reference = make_model("Llama", tmp_path)
    model = checkpoints.load(tmp_path, task="hidden_states")
    expected = reference_outputs(reference.model)
    assert max_difference(model(IDS), expected, MASK) < 1e-4
    assert not any("reverse" in weight.path for weight in model.weights)


@pytest.mark.parametrize(
    "name, changes, removed",
    [
        ("Llama, linear", {"rope_scaling": {"type": "linear", "factor": 3.0}}, ()),
        ("Llama, yarn", {"rope_scaling": {"type": "yarn", "factor": 4.0}}, ()),
        (
            "Llama, yarn",
            {
                "rope_scaling": {"type": "yarn", "factor": 4.0},
                "original_max_position_embeddings": 16,
                "max_position_embeddings": 64,
            },
            (),
        ),
        ("Llama", {}, ("attention_bias", "mlp_bias", "tie_word_embeddings")),
        ("Llama, no grouped queries", {}, ("head_dim", "num_key_value_heads")),
        ("Qwen2", {}, ("layer_types",)),
        (
            "Qwen2, no window",
            {"sliding_window": WINDOW},
            ("layer_types", "use_sliding_window"),
        ),
    ],
)
def test_older_configs(
    name: str, changes: dict[str, Any], removed: tuple[str, ...], tmp_path: pathlib.Path
) -> None:
    """Older configs have other rotary entries and omit default values."""
    expected = reference_outputs(make_model(name, tmp_path))
    theta = (MODELS | VARIANTS)[name].get("rope_parameters", {}).get("rope_theta", 1e4)
    change_config(
        tmp_path, {"rope_theta": theta, **changes}, ("rope_parameters", *removed)
    )
    buffer = {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(3, "float32")}
    add_tensors(tmp_path, **buffer)
    assert max_difference(checkpoints.load(tmp_path)(IDS), expected, MASK) < 1e-4
    reference = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert max_difference(reference_outputs(reference), expected, MASK) < 1e-5


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_unsupported_rope_type_raises(kind: str, tmp_path: pathlib.Path) -> None:
    make_model("Llama", tmp_path)
    change_config(tmp_path, {"rope_scaling": {"type": kind, "factor": 2.0}})
    with pytest.raises(ValueError, match=f"must be .*yarn.* Received: .*{kind}"):
        checkpoints.load(tmp_path)


def test_dropout(tmp_path: pathlib.Path) -> None:
    """The config's rate is for attention only, `dropout` for all layers."""
    make_model("Llama", tmp_path, attention_dropout=0.5)
    assert has_dropout(tmp_path)
    assert not has_dropout(tmp_path, dropout=0.0)
    change_config(tmp_path, {"attention_dropout": 0.0})
    assert not has_dropout(tmp_path)
    model = checkpoints.load(tmp_path, dropout=0.5)
    block = model.get_layer("decoder_1")
    assert block.dropout == block.attention.dropout == 0.5
