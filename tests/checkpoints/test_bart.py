"""BART and Marian loaded from files that `transformers` has saved."""

import pathlib
from typing import Any

import keras
import numpy as np
import pytest
from published import (
    keras_round_trip,
    load_in_transformers,
    max_difference,
    save_reference,
    transformers,
)
from safetensors.numpy import load_file, save_file
from tensors import array, assert_equal
from text_to_text import (
    SOURCE_LENGTHS,
    TARGET_LENGTHS,
    assert_same_generated_tokens,
    example_inputs,
    make_reference,
    reference_outputs,
)

from keras_attn import checkpoints, inspection

HEADS = {"encoder": 3, "decoder": 2}
SIZES = {
    "vocab_size": 31,
    "d_model": 12,
    "encoder_layers": 3,
    "decoder_layers": 2,
    "encoder_attention_heads": HEADS["encoder"],
    "decoder_attention_heads": HEADS["decoder"],
    "encoder_ffn_dim": 17,
    "decoder_ffn_dim": 19,
    "max_position_embeddings": 53,
    "forced_eos_token_id": None,
}
# Targets start with the padding token.
MARIAN = SIZES | {"pad_token_id": 30, "decoder_start_token_id": 30}
TWO_VOCABULARIES = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 37}
KINDS = {
    "bart": ("Bart", SIZES),
    "bart, untied": ("Bart", SIZES | {"tie_word_embeddings": False}),
    "marian": (
        "Marian",
        MARIAN | {"scale_embedding": True, "activation_function": "swish"},
    ),
    "marian, two vocabularies": (
        "Marian",
        MARIAN | TWO_VOCABULARIES | {"activation_function": "relu"},
    ),
    "marian, untied": (
        "Marian",
        MARIAN | TWO_VOCABULARIES | {"tie_word_embeddings": False},
    ),
}
WITH_HEAD = {"Bart": "BartForConditionalGeneration", "Marian": "MarianMTModel"}
# Keys that may be missing: an unused shared embedding and sinusoidal positions.
OPTIONAL_KEYS = ("shared.weight", "embed_positions.weight")


def make_model(kind: str, folder: pathlib.Path, has_head: bool = True) -> Any:
    family, sizes = KINDS[kind]
    config = getattr(transformers, f"{family}Config")(**sizes)
    architecture = WITH_HEAD[family] if has_head else f"{family}Model"
    return make_reference(folder, architecture, config)


@pytest.mark.every_backend
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("has_head", [True, False])
def test_outputs(kind: str, has_head: bool, tmp_path: pathlib.Path) -> None:
    reference = make_model(kind, tmp_path / "reference", has_head)
    expected = reference_outputs(reference)
    model = checkpoints.load(tmp_path / "reference")
    inputs, _ = example_inputs(reference.config)
    assert max_difference(model(inputs), expected) < 1e-4
    reloaded, loading_info = load_in_transformers(
        model, tmp_path / "saved", type(reference).__name__
    )
    assert all(name.endswith(OPTIONAL_KEYS) for name in loading_info["missing_keys"])
    if kind in ("bart", "marian") and has_head:
        assert not loading_info["missing_keys"]
    assert max_difference(reference_outputs(reloaded), expected) < 1e-5


@pytest.fixture(scope="module", params=["bart", "marian"])
def reference_and_model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Any, keras.Model]:
    """Return a reference, and the model that is loaded from its folder."""
    folder = tmp_path_factory.mktemp("reference")
    reference = make_model(request.param, folder)
    return reference, checkpoints.load(folder)


@pytest.mark.slow
@pytest.mark.on_pytorch
def test_generated_tokens(reference_and_model: tuple[Any, keras.Model]) -> None:
    assert_same_generated_tokens(*reference_and_model)


def test_keras_file_and_attention_maps(
    reference_and_model: tuple[Any, keras.Model], tmp_path: pathlib.Path
) -> None:
    reference, model = reference_and_model
    inputs, _ = example_inputs(reference.config)
    assert_equal(keras_round_trip(model, tmp_path)(inputs), model(inputs))
    maps = inspection.attention_maps(model, inputs)
    source, target = max(SOURCE_LENGTHS), max(TARGET_LENGTHS)
    shapes = {f"encoder_{i}": ("encoder", source, source) for i in range(3)}
    for i in range(2):
        shapes[f"decoder_{i}/self_attention"] = "decoder", target, target
        shapes[f"decoder_{i}/cross_attention"] = "decoder", target, source
    assert {name: x.shape for name, x in maps.items()} == {
        name: (3, HEADS[stack], *lengths) for name, (stack, *lengths) in shapes.items()
    }
    padding = inputs["source"] == reference.config.pad_token_id
    largest_weights = array(maps["decoder_1/cross_attention"]).max(axis=(1, 2))
    assert_equal(largest_weights == 0, padding)
    # Targets are not masked, not even the padding token that they start with.
    assert (array(maps["decoder_1/self_attention"])[..., 0] > 0).all()


def test_older_files(tmp_path: pathlib.Path) -> None:
    """Older files contain sinusoidal positions and copies of the shared embedding."""
    reference = make_model("marian", tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    for name in ("model.encoder", "model.decoder"):
        tensors[f"{name}.embed_positions.weight"] = np.zeros((53, 12), "float32")
        tensors[f"{name}.embed_tokens.weight"] = tensors["model.shared.weight"].copy()
    tensors["lm_head.weight"] = tensors["model.shared.weight"].copy()
    save_file(tensors, file)
    inputs, _ = example_inputs(reference.config)
    model = checkpoints.load(tmp_path)
    assert max_difference(model(inputs), reference_outputs(reference)) < 1e-4


def test_head_omitted_or_added(tmp_path: pathlib.Path) -> None:
    reference = make_model("bart", tmp_path / "with_head")
    inputs, _ = example_inputs(reference.config)
    model = checkpoints.load(tmp_path / "with_head", task="hidden_states")
    expected = reference_outputs(reference.model)
    assert max_difference(model(inputs), expected) < 1e-4
    checkpoints.save(model, tmp_path / "without_head")
    model = checkpoints.load(tmp_path / "without_head", task="translation")
    expected = reference_outputs(reference) - reference.final_logits_bias.numpy()
    assert max_difference(model(inputs), expected) < 1e-4


def test_dropout(tmp_path: pathlib.Path) -> None:
    """Each layer has its rate of the config, unless `dropout` overrides all of them."""
    rates = {"dropout": 0.1, "attention_dropout": 0.2, "activation_dropout": 0.3}
    save_reference(tmp_path, "BartModel", transformers.BartConfig(**SIZES, **rates))

    def loaded_rates(**options: Any) -> tuple[float, ...]:
        model = checkpoints.load(tmp_path, **options)
        block = model.get_layer("decoder_0")
        return (
            model.get_layer("source_dropout").rate,
            block.dropout,
            block.attention.dropout,
            block.cross_attention.dropout,
            block.feed_forward.dropout,
        )

    assert loaded_rates() == (0.1, 0.1, 0.2, 0.2, 0.3)
    assert loaded_rates(dropout=0.4) == (0.4,) * 5
