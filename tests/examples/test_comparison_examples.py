"""The examples that compare models run from end to end, on next to nothing."""

from example_runs import command, run


def test_the_bottleneck(tmp_path):
    names = ["recurrent, general attention"]
    started = command("bottleneck.py", "--output", tmp_path, "--task", "reversal")
    started += ["--minutes", "0.02", "--width", "16", "--model", *names]
    said = run(started)
    rows = [line.split("|") for line in said.splitlines() if line.startswith("| ")]
    assert [row[1].strip() for row in rows] == ["model", *names]
    assert "on the anti-diagonal in" in rows[1][-2]
    assert (tmp_path / "bottleneck.png").exists()


def test_the_long_range(tmp_path):
    started = command("long_range.py", "--output", tmp_path)
    started += ["--model", "GRU", "self-attention with positions"]
    said = run([*started, "--distances", "3", "--seconds", "1"])
    assert "| GRU | " in said and "| self-attention with positions | " in said
    without, with_positions = (
        float(line.split()[-1])
        for line in said.splitlines()
        if "positions " in line[:20]
    )
    assert without < 1e-4 < 0.1 < with_positions
    assert (tmp_path / "long_range.png").exists()
