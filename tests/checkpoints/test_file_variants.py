"""Weight files with other tensor names, and configs with omitted entries."""

import json
import pathlib
from collections.abc import Callable

import numpy as np
import pytest
from published import (
    ids_and_mask,
    max_difference,
    run_reference,
    save_reference,
    transformers,
)
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


def rewrite(
    folder: pathlib.Path,
    change: Callable[[dict[str, np.ndarray]], object],
    metadata: dict[str, str] | None = None,
) -> None:
    """Save the dict of tensors after `change`, which modifies it in place."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata)


@pytest.mark.parametrize("has_metadata", [False, True])
@pytest.mark.parametrize("family", ["Bart", "T5"])
def test_shared_embedding_stored_under_another_name(
    family: str, has_metadata: bool, tmp_path: pathlib.Path
) -> None:
    """A file stores one of several names; its metadata can list the others."""
    config = getattr(transformers, f"{family}Config")(
        **{"Bart": BART, "T5": T5}[family]
    )
    reference = save_reference(tmp_path, f"{family}ForConditionalGeneration", config)
    base = "model." if family == "Bart" else ""
    shared, stored = f"{base}shared.weight", f"{base}decoder.embed_tokens.weight"

    def change(tensors: dict[str, np.ndarray]) -> None:
        tensors[stored] = tensors.pop(shared)

    metadata = {shared: stored, "format": "pt"} if has_metadata else None
    rewrite(tmp_path, change, metadata)
    source, mask = ids_and_mask([5, 3], 13, config.pad_token_id)
    target, _ = ids_and_mask([4, 4], 13, config.pad_token_id, seed=1)
    expected = run_reference(
        reference, input_ids=source, attention_mask=mask, decoder_input_ids=target
    )
    outputs = checkpoints.load(tmp_path)({"source": source, "target": target})
    assert max_difference(outputs, expected) < 1e-4


def test_shared_embedding_listed_in_the_metadata(tmp_path: pathlib.Path) -> None:
    reference = save_reference(
        tmp_path, "GPT2LMHeadModel", transformers.GPT2Config(**GPT2)
    )
    name, stored = "transformer.wte.weight", "lm_head.weight"

    def change(tensors: dict[str, np.ndarray]) -> None:
        tensors[stored] = tensors.pop(name)

    rewrite(tmp_path, change, {name: stored})
    ids, _ = ids_and_mask([6, 6], 13)
    outputs = checkpoints.load(tmp_path)(ids)
    assert max_difference(outputs, run_reference(reference, input_ids=ids)) < 1e-4


@pytest.mark.parametrize("family", ["gpt2", "bert", "llama"])
def test_head_with_different_values_is_untied(
    family: str, tmp_path: pathlib.Path
) -> None:
    """The config does not matter, as in `transformers`."""
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
    save_reference(tmp_path, architecture, config)
    weight = np.random.default_rng(0).normal(size=(13, 8)).astype("float32")
    bias = {"cls.predictions.decoder.bias": np.ones(13, "float32")}

    def change(tensors: dict[str, np.ndarray]) -> None:
        tensors[head] = weight
        if family == "bert":
            tensors.update(bias)

    rewrite(tmp_path, change)
    reference = getattr(transformers, architecture).from_pretrained(tmp_path).eval()
    ids, _ = ids_and_mask([6, 6], 13, padding_id=0)
    outputs = checkpoints.load(tmp_path)(ids)
    assert max_difference(outputs, run_reference(reference, input_ids=ids)) < 1e-4


def test_stale_index_is_ignored(tmp_path: pathlib.Path) -> None:
    reference = save_reference(tmp_path, "BertModel", transformers.BertConfig(**BERT))
    content = {"weight_map": {"a": "model-00001-of-00002.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(content))
    ids, mask = ids_and_mask([6, 3], 13)
    expected = run_reference(
        reference, "last_hidden_state", input_ids=ids, attention_mask=mask
    )
    assert max_difference(checkpoints.load(tmp_path)(ids), expected, mask) < 1e-4


def test_head_of_another_task_is_not_loaded(tmp_path: pathlib.Path) -> None:
    """Not even the token classification head, which has the same shape."""
    config = transformers.BertConfig(**BERT, num_labels=3)
    reference = save_reference(tmp_path, "BertForTokenClassification", config)
    model = checkpoints.load(tmp_path, num_classes=3)
    weight = np.asarray(model.get_layer("logits").kernel)
    reference_weight = reference.classifier.weight.detach().numpy()
    assert np.abs(weight.T - reference_weight).max() > 0.1


def test_config_without_default_entries(tmp_path: pathlib.Path) -> None:
    reference = save_reference(tmp_path, "BertModel", transformers.BertConfig(**BERT))
    content = json.loads((tmp_path / "config.json").read_text())
    for name in ("layer_norm_eps", "hidden_act", "type_vocab_size"):
        del content[name]
    (tmp_path / "config.json").write_text(json.dumps(content))
    ids, mask = ids_and_mask([6, 3], 13)
    expected = run_reference(
        reference, "last_hidden_state", input_ids=ids, attention_mask=mask
    )
    assert max_difference(checkpoints.load(tmp_path)(ids), expected, mask) < 1e-4
