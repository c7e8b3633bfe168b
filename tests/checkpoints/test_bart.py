"""BART and Marian out of files that `transformers` has written."""

import numpy as np
import pytest
from published import (
    difference,
    published,
    saved_back,
    saved_by_keras,
    transformers,
)
from safetensors.numpy import load_file, save_file
from tensors import array, assert_equal
from text_to_text import (
    SOURCE_LENGTHS,
    TARGET_LENGTHS,
    assert_generate_the_same,
    examples,
    made,
    outputs_of_theirs,
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
# It is what targets begin with as well.
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
# Not read by theirs: what would be shared, and the sines and cosines, made anew.
NOT_READ = ("shared.weight", "embed_positions.weight")


def model_of_theirs(kind, folder, has_head=True):
    family, sizes = KINDS[kind]
    config = getattr(transformers, f"{family}Config")(**sizes)
    architecture = WITH_HEAD[family] if has_head else f"{family}Model"
    return made(folder, architecture, config)


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
    assert all(name.endswith(NOT_READ) for name in told["missing_keys"])
    if kind in ("bart", "marian") and has_head:
        assert not told["missing_keys"]
    assert difference(outputs_of_theirs(back), expected) < 1e-5


@pytest.fixture(scope="module", params=["bart", "marian"])
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
    assert_equal(saved_by_keras(ours, tmp_path)(inputs), ours(inputs))
    maps = inspection.attention_maps(ours, inputs)
    source, target = max(SOURCE_LENGTHS), max(TARGET_LENGTHS)
    shapes = {f"encoder_{i}": ("encoder", source, source) for i in range(3)}
    for i in range(2):
        shapes[f"decoder_{i}/self_attention"] = "decoder", target, target
        shapes[f"decoder_{i}/cross_attention"] = "decoder", target, source
    assert {name: x.shape for name, x in maps.items()} == {
        name: (3, HEADS[stack], *lengths) for name, (stack, *lengths) in shapes.items()
    }
    padding = inputs["source"] == model.config.pad_token_id
    seen = array(maps["decoder_1/cross_attention"]).max(axis=(1, 2))
    assert_equal(seen == 0, padding)
    # Nobody hides targets, not even behind the padding that they begin with.
    assert (array(maps["decoder_1/self_attention"])[..., 0] > 0).all()


def test_files_of_old(tmp_path):
    """Sines and cosines, and copies of the shared embedding, are in them."""
    model = model_of_theirs("marian", tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    for name in ("model.encoder", "model.decoder"):
        tensors[f"{name}.embed_positions.weight"] = np.zeros((53, 12), "float32")
        tensors[f"{name}.embed_tokens.weight"] = tensors["model.shared.weight"].copy()
    tensors["lm_head.weight"] = tensors["model.shared.weight"].copy()
    save_file(tensors, file)
    inputs, _ = examples(model.config)
    ours = checkpoints.load(tmp_path)
    assert difference(ours(inputs), outputs_of_theirs(model)) < 1e-4


def test_head_left_out_or_added(tmp_path):
    model = model_of_theirs("bart", tmp_path / "with")
    inputs, _ = examples(model.config)
    ours = checkpoints.load(tmp_path / "with", task="hidden_states")
    assert difference(ours(inputs), outputs_of_theirs(model.model)) < 1e-4
    checkpoints.save(ours, tmp_path / "without")
    added = checkpoints.load(tmp_path / "without", task="translation")
    expected = outputs_of_theirs(model) - model.final_logits_bias.numpy()
    assert difference(added(inputs), expected) < 1e-4


def test_dropout_is_that_of_the_config(tmp_path):
    rates = {"dropout": 0.1, "attention_dropout": 0.2, "activation_dropout": 0.3}
    published(tmp_path, "BartModel", transformers.BartConfig(**SIZES, **rates))

    def found(**options):
        model = checkpoints.load(tmp_path, **options)
        block = model.get_layer("decoder_0")
        return (
            model.get_layer("source_dropout").rate,
            block.dropout,
            block.attention.dropout,
            block.cross_attention.dropout,
            block.feed_forward.dropout,
        )

    assert found() == (0.1, 0.1, 0.2, 0.2, 0.3)
    assert found(dropout=0.4) == (0.4,) * 5
