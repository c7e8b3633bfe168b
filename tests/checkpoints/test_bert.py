"""BERT, RoBERTa and DistilBERT out of files that `transformers` has written."""

import pytest
from published import (
    difference,
    ids_and_mask,
    published,
    saved_back,
    theirs,
    transformers,
)

from keras_attn import checkpoints

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


@pytest.mark.every_backend
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("task", HEADS_OF)
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
