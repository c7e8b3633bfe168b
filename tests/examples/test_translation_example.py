"""The translation example on a few sentences, killed and resumed."""

import numpy as np
import pytest
from example_runs import command, finished_epochs, kill_after_an_epoch, run

EPOCHS = 4


@pytest.fixture(scope="module")
def arguments(tmp_path_factory):
    """Return the command without its `--output`."""
    colours, things = ["빨간", "파란", "하얀"], ["차", "집", "꽃", "책"]
    english = dict(
        zip(colours + things, "red blue white car house flower book".split())
    )
    lines = [
        f"{colour} {thing}\ta {english[colour]} {english[thing]}\n"
        for colour in colours
        for thing in things
    ]
    pairs = tmp_path_factory.mktemp("corpus") / "pairs.tsv"
    pairs.write_text("".join(lines), encoding="utf-8")
    sizes = "--vocabulary 300 --width 8 --inner 8 --heads 2 --layers 1 --max-tokens 12"
    arguments = command("translation.py", "--pairs", pairs, "--valid", pairs)
    arguments += [*sizes.split(), "--epochs", str(EPOCHS), "--batch-tokens", "24"]
    return [*arguments, "--dropout", "0.3"]


def weights(runs):
    """Return the arrays of the final weights, and the curve, of the only run."""
    import h5py

    (folder,) = runs.iterdir()
    arrays = {}
    with h5py.File(folder / "weights.weights.h5") as file:
        file.visititems(
            lambda name, item: (
                arrays.__setitem__(name, item[()])
                if isinstance(item, h5py.Dataset)
                else None
            )
        )
    return arrays, (folder / "curve.jsonl").read_text()


@pytest.mark.slow
@pytest.mark.export
@pytest.mark.subprocess
def test_killed_run_is_resumed(arguments, tmp_path):
    killed = [*arguments, "--output", tmp_path / "killed"]
    for _ in range(2):
        assert kill_after_an_epoch(killed, tmp_path / "killed")[-1] < EPOCHS
    output = run(killed)
    epochs = finished_epochs(tmp_path / "killed")
    assert epochs == list(range(1, EPOCHS + 1)), "an epoch was lost or repeated"
    assert "A fresh process returns the same" in output
    (folder,) = (tmp_path / "killed").iterdir()
    files = {path.name for path in folder.iterdir()}
    assert {"attention.png", "curve.png", "saved_model"} <= files
    assert not files & {"state.npz", "state.npz.partial", "partial.weights.h5"}

    run([*arguments, "--output", tmp_path / "uninterrupted"])
    expected, expected_curve = weights(tmp_path / "uninterrupted")
    assert len(expected) > 20
    values, curve = weights(tmp_path / "killed")
    assert curve == expected_curve
    assert values.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_array_equal(values[key], value)
