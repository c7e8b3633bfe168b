"""Saves and exports that are killed at random moments."""

import os
import pathlib
import subprocess
import sys

import pytest

COUNT = 20


@pytest.mark.slow
@pytest.mark.export
@pytest.mark.subprocess
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs exchanges")
@pytest.mark.parametrize("kind", ["save", "export"])
@pytest.mark.parametrize("overwrite", [False, True], ids=["new", "overwrite"])
def test_killed_at_random_moments(tmp_path, kind, overwrite):
    """Expect the old folder or the new one, complete, and no others at the end."""
    script = pathlib.Path(__file__).with_name("kill_saves.py")
    command = [sys.executable, script, kind, str(int(overwrite)), tmp_path, str(COUNT)]
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow"}
    result = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert int(result.stdout.split()[-1]) <= COUNT
