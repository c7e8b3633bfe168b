"""Running an example in a process, to its end or until it is killed."""

import json
import pathlib
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).parents[2]
ENVIRONMENT = {"PYTHONPATH": str(ROOT), "PATH": "", "KERAS_BACKEND": "tensorflow"}


def command(example, *arguments):
    """Return the command line of an example."""
    return [sys.executable, ROOT / "examples" / example, *arguments]


def run(command):
    """Run a command; return its standard output."""
    result = subprocess.run(
        command, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def kill_after_an_epoch(command, runs):
    """Kill a training command after its next epoch; return the completed epochs.

    `runs` is the folder that its runs are written to.
    """
    before = finished_epochs(runs)
    process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while process.poll() is None and time.monotonic() < deadline:
        if finished_epochs(runs) > before:
            process.send_signal(signal.SIGKILL)
        time.sleep(0.01)
    assert process.wait() == -signal.SIGKILL, "expected to be killed before its end"
    return finished_epochs(runs)


def finished_epochs(runs):
    """Return the numbers of the completed epochs in the log of a run."""
    logs = list(runs.glob("*/curve.jsonl"))
    lines = logs[0].read_text().splitlines() if logs else []
    return [json.loads(line)["epoch"] for line in lines]
