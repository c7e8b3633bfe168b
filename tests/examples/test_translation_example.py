"""The example as a user runs it, on a few sentences: killed, then started again."""

import json
import pathlib
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).parents[2]
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
    command = [sys.executable, ROOT / "examples/translation.py"]
    command += ["--pairs", pairs, "--valid", pairs, "--output", tmp_path / "runs"]
    command += [*sizes.split(), "--epochs", str(EPOCHS), "--batch-tokens", "24"]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "", "KERAS_BACKEND": "tensorflow"}

    first = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while first.poll() is None and time.monotonic() < deadline:
        if _epochs(tmp_path):
            first.send_signal(signal.SIGKILL)
        time.sleep(0.05)
    assert first.wait() == -signal.SIGKILL, "ended before it could be killed"
    before = _epochs(tmp_path)
    assert before[-1] < EPOCHS

    second = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False
    )
    assert second.returncode == 0, second.stderr
    assert _epochs(tmp_path) == list(range(1, EPOCHS + 1)), "an epoch lost or redone"
    assert "A fresh process gives the same" in second.stdout
    (folder,) = (tmp_path / "runs").iterdir()
    made = {path.name for path in folder.iterdir()}
    assert {"attention.png", "curve.png", "saved_model"} <= made
    assert "backup" not in made


def _epochs(tmp_path):
    curves = list((tmp_path / "runs").glob("*/curve.jsonl"))
    lines = curves[0].read_text().splitlines() if curves else []
    return [json.loads(line)["epoch"] for line in lines]
