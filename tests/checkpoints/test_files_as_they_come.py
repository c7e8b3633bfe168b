"""Files of the same weights under other names, and what is beside them."""

import json

import numpy as np
import pytest
from published import difference, ids_and_mask, published, theirs, transformers
from safetensors.numpy import load_file, save_file

from keras_attn import checkpoints

BERT = {
    "vocab_size": 13,
    "hidden_size": 8,
    "intermediate_size": 9,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "max_position_embeddings": 7,
}
GPT2 = {"vocab_size": 13, "n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 7}
BART = {
    "vocab_size": 13,
    "d_model": 8,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 9,
    "decoder_ffn_dim": 9,
    "max_position_embeddings": 9,
}
T5 = {
    "vocab_size": 13,
    "d_model": 8,
    "d_kv": 4,
    "d_ff": 9,
    "num_layers": 1,
    "num_heads": 2,
    "decoder_start_token_id": 0,
}


def rewrite(folder, change, metadata=None):
    """Saves what `change` makes of the dict of tensors."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata)


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("family", ["Bart", "T5"])
def test_a_shared_matrix_by_another_name(family, told, tmp_path):
    """As files that keep one name of what shares memory have it, telling so or not."""
    config = getattr(transformers, f"{family}Config")(
        **{"Bart": BART, "T5": T5}[family]
    )
    model = published(tmp_path, f"{family}ForConditionalGeneration", config)
    base = "model." if family == "Bart" else ""
    shared, kept = f"{base}shared.weight", f"{base}decoder.embed_tokens.weight"

    def change(tensors):
        tensors[kept] = tensors.pop(shared)

    rewrite(tmp_path, change, {shared: kept, "format": "pt"} if told else None)
    source, keep = ids_and_mask([5, 3], 13, config.pad_token_id)
    target, _ = ids_and_mask([4, 4], 13, config.pad_token_id, seed=1)
    expected = theirs(
        model, input_ids=source, attention_mask=keep, decoder_input_ids=target
    )
    found = checkpoints.load(tmp_path)({"source": source, "target": target})
    assert difference(found, expected) < 1e-4


def test_what_shares_memory_is_read_by_any_name(tmp_path):
    model = published(tmp_path, "GPT2LMHeadModel", transformers.GPT2Config(**GPT2))
    name, kept = "transformer.wte.weight", "lm_head.weight"

    def change(tensors):
        tensors[kept] = tensors.pop(name)

    rewrite(tmp_path, change, {name: kept})
    ids, _ = ids_and_mask([6, 6], 13)
    found = checkpoints.load(tmp_path)(ids)
    assert difference(found, theirs(model, input_ids=ids)) < 1e-4


@pytest.mark.parametrize("family", ["gpt2", "bert", "llama"])
def test_a_head_that_differs_is_not_tied(family, tmp_path):
    """Whatever the config says, as `transformers` has it."""
    architecture, config, head = {
        "gpt2": ("GPT2LMHeadModel", transformers.GPT2Config(**GPT2), "lm_head.weight"),
        "bert": (
            "BertForMaskedLM",
            transformers.BertConfig(**BERT),
            "cls.predictions.decoder.weight",
        ),
        "llama": (
            "LlamaForCausalLM",
            transformers.LlamaConfig(
                vocab_size=13,
                hidden_size=8,
                intermediate_size=9,
                num_hidden_layers=1,
                num_attention_heads=2,
                tie_word_embeddings=True,
            ),
            "lm_head.weight",
        ),
    }[family]
    published(tmp_path, architecture, config)
    matrix = np.random.default_rng(0).normal(size=(13, 8)).astype("float32")
    bias = {"cls.predictions.decoder.bias": np.ones(13, "float32")}

    def change(tensors):
        tensors[head] = matrix
        if family == "bert":
            tensors.update(bias)

    rewrite(tmp_path, change)
    model = getattr(transformers, architecture).from_pretrained(tmp_path).eval()
    ids, _ = ids_and_mask([6, 6], 13, padding_id=0)
    found = checkpoints.load(tmp_path)(ids)
    assert difference(found, theirs(model, input_ids=ids)) < 1e-4


def test_an_index_that_an_older_save_has_left(tmp_path):
    model = published(tmp_path, "BertModel", transformers.BertConfig(**BERT))
    content = {"weight_map": {"a": "model-00001-of-00002.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(content))
    ids, keep = ids_and_mask([6, 3], 13)
    expected = theirs(model, "last_hidden_state", input_ids=ids, attention_mask=keep)
    assert difference(checkpoints.load(tmp_path)(ids), expected, keep) < 1e-4


def test_the_head_of_another_task_is_not_taken(tmp_path):
    """Not even one of the same shape: that of tags of tokens."""
    config = transformers.BertConfig(**BERT, num_labels=3)
    model = published(tmp_path, "BertForTokenClassification", config)
    ours = checkpoints.load(tmp_path, num_classes=3)
    kernel = np.asarray(ours.get_layer("logits").kernel)
    assert np.abs(kernel.T - model.classifier.weight.detach().numpy()).max() > 0.1


def test_a_config_that_leaves_out_what_is_usual(tmp_path):
    model = published(tmp_path, "BertModel", transformers.BertConfig(**BERT))
    content = json.loads((tmp_path / "config.json").read_text())
    for name in ("layer_norm_eps", "hidden_act", "type_vocab_size"):
        del content[name]
    (tmp_path / "config.json").write_text(json.dumps(content))
    ids, keep = ids_and_mask([6, 3], 13)
    expected = theirs(model, "last_hidden_state", input_ids=ids, attention_mask=keep)
    assert difference(checkpoints.load(tmp_path)(ids), expected, keep) < 1e-4
