"""The fine-tuning example, run on small data: each task and each kind of data."""

import re

import keras
import labelled_texts
import published_folders
import pytest
from example_runs import command, run

from keras_attn import training
from keras_attn.text import load_published_tokenizer

transformers = pytest.importorskip("transformers")

COLOURS = "red blue white green black pink".split()
FRUITS = "apple pear plum cherry grape lemon".split()


def results(output):
    """Return the results by name, read from the table at the end of the output."""
    rows = re.findall(r"^  (before|after|TF-IDF) +([\d.]+)$", output, re.MULTILINE)
    return {name: float(value) for name, value in rows}


@pytest.mark.slow
@pytest.mark.export
@pytest.mark.subprocess
def test_folder_of_texts_from_scratch(tmp_path):
    for label, words in (("colour", COLOURS), ("fruit", FRUITS)):
        (tmp_path / "texts" / label).mkdir(parents=True)
        for i in range(30):
            text = f"{words[i % 6]} or {words[(i + i // 6 + 1) % 6]}"
            (tmp_path / "texts" / label / f"{i}.txt").write_text(text)
    arguments = command("fine_tune.py", "--texts", tmp_path / "texts")
    arguments += ["--output", tmp_path / "run", "--method", "layerwise"]
    output = run([*arguments, "--epochs", "30", "--rate", "0.01"])
    assert "48 training texts, 12 held out, 2 labels" in output
    assert "A fresh process returns the same 12 labels" in output
    accuracies = results(output)
    assert accuracies["after"] > 90 and accuracies["after"] > accuracies["before"]
    assert accuracies["TF-IDF"] > 90
    files = {path.name for path in (tmp_path / "run").iterdir()}
    assert files == {"curves.png", "confusions.png", "saved_model"}


@pytest.mark.slow
@pytest.mark.export
@pytest.mark.subprocess
def test_adapters_on_a_checkpoint(tmp_path):
    words = [*COLOURS, *FRUITS]
    vocabulary = [*published_folders.BERT_SPECIAL, *words]
    config = transformers.BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
        hidden_dropout_prob=0.0,
        initializer_range=0.3,
    )
    transformers.BertModel(config).save_pretrained(tmp_path / "bert")
    (tmp_path / "bert/vocab.txt").write_text("\n".join(vocabulary))
    rows = [f"{a} {b}\tcolour\n" for a in COLOURS for b in COLOURS]
    rows += [f"{a} {b}\tfruit\n" for a in FRUITS for b in FRUITS]
    (tmp_path / "texts.tsv").write_text("".join(rows))
    arguments = command("fine_tune.py", "--checkpoint", tmp_path / "bert")
    arguments += ["--texts", tmp_path / "texts.tsv", "--output", tmp_path / "run"]
    output = run([*arguments, "--method", "lora", "--epochs", "30", "--rate", "0.01"])
    assert "A fresh process returns the same 14 labels" in output
    assert results(output)["after"] > 80
    adapters = keras.models.load_model(tmp_path / "run/adapters.keras")
    trainable = {w.path.rpartition("/")[0] for w in adapters.trainable_weights}
    assert trainable == {
        *("encoder_0/self_attention/query", "encoder_0/self_attention/value"),
        *("pooler", "logits"),
    }
    training.merge_lora(adapters)
    assert len(adapters.trainable_weights) == len(adapters.weights)


@pytest.mark.slow
@pytest.mark.export
@pytest.mark.subprocess
def test_translation(tmp_path):
    pairs = [(f"the {a} {b}", f"{b} {a}") for a in COLOURS for b in FRUITS]
    lines = "".join(f"{source}\t{target}\n" for source, target in pairs)
    (tmp_path / "pairs.tsv").write_text(lines)
    folder = published_folders.t5(tmp_path / "t5", [s for pair in pairs for s in pair])
    config = transformers.T5Config(
        vocab_size=200,
        d_model=16,
        d_kv=8,
        d_ff=32,
        num_layers=1,
        num_heads=2,
        decoder_start_token_id=0,
    )
    transformers.T5ForConditionalGeneration(config).save_pretrained(folder)
    arguments = command("fine_tune.py", "--task", "translation", "--checkpoint", folder)
    arguments += ["--pairs", tmp_path / "pairs.tsv", "--valid", tmp_path / "pairs.tsv"]
    arguments += ["--output", tmp_path / "run", "--max-tokens", "12", "--epochs", "2"]
    output = run(arguments)
    assert "A fresh process returns the same" in output
    assert set(results(output)) == {"before", "after"}
    files = {path.name for path in (tmp_path / "run").iterdir()}
    assert files == {"curves.png", "saved_model", "checkpoint"}
    tuned = transformers.T5ForConditionalGeneration.from_pretrained(
        tmp_path / "run/checkpoint"
    )
    assert tuned.config.vocab_size == 200
    load_published_tokenizer(tmp_path / "run/checkpoint")


def test_built_in_texts():
    train, valid = labelled_texts.built_in()
    assert labelled_texts.built_in() == (train, valid)
    assert (len(train), len(valid)) == (420, 180)
    assert len({text for text, _ in train + valid}) == 600
    assert {label for _, label in train} == {label for _, label in valid}


def test_split_is_stratified_and_has_no_text_on_both_sides():
    pairs = [(f"a {i}", "x") for i in range(40)] + [(f"b {i}", "y") for i in range(10)]
    train, valid = labelled_texts.split(pairs + pairs[:5], 0.2, seed=1)
    assert sorted(train + valid) == sorted(pairs)
    assert [sum(label == x for _, label in valid) for x in "xy"] == [8, 2]
    assert labelled_texts.split(pairs, 0.2, seed=1) == (train, valid)
    assert labelled_texts.split(pairs, 0.2, seed=2) != (train, valid)
    with pytest.raises(ValueError, match=r"one text of \['z'\]"):
        labelled_texts.split([*pairs, ("c", "z"), ("c", "z")], 0.2, seed=1)


def test_bad_texts(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        labelled_texts.read(tmp_path / "nowhere")
    path = tmp_path / "texts.tsv"
    path.write_text("a\tx\n\nno label\n")
    with pytest.raises(ValueError, match="line 3"):
        labelled_texts.read(path)
    path.write_text("a\tb\tx\n")
    with pytest.raises(ValueError, match=r"two labels.*\['x'\]"):
        labelled_texts.read(path)
    path.write_text("a\tb\tx\nc\ty\n")
    assert labelled_texts.read(path) == [("a\tb", "x"), ("c", "y")]
