"""Kill writes of a folder at each of their steps; `test_atomic_folder.py` runs it.

Run it as `kill_writes.py MODULE FOLDER EXCHANGE`, with the path of `_atomic_folder.py`,
an empty folder, and `exchange` or `rename`, as on a system that cannot exchange
folders. The last line of the output is the number of steps.
"""

import importlib.util
import json
import os
import pathlib
import signal
import sys

KIND = "a test folder"
FILES = ("data", "inner/data")
ENDS = ("os.", "open", "shutil.")  # the audited events that access files


def write(module, path, version):
    """Write a folder whose files all contain its version."""
    module.check_path(path, True, KIND)
    with module.write(path, True, KIND) as folder:
        (folder / "inner").mkdir()
        for name in FILES:
            (folder / name).write_text(str(version))


def version_of(module, path):
    """Return the version of a folder, which must be complete."""
    listed = json.loads((path / module.LIST).read_text())["files"]
    assert listed == ["data", "inner/", "inner/data", module.LIST]
    (version,) = {(path / name).read_text() for name in FILES}
    return int(version)


def killed_write(module, path, version, step):
    """Write in a process that is killed at the given step; return whether it was."""
    process = os.fork()
    if not process:
        count = 0

        def hook(event, arguments):
            nonlocal count
            if event.startswith(ENDS):
                count += 1
                if count == step:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        write(module, path, version)
        os._exit(0)
    status = os.waitpid(process, 0)[1]
    assert status in (0, signal.SIGKILL), f"the process fails with status {status}"
    return status != 0


def main(module_path, folder, exchange):
    spec = importlib.util.spec_from_file_location("atomic_folder", module_path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if exchange == "rename":
        module._exchange = lambda first, second: False
    path = pathlib.Path(folder) / "model"
    seen, step, is_killed = set(), 0, True
    write(module, path, 0)
    while is_killed:
        step += 1
        is_killed = killed_write(module, path, 2 * step, step)
        if exchange == "rename":
            module.recover(path)
        seen.add(version_of(module, path) % 2)
        write(module, path, 2 * step + 1)
        assert version_of(module, path) == 2 * step + 1
        assert os.listdir(folder) == ["model"], os.listdir(folder)
    assert seen == {0, 1}, "the folder is never the old one, or never the new one"
    print(step - 1)


if __name__ == "__main__":
    main(*sys.argv[1:])
