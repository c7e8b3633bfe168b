"""BERT, RoBERTa and DistilBERT loaded from files that `transformers` has saved."""

import pathlib
from typing import Any

import numpy as np
import pytest
from published import (
    ids_and_mask,
    keras_round_trip,
    load_in_transformers,
    max_difference,
    run_reference,
    save_reference,
    torch,
    transformers,
)
from safetensors.numpy import load_file, save_file
from tensors import assert_equal

from keras_attn import checkpoints, inspection

VOCABULARY_SIZE, WIDTH, INTERMEDIATE_DIM = 29, 12, 17
HEADS, BLOCKS, POSITIONS = 3, 2, 41
SIZES = {
    "vocab_size": VOCABULARY_SIZE,
    "hidden_size": WIDTH,
    "intermediate_size": INTERMEDIATE_DIM,
    "num_attention_heads": HEADS,
    "num_hidden_layers": BLOCKS,
    "max_position_embeddings": POSITIONS,
}
KINDS = {
    "Bert": SIZES | {"pad_token_id": 0},
    "Roberta": SIZES | {"pad_token_id": 1, "type_vocab_size": 1},
    "DistilBert": {
        "vocab_size": VOCABULARY_SIZE,
        "dim": WIDTH,
        "hidden_dim": INTERMEDIATE_DIM,
        "n_heads": HEADS,
        "n_layers": BLOCKS,
        "max_position_embeddings": POSITIONS,
        "pad_token_id": 0,
    },
}
TASKS = {
    "hidden_states": ("Model", "last_hidden_state"),
    "masked_language_model": ("ForMaskedLM", "logits"),
    "classification": ("ForSequenceClassification", "logits"),
}
MAX_LENGTH = POSITIONS - 2


def make_model(
    kind: str, task: str, folder: pathlib.Path, **options: Any
) -> tuple[Any, str]:
    """Return a reference, and the name of its output."""
    suffix, output = TASKS[task]
    config = getattr(transformers, f"{kind}Config")(**KINDS[kind], **options)
    return save_reference(folder, kind + suffix, config), output


CASES = [(kind, task) for task in TASKS for kind in KINDS]


@pytest.mark.every_backend
@pytest.mark.parametrize(("kind", "task"), CASES)
def test_outputs(kind: str, task: str, tmp_path: pathlib.Path) -> None:
    reference, output = make_model(kind, task, tmp_path / "reference", num_labels=5)
    padding_id = reference.config.pad_token_id
    ids, mask = ids_and_mask([7, 1, MAX_LENGTH], VOCABULARY_SIZE, padding_id)
    expected = run_reference(reference, output, input_ids=ids, attention_mask=mask)
    model = checkpoints.load(tmp_path / "reference")
    output_mask = None if task == "classification" else mask
    assert max_difference(model(ids), expected, output_mask) < 1e-4
    reloaded, loading_info = load_in_transformers(
        model, tmp_path / "saved", type(reference).__name__
    )
    assert all("pooler" in name for name in loading_info["missing_keys"])
    outputs = run_reference(reloaded, output, input_ids=ids, attention_mask=mask)
    assert max_difference(outputs, expected, output_mask) < 1e-5


