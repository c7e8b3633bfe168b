"""T5 out of files that `transformers` has written."""

import json

import pytest
from published import (
    difference,
    saved_back,
    saved_by_keras,
    torch,
    transformers,
)
from tensors import array, assert_equal
from text_to_text import (
    assert_generate_the_same,
    examples,
    made,
    outputs_of_theirs,
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
    # So few that distances fall in all kinds of them.
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
WITH_HEAD, WITHOUT = "T5ForConditionalGeneration", "T5Model"


def model_of_theirs(kind, folder, has_head=True):
    config = transformers.T5Config(**SIZES, **KINDS[kind])
    model = made(folder, WITH_HEAD if has_head else WITHOUT, config, seed=8)
    if kind == "v1.1" and has_head:
        # A head of its own; theirs are made with one only out of files that hold it.
        own = torch.randn((31, 12), generator=torch.Generator().manual_seed(1))
        model.lm_head.weight = torch.nn.Parameter(own / 12**0.5)
        model.save_pretrained(folder)
    return model


@pytest.mark.every_backend
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("has_head", [True, False])
def test_equal_to_theirs(kind, has_head, tmp_path):
    model = model_of_theirs(kind, tmp_path / "theirs", has_head)
    expected = outputs_of_theirs(model)
    ours = checkpoints.load(tmp_path / "theirs")
    inputs, _ = examples(model.config)
    assert difference(ours(inputs), expected) < 1e-4
    back, told = saved_back(ours, tmp_path / "ours", type(model).__name__)
    assert not told["missing_keys"]
    assert difference(outputs_of_theirs(back), expected) < 1e-5


@pytest.fixture(scope="module", params=["v1.0", "v1.1"])
def both(request, tmp_path_factory):
    """A model of theirs, and ours out of its folder."""
    folder = tmp_path_factory.mktemp("both")
    model = model_of_theirs(request.param, folder)
    return model, checkpoints.load(folder)


@pytest.mark.on_pytorch
def test_generate_the_same(both):
    assert_generate_the_same(*both)


def test_keras_file_and_maps(both, tmp_path):
    model, ours = both
    inputs, _ = examples(model.config)
    again = saved_by_keras(ours, tmp_path)
    assert_equal(again(inputs), ours(inputs))
    tables = [w for w in again.weights if w.path.endswith("table")]
    assert len(tables) == 2  # shared by the blocks of each side still
    maps = inspection.attention_maps(ours, inputs)
    assert len(maps) == 3 + 2 * 2
    padding = inputs["source"] == model.config.pad_token_id
    seen = array(maps["decoder_1/cross_attention"]).max(axis=(1, 2))
    assert_equal(seen == 0, padding)
    assert (array(maps["decoder_1/self_attention"])[..., 0] > 0).all()


def test_configs_of_old(tmp_path):
    """Whether the head is tied once told whether the decoder's output is scaled."""
    model = model_of_theirs("v1.1", tmp_path)
    inputs, _ = examples(model.config)
    file = tmp_path / "config.json"
    config = json.loads(file.read_text())
    assert config["tie_word_embeddings"] and not config.pop("scale_decoder_outputs")
    # Left out where it is what is usual; so was the greatest distance, once.
    for name in ("is_decoder", "classifier_dropout"):
        config.pop(name, None)
    file.write_text(json.dumps({**config, "tie_word_embeddings": False}))
    ours = checkpoints.load(tmp_path)
    assert difference(ours(inputs), outputs_of_theirs(model)) < 1e-4


def test_head_left_out(tmp_path):
    model = model_of_theirs("v1.1", tmp_path)
    inputs, _ = examples(model.config)
    ours = checkpoints.load(tmp_path, task="hidden_states")
    assert not any("reverse" in weight.path for weight in ours.weights)
    without = transformers.T5Model.from_pretrained(tmp_path).eval()
    assert difference(ours(inputs), outputs_of_theirs(without)) < 1e-4
