"""Running an example as a user does, from end to end or killed on the way."""

import json
import pathlib
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).parents[2]
ENVIRONMENT = {"PYTHONPATH": str(ROOT), "PATH": "", "KERAS_BACKEND": "tensorflow"}


def command(example, *arguments):
    return [sys.executable, ROOT / "examples" / example, *arguments]


def run(command):
    """What it prints."""
    done = subprocess.run(
        command, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def kill_after_an_epoch(command, runs):
    """Starts it and kills it; returns the epochs it has finished in folder `runs`."""
    process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while process.poll() is None and time.monotonic() < deadline:
        if finished_epochs(runs):
            process.send_signal(signal.SIGKILL)
        time.sleep(0.01)
    assert process.wait() == -signal.SIGKILL, "ended before it could be killed"
    return finished_epochs(runs)


def finished_epochs(runs):
    curves = list(runs.glob("*/curve.jsonl"))
    lines = curves[0].read_text().splitlines() if curves else []
    return [json.loads(line)["epoch"] for line in lines]