@pytest.mark.parametrize("kind", KINDS)
def test_untied_head(kind: str, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "reference"
    reference, output = make_model(
        kind, "masked_language_model", folder, tie_word_embeddings=False
    )
    padding_id = reference.config.pad_token_id
    ids, mask = ids_and_mask([7, 3], VOCABULARY_SIZE, padding_id)
    expected = run_reference(reference, output, input_ids=ids, attention_mask=mask)
    model = checkpoints.load(folder)
    assert max_difference(model(ids), expected, mask) < 1e-4
    model = checkpoints.load(folder, task="hidden_states")
    assert model(ids).shape == (2, 7, WIDTH)


def test_token_type_ids(tmp_path: pathlib.Path) -> None:
    """Token type ids are an input, or 0 by default."""
    folder = tmp_path / "reference"
    reference, output = make_model("Bert", "hidden_states", folder)
    ids, mask = ids_and_mask([7, 3], VOCABULARY_SIZE)
    token_type_ids = (np.arange(7) > [[2], [1]]).astype("int32")
    expected = run_reference(
        reference,
        output,
        input_ids=ids,
        attention_mask=mask,
        token_type_ids=token_type_ids,
    )
    model = checkpoints.load(folder, use_token_type_ids=True)
    inputs = {"token_ids": ids, "token_type_ids": token_type_ids}
    assert max_difference(model(inputs), expected, mask) < 1e-4
    default = checkpoints.load(folder)(ids)
    assert max_difference(default, expected, mask) > 0.1
    inputs = {"token_ids": ids, "token_type_ids": np.zeros_like(token_type_ids)}
    assert max_difference(default, model(inputs), mask) < 1e-6


def test_older_names(tmp_path: pathlib.Path) -> None:
    """The oldest BERT files have other names for some tensors."""
    reference, output = make_model("Bert", "masked_language_model", tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): value
        for name, value in load_file(path).items()
    }
    tensors["cls.seq_relationship.weight"] = np.zeros((2, WIDTH), "float32")
    tensors["bert.embeddings.position_ids"] = np.zeros((1, POSITIONS), "int64")
    save_file(tensors, path)
    ids, mask = ids_and_mask([7, 3], VOCABULARY_SIZE)
    expected = run_reference(reference, output, input_ids=ids, attention_mask=mask)
    assert max_difference(checkpoints.load(tmp_path)(ids), expected, mask) < 1e-4


def test_new_head_on_a_model_of_another_task(tmp_path: pathlib.Path) -> None:
    """The encoder is loaded, the head is new, and the saved config has its classes."""
    folder = tmp_path / "reference"
    make_model("Roberta", "masked_language_model", folder)
    model = checkpoints.load(folder, "classification", num_classes=4)
    encoder = checkpoints.load(folder, "hidden_states")
    assert model.output_shape == (None, 4)
    for layer in encoder.layers:
        weights = model.get_layer(layer.name).weights
        for weight, encoder_weight in zip(weights, layer.weights):
            assert_equal(weight, encoder_weight)
    reloaded, loading_info = load_in_transformers(
        model, tmp_path / "saved", "RobertaForSequenceClassification"
    )
    assert not loading_info["missing_keys"]
    ids, _ = ids_and_mask([7, 7], VOCABULARY_SIZE, 1)
    assert max_difference(model(ids), run_reference(reloaded, input_ids=ids)) < 1e-4
    assert reloaded.config.num_labels == 4


def test_keras_round_trip(tmp_path: pathlib.Path) -> None:
    make_model("DistilBert", "classification", tmp_path / "reference", num_labels=3)
    model = checkpoints.load(tmp_path / "reference")
    ids, _ = ids_and_mask([7, 4], VOCABULARY_SIZE)
    round_trip = keras_round_trip(model, tmp_path)
    assert_equal(round_trip(ids), model(ids))
    assert round_trip.published == model.published
    architecture = "DistilBertForSequenceClassification"
    load_in_transformers(round_trip, tmp_path / "saved", architecture)


def test_dropout(tmp_path: pathlib.Path) -> None:
    """The rates are those of the config, unless `dropout` overrides them."""
    make_model("Bert", "classification", tmp_path, hidden_dropout_prob=0.3)
    rates = [
        {
            model.get_layer("encoder_0").dropout,
            model.get_layer("dropout").rate,
            model.get_layer("pooled_dropout").rate,
        }
        for model in (checkpoints.load(tmp_path), checkpoints.load(tmp_path, dropout=0))
    ]
    assert rates == [{0.3}, {0}]


def test_attention_maps_and_pruning(tmp_path: pathlib.Path) -> None:
    reference, _ = make_model("Bert", "hidden_states", tmp_path)
    model = checkpoints.load(tmp_path)
    ids, mask = ids_and_mask([7, 3], VOCABULARY_SIZE)
    maps = inspection.attention_maps(model, ids)
    reference.set_attn_implementation("eager")
    inputs = {
        "input_ids": torch.tensor(ids).long(),
        "attention_mask": torch.tensor(mask),
    }
    expected = reference(**inputs, output_attentions=True).attentions
    assert len(maps) == BLOCKS
    query_mask = np.repeat(mask[:, None], HEADS, axis=1)  # (B, N, T)
    for weights, expected_weights in zip(maps.values(), expected):
        expected_weights = expected_weights.detach().numpy()
        assert max_difference(weights, expected_weights, query_mask) < 1e-5
    pruned = inspection.prune_heads(model, {next(iter(maps)): [1]})
    assert pruned.count_params() < model.count_params()
