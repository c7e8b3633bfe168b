"""The example as a user runs it, on a few sentences: killed, then started again."""

from example_runs import command, finished_epochs, kill_after_an_epoch, run

EPOCHS = 4


def test_a_killed_run_goes_on_and_ends(tmp_path):
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
    started = command("translation.py")
    started += ["--pairs", pairs, "--valid", pairs, "--output", tmp_path / "runs"]
    started += [*sizes.split(), "--epochs", str(EPOCHS), "--batch-tokens", "24"]

    assert kill_after_an_epoch(started, tmp_path / "runs")[-1] < EPOCHS
    said = run(started)
    epochs = finished_epochs(tmp_path / "runs")
    assert epochs == list(range(1, EPOCHS + 1)), "an epoch lost or redone"
    assert "A fresh process gives the same" in said
    (folder,) = (tmp_path / "runs").iterdir()
    made = {path.name for path in folder.iterdir()}
    assert {"attention.png", "curve.png", "saved_model"} <= made
    assert "backup" not in made
