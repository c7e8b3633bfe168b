"""The examples that compare models, run at tiny sizes."""

import pytest
from example_runs import command, run

pytestmark = [pytest.mark.slow, pytest.mark.subprocess]


def test_bottleneck(tmp_path):
    names = ["recurrent, general attention"]
    arguments = command("bottleneck.py", "--output", tmp_path, "--task", "reversal")
    arguments += ["--minutes", "0.005", "--width", "16", "--model", *names]
    output = run(arguments)
    rows = [line.split("|") for line in output.splitlines() if line.startswith("| ")]
    assert [row[1].strip() for row in rows] == ["model", *names]
    assert "on the anti-diagonal in" in rows[1][-2]
    assert (tmp_path / "bottleneck.png").exists()


def test_long_range(tmp_path):
    arguments = command("long_range.py", "--output", tmp_path)
    arguments += ["--model", "GRU", "self-attention with positions"]
    output = run([*arguments, "--distances", "3", "--seconds", "0.2"])
    assert "| GRU | " in output and "| self-attention with positions | " in output
    without, with_positions = (
        float(line.split()[-1])
        for line in output.splitlines()
        if "positions " in line[:20]
    )
    assert without < 1e-4 < 0.1 < with_positions
    assert (tmp_path / "long_range.png").exists()


def test_long_context(tmp_path):
    texts = tmp_path / "texts"
    texts.mkdir()
    for name in "ab":
        (texts / name).write_text(
            "".join(f"{name}{n} is {n * n}\n" for n in range(500))
        )
    kinds = ["rotary", "learned, interpolated", "linear attention, sinusoidal"]
    arguments = command("long_context.py", "--output", tmp_path, "--texts", texts)
    sizes = "--steps 4 --width 16 --layers 1 --windows 1"
    arguments += sizes.split()
    output = run([*arguments, "--kinds", *kinds])
    rows = [line.split("|")[1:-1] for line in output.splitlines() if line[:2] == "| "]
    assert {row[0].strip() for row in rows[1:]} == {
        *kinds,
        "rotary, NTK",
        "rotary, YaRN",
    }
    assert all(0 < float(x) < 20 for row in rows[1:] for x in row[2:] if x.strip())
    assert (tmp_path / "long-context.png").exists()
