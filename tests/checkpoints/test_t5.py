"""T5 loaded from files that `transformers` has saved."""

import json
import pathlib
from typing import Any

import keras
import pytest
from published import (
    keras_round_trip,
    load_in_transformers,
    max_difference,
    torch,
    transformers,
)
from tensors import array, assert_equal
from text_to_text import (
    assert_same_generated_tokens,
    example_inputs,
    make_reference,
    reference_outputs,
)

from keras_attn import checkpoints, inspection

SIZES = {
    "vocab_size": 31,
    "d_model": 12,
    "d_kv": 5,
    "d_ff": 17,
    "num_layers": 3,
    "num_decoder_layers": 2,
    "num_heads": 3,
    # Few buckets, so that the distances fall into all of them.
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 9,
    "decoder_start_token_id": 0,
}
GATED = {"feed_forward_proj": "gated-gelu"}
V11 = {**GATED, "tie_word_embeddings": False}
KINDS = {
    "v1.0": {},
    "v1.1": V11,
    "v1.1, tied": V11,
    "gated, scaled": {"feed_forward_proj": "gated-silu"},
    "not gated": {"feed_forward_proj": "gelu"},
}
WITH_HEAD, WITHOUT_HEAD = "T5ForConditionalGeneration", "T5Model"


def make_model(kind: str, folder: pathlib.Path, has_head: bool = True) -> Any:
    config = transformers.T5Config(**SIZES, **KINDS[kind])
    architecture = WITH_HEAD if has_head else WITHOUT_HEAD
    reference = make_reference(folder, architecture, config, seed=8)
    if kind == "v1.1" and has_head:
        # `transformers` unties the head only when it loads a file that contains it.
        weight = torch.randn((31, 12), generator=torch.Generator().manual_seed(1))
        reference.lm_head.weight = torch.nn.Parameter(weight / 12**0.5)
        reference.save_pretrained(folder)
    return reference


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
    assert not loading_info["missing_keys"]
    assert max_difference(reference_outputs(reloaded), expected) < 1e-5


@pytest.fixture(scope="module", params=["v1.0", "v1.1"])
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
    round_trip = keras_round_trip(model, tmp_path)
    assert_equal(round_trip(inputs), model(inputs))
    tables = [w for w in round_trip.weights if w.path.endswith("table")]
    assert len(tables) == 2  # the blocks of each stack share one
    maps = inspection.attention_maps(model, inputs)
    assert len(maps) == 3 + 2 * 2
    padding = inputs["source"] == reference.config.pad_token_id
    largest_weights = array(maps["decoder_1/cross_attention"]).max(axis=(1, 2))
    assert_equal(largest_weights == 0, padding)
    assert (array(maps["decoder_1/self_attention"])[..., 0] > 0).all()


def test_older_configs(tmp_path: pathlib.Path) -> None:
    """In them, `tie_word_embeddings` implies that the decoder's output is scaled."""
    reference = make_model("v1.1", tmp_path)
    inputs, _ = example_inputs(reference.config)
    file = tmp_path / "config.json"
    config = json.loads(file.read_text())
    assert config["tie_word_embeddings"] and not config.pop("scale_decoder_outputs")
    # Older configs omit entries with default values.
    for name in ("is_decoder", "classifier_dropout"):
        config.pop(name, None)
    file.write_text(json.dumps({**config, "tie_word_embeddings": False}))
    model = checkpoints.load(tmp_path)
    assert max_difference(model(inputs), reference_outputs(reference)) < 1e-4


def test_hidden_states_of_a_model_with_a_head(tmp_path: pathlib.Path) -> None:
    """The untied output projection is not loaded."""
    reference = make_model("v1.1", tmp_path)
    inputs, _ = example_inputs(reference.config)
    model = checkpoints.load(tmp_path, task="hidden_states")
    assert not any("reverse" in weight.path for weight in model.weights)
    headless = transformers.T5Model.from_pretrained(tmp_path).eval()
    assert max_difference(model(inputs), reference_outputs(headless)) < 1e-4
