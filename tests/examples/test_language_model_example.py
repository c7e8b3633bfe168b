"""The language model example on small data, killed and resumed; its data functions."""

import re

import numpy as np
import pytest
import text_files
from example_runs import command, finished_epochs, kill_after_an_epoch, run

EPOCHS = 3


@pytest.mark.slow
@pytest.mark.export
@pytest.mark.subprocess
def test_killed_run_is_resumed(tmp_path):
    texts = tmp_path / "texts"
    texts.mkdir()
    for i in range(12):
        lines = [f"def f_{j % 7}(x):\n\treturn x + {i}\n\n" for j in range(i, i + 20)]
        (texts / f"{i}.py").write_text("".join(lines))
    sizes = "--vocabulary 300 --width 8 --heads 2 --layers 1 --context 16 --batch 4"
    arguments = command("language_model.py", "--texts", texts)
    arguments += ["--output", tmp_path / "runs", *sizes.split(), "--prompt", "def f"]
    arguments += ["--epochs", str(EPOCHS), "--steps", "20", "--sample-tokens", "8"]
    arguments += ["--warmup", "10", "--rate", "0.03"]

    assert kill_after_an_epoch(arguments, tmp_path / "runs")[-1] < EPOCHS
    output = run(arguments)
    epochs = finished_epochs(tmp_path / "runs")
    assert epochs == list(range(1, EPOCHS + 1)), "an epoch was lost or repeated"
    assert "A fresh process generates the same texts" in output
    (folder,) = (tmp_path / "runs").iterdir()
    files = {path.name for path in folder.iterdir()}
    assert {"curve.png", "language_model.keras", "saved_model"} <= files
    assert "backup" not in files
    results = (folder / "results.txt").read_text()
    assert results in output
    rows = dict(re.findall(r"^(\w+) +([\d.]+) +[\d.]+$", results, re.MULTILINE))
    assert list(rows) == ["unigram", "bigram", "trigram", "transformer"]
    # The files are nearly equal, so two tokens nearly determine the third.
    assert 1 < float(rows["trigram"]) < float(rows["bigram"]) < float(rows["unigram"])
    assert float(rows["transformer"]) < 300, "worse than a uniform distribution"
    for temperature in ("0.5", "0.8", "1.0"):
        assert f"--- temperature {temperature} ---\ndef f" in results


def test_split_is_disjoint_and_depends_on_the_contents_only(tmp_path):
    def write(folder, names):
        folder.mkdir()
        for name, content in zip(names, contents):
            (folder / name).write_bytes(content)
        return text_files.find_files([folder])

    contents = [b"text %d\n" % i * 20 for i in range(30)]
    contents += [contents[0], b"\xff\xfe no UTF-8", b" \n"]
    files = write(tmp_path / "a", [f"{i}.txt" for i in range(33)])
    copies = write(tmp_path / "b", [f"other {99 - i}" for i in range(33)])
    train, valid = text_files.read_split(files, 10**6, 0.2, seed=1)
    assert sorted(train + valid) == sorted(c.decode() for c in contents[:30])
    share = sum(map(len, valid)) / sum(map(len, train + valid))
    assert 0.2 <= share < 0.25
    assert text_files.read_split(copies, 10**6, 0.2, seed=1) == (train, valid)
    assert text_files.read_split(files, 10**6, 0.2, seed=2) != (train, valid)
    fewer = text_files.read_split(files, 1000, 0.2, seed=1)
    assert 800 < sum(len(text) for side in fewer for text in side) <= 1000
    with pytest.raises(ValueError, match="Received: 1 within max_bytes"):
        text_files.read_split(files[:1] * 2, 10**6, 0.2, seed=1)
    with pytest.raises(FileNotFoundError, match="none.txt"):
        text_files.find_files([tmp_path / "none.txt"])


def test_standard_library_files_are_found_without_tests():
    names = {path.name for path in text_files.standard_library()}
    assert {"argparse.py", "textwrap.py"} <= names
    assert not {"test_argparse.py", "pytest.py", "cp1252.py"} & names


def test_each_token_is_a_label_once():
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
def test_labels_are_the_tokens_for_each_size(length, overlap):
    ids = np.arange(4, 65)
    _, labels = text_files.windows([ids], 2, 7 * length, 1, overlap)
    np.testing.assert_array_equal(labels[labels != 0], ids)
