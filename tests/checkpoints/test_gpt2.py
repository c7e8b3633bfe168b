"""GPT-2 out of files that `transformers` has written."""

import numpy as np
import pytest
from decoder_only import (
    IDS,
    KEEP,
    VOCABULARY,
    add_tensors,
    change_config,
    check_bfloat16,
    check_equal,
    check_same_greedy_tokens,
    check_shards,
    drops,
    made,
    outputs_of,
)
from published import difference, torch, transformers
from tensors import array

from keras_attn import checkpoints, inspection

WIDTH, HEADS, BLOCKS = 12, 3, 2
SIZES = {
    "vocab_size": VOCABULARY,
    "n_embd": WIDTH,
    "n_head": HEADS,
    "n_layer": BLOCKS,
    "n_positions": 61,
}
VARIANTS = {
    "scores not scaled": {"scale_attn_weights": False},
    "scores scaled by the depth": {"scale_attn_by_inverse_layer_idx": True},
    "others": {
        "tie_word_embeddings": False,
        "n_inner": 17,
        "activation_function": "relu",
        "layer_norm_epsilon": 0.1,
        "reorder_and_upcast_attn": True,
        "attn_implementation": "eager",
    },
}


def gpt2(folder, end="LMHeadModel", **options):
    return made(folder, "GPT2", end, SIZES | options)


@pytest.mark.every_backend
def test_equal_to_theirs(tmp_path):
    check_equal(gpt2(tmp_path), tmp_path)


def test_hidden_states(tmp_path):
    check_equal(gpt2(tmp_path, "Model"), tmp_path)


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants(variant, tmp_path):
    check_equal(gpt2(tmp_path, **VARIANTS[variant]), tmp_path)


@pytest.mark.on_pytorch
def test_same_greedy_tokens(tmp_path):
    check_same_greedy_tokens(gpt2(tmp_path), tmp_path)


def test_shards(tmp_path):
    check_shards(gpt2(tmp_path), tmp_path)


def test_bfloat16(tmp_path):
    check_bfloat16(gpt2(tmp_path), tmp_path)


def test_the_first_files(tmp_path):
    """Names without a prefix, buffers among the weights, half of the config."""
    gpt2(tmp_path, "Model")
    causal = np.tril(np.ones((1, 1, 61, 61), "float32"))
    for i in range(BLOCKS):
        buffers = {"bias": causal, "masked_bias": np.float32([-1e4])}
        add_tensors(tmp_path, **{f"h.{i}.attn.{k}": v for k, v in buffers.items()})
    later = {"n_inner", "tie_word_embeddings"} | set(VARIANTS["others"])
    later |= {"scale_attn_weights", "scale_attn_by_inverse_layer_idx"}
    known = {"activation_function", "layer_norm_epsilon"}
    change_config(tmp_path, {"architectures": ["GPT2LMHeadModel"]}, later - known)
    model = transformers.GPT2LMHeadModel.from_pretrained(tmp_path)
    ours = checkpoints.load(tmp_path)
    assert difference(ours(IDS), outputs_of(model), KEEP) < 1e-4


def test_left_over_is_refused(tmp_path):
    gpt2(tmp_path, add_cross_attention=True)
    with pytest.raises(ValueError, match=r"left over: .*h\.0\.crossattention\.c_attn"):
        checkpoints.load(tmp_path)


@pytest.mark.parametrize("where", [None, "embd_pdrop", "attn_pdrop", "resid_pdrop"])
def test_dropout(where, tmp_path):
    """Each rate of the config falls somewhere, and a user's in place of all."""
    names = "embd_pdrop", "attn_pdrop", "resid_pdrop"
    gpt2(tmp_path, **{name: 0.5 if name == where else 0.0 for name in names})
    assert drops(tmp_path) == (where is not None)
    assert not drops(tmp_path, dropout=0.0)
    assert drops(tmp_path, dropout=0.5)


def test_attention_maps(tmp_path):
    model = gpt2(tmp_path, attn_implementation="eager")
    ids = torch.tensor(IDS, dtype=torch.long)
    with torch.no_grad():
        expected = model(ids, output_attentions=True).attentions
    maps = inspection.attention_maps(checkpoints.load(tmp_path), {"target": IDS})
    assert len(maps) == BLOCKS
    for found, weights in zip(maps.values(), expected):
        assert difference(found, weights.numpy()) < 1e-5


def test_prune_heads(tmp_path):
    """As if what a head puts out were nothing."""
    model, ours = gpt2(tmp_path), checkpoints.load(tmp_path)
    name = list(inspection.attention_maps(ours, {"target": IDS}))[1]
    smaller = inspection.prune_heads(ours, {name: [1]})
    assert smaller.count_params() < ours.count_params()
    head = slice(WIDTH // HEADS, 2 * WIDTH // HEADS)
    with torch.no_grad():
        model.transformer.h[1].attn.c_proj.weight[head] = 0
    expected = outputs_of(model)
    assert difference(smaller(IDS), expected, KEEP) < 1e-4
    assert difference(array(ours(IDS)), expected, KEEP) > 1e-2
