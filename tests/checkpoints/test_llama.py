"""Llama, Mistral, Qwen2 and Qwen3 out of files that `transformers` has written."""

import numpy as np
import pytest
from decoder_only import (
    IDS,
    KEEP,
    VOCABULARY,
    WINDOW,
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
from published import difference, transformers

from keras_attn import checkpoints

# Grouped heads, whose width is what they leave of the model's or, wide, more.
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 24,
    "intermediate_size": 17,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
}
WIDE = {"head_dim": 6}
# Trained, as it were, on texts shorter than those of the tests.
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
    "Llama, no groups": {"num_key_value_heads": None},
    "Llama, others": {"hidden_act": "gelu", "rms_norm_eps": 0.1},
    "Llama, linear": WIDE | {"rope_parameters": LINEAR},
    "Llama, yarn": WIDE | {"rope_parameters": YARN, "max_position_embeddings": 16},
    "Llama, llama3": WIDE | {"rope_parameters": LLAMA3},
    "Mistral, no window": WIDE | {"sliding_window": None},
    "Qwen2, no window": {"max_window_layers": 0},
    "Qwen2, tied": SLIDING | {"tie_word_embeddings": True, "max_window_layers": 0},
    "Qwen3, biases": WIDE | {"attention_bias": True, "rms_norm_eps": 0.1},
}


def model_of(name, folder, end="ForCausalLM", **options):
    """Of a name in `MODELS` or `VARIANTS`."""
    options = SIZES | (MODELS | VARIANTS)[name] | options
    return made(folder, name.partition(",")[0], end, options)


@pytest.mark.every_backend
@pytest.mark.parametrize("name", MODELS)
def test_equal_to_theirs(name, tmp_path):
    check_equal(model_of(name, tmp_path), tmp_path)


@pytest.mark.parametrize("name", VARIANTS)
def test_variants(name, tmp_path):
    check_equal(model_of(name, tmp_path), tmp_path)


@pytest.mark.parametrize("name", MODELS)
def test_hidden_states(name, tmp_path):
    check_equal(model_of(name, tmp_path, "Model"), tmp_path)


@pytest.mark.on_pytorch
@pytest.mark.parametrize("name", ["Llama, llama3", "Mistral", "Qwen2", "Qwen3"])
def test_same_greedy_tokens(name, tmp_path):
    check_same_greedy_tokens(model_of(name, tmp_path), tmp_path)


def test_shards(tmp_path):
    check_shards(model_of("Qwen3", tmp_path), tmp_path)


@pytest.mark.parametrize("name", MODELS)
def test_bfloat16(name, tmp_path):
    check_bfloat16(model_of(name, tmp_path), tmp_path)


def test_head_is_left_out(tmp_path):
    """Asked for hidden states, a file with a head of its own gives them."""
    model = model_of("Llama", tmp_path)
    ours = checkpoints.load(tmp_path, task="hidden_states")
    assert difference(ours(IDS), outputs_of(model.model), KEEP) < 1e-4
    assert not any("reverse" in weight.path for weight in ours.weights)


@pytest.mark.parametrize(
    "name, changes, without",
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
        ("Llama, no groups", {}, ("head_dim", "num_key_value_heads")),
        ("Qwen2", {}, ("layer_types",)),
        (
            "Qwen2, no window",
            {"sliding_window": WINDOW},
            ("layer_types", "use_sliding_window"),
        ),
    ],
)
def test_older_configs(name, changes, without, tmp_path):
    """Rotary positions in other words, a buffer, what is usual left out."""
    expected = outputs_of(model_of(name, tmp_path))
    theta = (MODELS | VARIANTS)[name].get("rope_parameters", {}).get("rope_theta", 1e4)
    change_config(
        tmp_path, {"rope_theta": theta, **changes}, ("rope_parameters", *without)
    )
    buffer = {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(3, "float32")}
    add_tensors(tmp_path, **buffer)
    assert difference(checkpoints.load(tmp_path)(IDS), expected, KEEP) < 1e-4
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert difference(outputs_of(theirs), expected, KEEP) < 1e-5


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_rotation_of_another_kind_is_refused(kind, tmp_path):
    model_of("Llama", tmp_path)
    change_config(tmp_path, {"rope_scaling": {"type": kind, "factor": 2.0}})
    with pytest.raises(ValueError, match=f"must be .*yarn.* Received: .*{kind}"):
        checkpoints.load(tmp_path)


def test_dropout(tmp_path):
    """The config's is of attention alone, a user's of all."""
    model_of("Llama", tmp_path, attention_dropout=0.5)
    assert drops(tmp_path)
    assert not drops(tmp_path, dropout=0.0)
    change_config(tmp_path, {"attention_dropout": 0.0})
    assert not drops(tmp_path)
    ours = checkpoints.load(tmp_path, dropout=0.5)
    block = ours.get_layer("decoder_1")
    assert block.dropout == block.attention.dropout == 0.5
