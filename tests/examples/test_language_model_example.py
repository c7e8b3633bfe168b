"""The example as a user runs it, on a few lines: killed, then started again."""

import re

import numpy as np
import pytest
import text_files
from example_runs import command, finished_epochs, kill_after_an_epoch, run

EPOCHS = 3


def test_a_killed_run_goes_on_and_ends(tmp_path):
    texts = tmp_path / "texts"
    texts.mkdir()
    for i in range(12):
        lines = [f"def f_{j % 7}(x):\n\treturn x + {i}\n\n" for j in range(i, i + 20)]
        (texts / f"{i}.py").write_text("".join(lines))
    sizes = "--vocabulary 300 --width 8 --heads 2 --layers 1 --context 16 --batch 4"
    started = command("language_model.py", "--texts", texts)
    started += ["--output", tmp_path / "runs", *sizes.split(), "--prompt", "def f"]
    started += ["--epochs", str(EPOCHS), "--steps", "20", "--sample-tokens", "8"]
    started += ["--warmup", "10", "--rate", "0.03"]

    assert kill_after_an_epoch(started, tmp_path / "runs")[-1] < EPOCHS
    said = run(started)
    epochs = finished_epochs(tmp_path / "runs")
    assert epochs == list(range(1, EPOCHS + 1)), "an epoch lost or redone"
    assert "A fresh process writes the same" in said
    (folder,) = (tmp_path / "runs").iterdir()
    made = {path.name for path in folder.iterdir()}
    assert {"curve.png", "language_model.keras", "saved_model"} <= made
    assert "backup" not in made
    results = (folder / "results.txt").read_text()
    assert results in said
    rows = dict(re.findall(r"^(\w+) +([\d.]+) +[\d.]+$", results, re.MULTILINE))
    assert list(rows) == ["unigram", "bigram", "trigram", "transformer"]
    # Files that are all but the same: who knows two tokens knows most of the third.
    assert 1 < float(rows["trigram"]) < float(rows["bigram"]) < float(rows["unigram"])
    assert float(rows["transformer"]) < 300, "worse than guessing"
    for temperature in ("0.5", "0.8", "1.0"):
        assert f"--- temperature {temperature} ---\ndef f" in results


def test_no_text_is_on_both_sides_and_the_split_is_that_of_the_contents(tmp_path):
    def write(folder, names):
        folder.mkdir()
        for name, content in zip(names, contents):
            (folder / name).write_bytes(content)
        return text_files.files_of([folder])

    contents = [b"text %d\n" % i * 20 for i in range(30)]
    contents += [contents[0], b"\xff\xfe no UTF-8", b" \n"]
    here = write(tmp_path / "a", [f"{i}.txt" for i in range(33)])
    there = write(tmp_path / "b", [f"other {99 - i}" for i in range(33)])
    train, valid = text_files.read_split(here, 10**6, 0.2, seed=1)
    assert sorted(train + valid) == sorted(c.decode() for c in contents[:30])
    share = sum(map(len, valid)) / sum(map(len, train + valid))
    assert 0.2 <= share < 0.25
    assert text_files.read_split(there, 10**6, 0.2, seed=1) == (train, valid)
    assert text_files.read_split(here, 10**6, 0.2, seed=2) != (train, valid)
    fewer = text_files.read_split(here, 1000, 0.2, seed=1)
    assert 800 < sum(len(text) for side in fewer for text in side) <= 1000
    with pytest.raises(ValueError, match="Received: 1 of at most"):
        text_files.read_split(here[:1] * 2, 10**6, 0.2, seed=1)
    with pytest.raises(FileNotFoundError, match="none.txt"):
        text_files.files_of([tmp_path / "none.txt"])


def test_the_standard_library_is_found_without_tests():
    names = {path.name for path in text_files.standard_library()}
    assert {"argparse.py", "textwrap.py"} <= names
    assert not {"test_argparse.py", "pytest.py", "cp1252.py"} & names


def test_every_token_is_a_label_once():
    documents = [np.array([5, 6, 3]), np.array([7, 3]), np.array([8, 9, 5, 3])]
    inputs, labels = text_files.windows(documents, 2, length=4, batch_size=2)
    np.testing.assert_array_equal(
        inputs, [[2, 5, 6, 3], [2, 7, 3, 2], [8, 9, 5, 3], [0, 0, 0, 0]]
    )
    np.testing.assert_array_equal(
        labels, [[5, 6, 3, 0], [7, 3, 0, 8], [9, 5, 3, 0], [0, 0, 0, 0]]
    )
    inputs, labels = text_files.windows(documents, 2, length=4, batch_size=2, overlap=1)
    np.testing.assert_array_equal(
        inputs, [[2, 5, 6, 3], [3, 2, 7, 3], [3, 2, 8, 9], [9, 5, 3, 0]]
    )
    np.testing.assert_array_equal(
        labels, [[5, 6, 3, 0], [0, 7, 3, 0], [0, 8, 9, 5], [0, 3, 0, 0]]
    )


@pytest.mark.parametrize("overlap", [0, 1, 4, 6])
@pytest.mark.parametrize("length", [1, 5, 60, 61, 62])
def test_labels_are_the_stream_at_any_size(length, overlap):
    ids = np.arange(4, 65)
    _, labels = text_files.windows([ids], 2, 7 * length, 1, overlap)
    np.testing.assert_array_equal(labels[labels != 0], ids)
