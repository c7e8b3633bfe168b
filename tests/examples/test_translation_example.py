"""The translation example on a few sentences, killed and resumed."""

import pytest
from example_runs import command, finished_epochs, kill_after_an_epoch, run

EPOCHS = 4


@pytest.mark.slow
@pytest.mark.export
@pytest.mark.subprocess
def test_killed_run_is_resumed(tmp_path):
    colours, things = ["빨간", "파란", "하얀"], ["차", "집", "꽃", "책"]
    english = dict(
        zip(colours + things, "red blue white car house flower book".split())
    )
    lines = [
        f"{colour} {thing}\ta {english[colour]} {english[thing]}\n"
        for colour in colours
        for thing in things
    ]
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(lines), encoding="utf-8")
    sizes = "--vocabulary 300 --width 8 --inner 8 --heads 2 --layers 1 --max-tokens 12"
    arguments = command("translation.py")
    arguments += ["--pairs", pairs, "--valid", pairs, "--output", tmp_path / "runs"]
    arguments += [*sizes.split(), "--epochs", str(EPOCHS), "--batch-tokens", "24"]

    assert kill_after_an_epoch(arguments, tmp_path / "runs")[-1] < EPOCHS
    output = run(arguments)
    epochs = finished_epochs(tmp_path / "runs")
    assert epochs == list(range(1, EPOCHS + 1)), "an epoch was lost or repeated"
    assert "A fresh process returns the same" in output
    (folder,) = (tmp_path / "runs").iterdir()
    files = {path.name for path in folder.iterdir()}
    assert {"attention.png", "curve.png", "saved_model"} <= files
    assert "backup" not in files
