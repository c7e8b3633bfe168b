"""GPT-2 loaded from files that `transformers` has saved."""

import pathlib
from typing import Any

import numpy as np
import pytest
from decoder_only import (
    IDS,
    MASK,
    VOCABULARY_SIZE,
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
from published import max_difference, torch, transformers
from tensors import array

from keras_attn import checkpoints, inspection

WIDTH, HEADS, BLOCKS = 12, 3, 2
SIZES = {
    "vocab_size": VOCABULARY_SIZE,
    "n_embd": WIDTH,
    "n_head": HEADS,
    "n_layer": BLOCKS,
    "n_positions": 61,
}
VARIANTS = {
    "no score scaling": {"scale_attn_weights": False},
    "score scaling by layer index": {"scale_attn_by_inverse_layer_idx": True},
    "other options": {
        "tie_word_embeddings": False,
        "n_inner": 17,
        "activation_function": "relu",
        "layer_norm_epsilon": 0.1,
        "reorder_and_upcast_attn": True,
        "attn_implementation": "eager",
    },
}


def gpt2(folder: pathlib.Path, suffix: str = "LMHeadModel", **options: Any) -> Any:
    return make_reference(folder, "GPT2", suffix, SIZES | options)


@pytest.mark.every_backend
def test_outputs(tmp_path: pathlib.Path) -> None:
    check_outputs(gpt2(tmp_path), tmp_path)


def test_hidden_states(tmp_path: pathlib.Path) -> None:
    check_outputs(gpt2(tmp_path, "Model"), tmp_path)


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants(variant: str, tmp_path: pathlib.Path) -> None:
    check_outputs(gpt2(tmp_path, **VARIANTS[variant]), tmp_path)


@pytest.mark.on_pytorch
def test_greedy_tokens(tmp_path: pathlib.Path) -> None:
    check_greedy_tokens(gpt2(tmp_path), tmp_path)


def test_shards(tmp_path: pathlib.Path) -> None:
    check_shards(gpt2(tmp_path), tmp_path)


def test_bfloat16(tmp_path: pathlib.Path) -> None:
    check_bfloat16(gpt2(tmp_path), tmp_path)


def test_oldest_files(tmp_path: pathlib.Path) -> None:
    """The oldest files omit the prefix and config entries, and contain buffers."""
    gpt2(tmp_path, "Model")
    causal = np.tril(np.ones((1, 1, 61, 61), "float32"))
    for i in range(BLOCKS):
        buffers = {"bias": causal, "masked_bias": np.array([-1e4], "float32")}
        add_tensors(tmp_path, **{f"h.{i}.attn.{k}": v for k, v in buffers.items()})
    new_entries = {"n_inner", "tie_word_embeddings"} | set(VARIANTS["other options"])
    new_entries |= {"scale_attn_weights", "scale_attn_by_inverse_layer_idx"}
    new_entries -= {"activation_function", "layer_norm_epsilon"}
    change_config(tmp_path, {"architectures": ["GPT2LMHeadModel"]}, new_entries)
    reference = transformers.GPT2LMHeadModel.from_pretrained(tmp_path)
    model = checkpoints.load(tmp_path)
    assert max_difference(model(IDS), reference_outputs(reference), MASK) < 1e-4


def test_unexpected_tensors_raise(tmp_path: pathlib.Path) -> None:
    gpt2(tmp_path, add_cross_attention=True)
    with pytest.raises(ValueError, match=r"unexpected: .*h\.0\.crossattention\.c_attn"):
        checkpoints.load(tmp_path)


@pytest.mark.parametrize("enabled", [None, "embd_pdrop", "attn_pdrop", "resid_pdrop"])
def test_dropout(enabled: str | None, tmp_path: pathlib.Path) -> None:
    """Each rate of the config has an effect, and `dropout` overrides all of them."""
    names = "embd_pdrop", "attn_pdrop", "resid_pdrop"
    rates: dict[str, Any] = {name: 0.5 * (name == enabled) for name in names}
    gpt2(tmp_path, **rates)
    assert has_dropout(tmp_path) == (enabled is not None)
    assert not has_dropout(tmp_path, dropout=0.0)
    assert has_dropout(tmp_path, dropout=0.5)


def test_attention_maps(tmp_path: pathlib.Path) -> None:
    reference = gpt2(tmp_path, attn_implementation="eager")
    ids = torch.tensor(IDS, dtype=torch.long)
    with torch.no_grad():
        expected = reference(ids, output_attentions=True).attentions
    maps = inspection.attention_maps(checkpoints.load(tmp_path), {"token_ids": IDS})
    assert len(maps) == BLOCKS
    for weights, expected_weights in zip(maps.values(), expected):
        assert max_difference(weights, expected_weights.numpy()) < 1e-5


def test_prune_heads(tmp_path: pathlib.Path) -> None:
    """Pruning a head is equivalent to setting its output projection to zero."""
    reference, model = gpt2(tmp_path), checkpoints.load(tmp_path)
    name = list(inspection.attention_maps(model, {"token_ids": IDS}))[1]
    pruned = inspection.prune_heads(model, {name: [1]})
    assert pruned.count_params() < model.count_params()
    head = slice(WIDTH // HEADS, 2 * WIDTH // HEADS)
    with torch.no_grad():
        reference.transformer.h[1].attn.c_proj.weight[head] = 0
    expected = reference_outputs(reference)
    assert max_difference(pruned(IDS), expected, MASK) < 1e-4
    assert max_difference(array(model(IDS)), expected, MASK) > 1e-2
