"""BERT, RoBERTa and DistilBERT out of files that `transformers` has written."""

import numpy as np
import pytest
from published import (
    difference,
    ids_and_mask,
    published,
    saved_back,
    saved_by_keras,
    theirs,
    torch,
    transformers,
)
from safetensors.numpy import load_file, save_file
from tensors import assert_equal

from keras_attn import checkpoints, inspection

VOCABULARY, WIDTH, MIDDLE, HEADS, BLOCKS, POSITIONS = 29, 12, 17, 3, 2, 41
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "intermediate_size": MIDDLE,
    "num_attention_heads": HEADS,
    "num_hidden_layers": BLOCKS,
    "max_position_embeddings": POSITIONS,
}
KINDS = {
    "Bert": SIZES | {"pad_token_id": 0},
    "Roberta": SIZES | {"pad_token_id": 1, "type_vocab_size": 1},
    "DistilBert": {
        "vocab_size": VOCABULARY,
        "dim": WIDTH,
        "hidden_dim": MIDDLE,
        "n_heads": HEADS,
        "n_layers": BLOCKS,
        "max_position_embeddings": POSITIONS,
        "pad_token_id": 0,
    },
}
HEADS_OF = {
    "hidden_states": ("Model", "last_hidden_state"),
    "masked_language_model": ("ForMaskedLM", "logits"),
    "classification": ("ForSequenceClassification", "logits"),
}
LONGEST = POSITIONS - 2


def made(kind, task, folder, **options):
    end, output = HEADS_OF[task]
    config = getattr(transformers, f"{kind}Config")(**KINDS[kind], **options)
    return published(folder, kind + end, config), output


CASES = [(kind, task) for task in HEADS_OF for kind in KINDS]


@pytest.mark.every_backend
@pytest.mark.parametrize(("kind", "task"), CASES)
def test_equal_to_theirs(kind, task, tmp_path):
    model, output = made(kind, task, tmp_path / "theirs", num_labels=5)
    ids, keep = ids_and_mask([7, 1, LONGEST], VOCABULARY, model.config.pad_token_id)
    expected = theirs(model, output, input_ids=ids, attention_mask=keep)
    ours = checkpoints.load(tmp_path / "theirs")
    kept = None if task == "classification" else keep
    assert difference(ours(ids), expected, kept) < 1e-4
    back, told = saved_back(ours, tmp_path / "ours", type(model).__name__)
    assert all("pooler" in name for name in told["missing_keys"])
    again = theirs(back, output, input_ids=ids, attention_mask=keep)
    assert difference(again, expected, kept) < 1e-5


@pytest.mark.parametrize("kind", KINDS)
def test_an_untied_head(kind, tmp_path):
    model, output = made(
        kind, "masked_language_model", tmp_path / "theirs", tie_word_embeddings=False
    )
    ids, keep = ids_and_mask([7, 3], VOCABULARY, model.config.pad_token_id)
    expected = theirs(model, output, input_ids=ids, attention_mask=keep)
    ours = checkpoints.load(tmp_path / "theirs")
    assert difference(ours(ids), expected, keep) < 1e-4
    states = checkpoints.load(tmp_path / "theirs", task="hidden_states")
    assert states(ids).shape == (2, 7, WIDTH)


def test_segments(tmp_path):
    """As an input of their own, or all 0."""
    model, output = made("Bert", "hidden_states", tmp_path / "theirs")
    ids, keep = ids_and_mask([7, 3], VOCABULARY)
    segments = (np.arange(7) > [[2], [1]]).astype("int32")
    expected = theirs(
        model, output, input_ids=ids, attention_mask=keep, token_type_ids=segments
    )
    ours = checkpoints.load(tmp_path / "theirs", use_segments=True)
    found = ours({"tokens": ids, "segments": segments})
    assert difference(found, expected, keep) < 1e-4
    without = checkpoints.load(tmp_path / "theirs")(ids)
    assert difference(without, expected, keep) > 0.1
    zeros = ours({"tokens": ids, "segments": np.zeros_like(segments)})
    assert difference(without, zeros, keep) < 1e-6


def test_older_names(tmp_path):
    """As the first BERT files have them."""
    model, output = made("Bert", "masked_language_model", tmp_path)
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
    ids, keep = ids_and_mask([7, 3], VOCABULARY)
    expected = theirs(model, output, input_ids=ids, attention_mask=keep)
    assert difference(checkpoints.load(tmp_path)(ids), expected, keep) < 1e-4


def test_a_new_head_on_what_another_task_has_learned(tmp_path):
    """The encoder is theirs, the head is new, and the file knows its classes."""
    made("Roberta", "masked_language_model", tmp_path / "theirs")
    model = checkpoints.load(tmp_path / "theirs", "classification", num_classes=4)
    states = checkpoints.load(tmp_path / "theirs", "hidden_states")
    assert model.output_shape == (None, 4)
    for layer in states.layers:
        for ours, other in zip(model.get_layer(layer.name).weights, layer.weights):
            assert_equal(ours, other)
    back, told = saved_back(
        model, tmp_path / "ours", "RobertaForSequenceClassification"
    )
    assert not told["missing_keys"]
    ids, _ = ids_and_mask([7, 7], VOCABULARY, 1)
    assert difference(model(ids), theirs(back, input_ids=ids)) < 1e-4
    assert back.config.num_labels == 4


def test_by_keras_and_back(tmp_path):
    made("DistilBert", "classification", tmp_path / "theirs", num_labels=3)
    model = checkpoints.load(tmp_path / "theirs")
    ids, _ = ids_and_mask([7, 4], VOCABULARY)
    again = saved_by_keras(model, tmp_path)
    assert_equal(again(ids), model(ids))
    assert again.published == model.published
    saved_back(again, tmp_path / "ours", "DistilBertForSequenceClassification")


def test_dropout_is_the_users_or_the_configs(tmp_path):
    made("Bert", "classification", tmp_path, hidden_dropout_prob=0.3)
    rates = [
        {
            model.get_layer("encoder_0").dropout,
            model.get_layer("dropout").rate,
            model.get_layer("pooled_dropout").rate,
        }
        for model in (checkpoints.load(tmp_path), checkpoints.load(tmp_path, dropout=0))
    ]
    assert rates == [{0.3}, {0}]


def test_maps_and_pruning(tmp_path):
    model, _ = made("Bert", "hidden_states", tmp_path)
    ours = checkpoints.load(tmp_path)
    ids, keep = ids_and_mask([7, 3], VOCABULARY)
    maps = inspection.attention_maps(ours, ids)
    model.set_attn_implementation("eager")
    inputs = {
        "input_ids": torch.tensor(ids).long(),
        "attention_mask": torch.tensor(keep),
    }
    expected = model(**inputs, output_attentions=True).attentions
    assert len(maps) == BLOCKS
    for found, weights in zip(maps.values(), expected):
        seen = keep[:, None, :, None] & np.ones((1, HEADS, 1, 1), bool)
        assert difference(found, weights.detach().numpy(), seen[..., 0]) < 1e-5
    pruned = inspection.prune_heads(ours, {next(iter(maps)): [1]})
    assert pruned.count_params() < ours.count_params()
