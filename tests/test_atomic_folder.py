"""Replaced folders: which ones, and that errors and kills never lose the last copy."""

import os
import pathlib
import subprocess
import sys

import pytest

from keras_attn import _atomic_folder

KIND = "a test folder"


def write(path, text="new", overwrite=True, kind=KIND):
    path = _atomic_folder.check_path(path, overwrite, kind)
    with _atomic_folder.write(path, overwrite, kind) as folder:
        (folder / "inner" / "empty").mkdir(parents=True)
        for name in ("data", "inner/data"):
            (folder / name).write_text(text)
    return path


def contents(folder):
    """Return a dict from relative path to the text of each file, None for the rest."""
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        if path.is_file()
        else None
        for path in folder.rglob("*")
    }


@pytest.fixture(params=["exchange", "rename"])
def path(request, tmp_path, monkeypatch):
    if request.param == "rename":
        monkeypatch.setattr(_atomic_folder, "_exchange", lambda first, second: False)
    return tmp_path / "model"


def test_a_folder_written_here_is_replaced(path):
    write(path, "old")
    (path / "data").unlink()  # A missing file does not matter.
    write(path)
    assert (path / "data").read_text() == (path / "inner/data").read_text() == "new"
    assert [entry.name for entry in path.parent.iterdir()] == ["model"]
    with pytest.raises(FileExistsError, match="overwrite=True"):
        write(path, overwrite=False)


OTHER_FILES = {
    "a file": "thesis.tex",
    "a hidden file": ".notes",
    "a file in a folder of ours": "inner/notes",
    "a file in an empty folder of ours": "inner/empty/notes",
    "a file in a folder": "src/app/main.py",
    "a folder": "src/",
    "a link": "link -> data",
    "a link in place of a file": "data -> elsewhere",
    "a folder in place of a file": "data/",
    "a file in place of a folder": "inner/empty",
}


@pytest.mark.parametrize("name", OTHER_FILES.values(), ids=OTHER_FILES)
def test_files_of_others_are_not_deleted(tmp_path, name):
    path = write(tmp_path / "model", "old")
    name, _, target = name.partition(" -> ")
    file = path / name
    if file.is_dir():
        file.rmdir()
    else:
        file.unlink(missing_ok=True)
    if target:
        file.symlink_to(target)
    elif name.endswith("/"):
        file.mkdir()
    else:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("mine")
    before = contents(path)
    named = "src/" if name.startswith("src/") else name
    with pytest.raises(FileExistsError, match=f"keras_attn has not .*contains {named}"):
        write(path)
    assert contents(path) == before and len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    "content", [None, "{}", "[", '{"format": "keras_attn.folder"}', "another kind"]
)
def test_folders_of_others_are_not_replaced(tmp_path, content):
    """Also those with the files that a model or a SavedModel must have."""
    path = tmp_path / "model"
    if content == "another kind":
        write(path, kind="another kind")
    else:
        path.mkdir()
        if content is not None:
            (path / _atomic_folder.LIST).write_text(content)
    for name in ("config.json", "saved_model.pb"):
        (path / name).write_text("{}")
    before = contents(path)
    message = "is not a test folder that keras_attn.*config.json, .*saved_model.pb"
    with pytest.raises(FileExistsError, match=message):
        write(path)
    assert contents(path) == before


def test_long_lists_of_files_are_shortened(tmp_path):
    for number in range(12):
        (tmp_path / f"file{number:02}").touch()
    with pytest.raises(FileExistsError, match="file00, .* file09, and 2 more$"):
        write(tmp_path)


def test_files_added_during_the_write_are_not_deleted(path):
    for overwrite in (True, False):
        with (
            pytest.raises(FileExistsError),
            _atomic_folder.write(path, overwrite, KIND) as folder,
        ):
            (folder / "data").write_text("new")
            path.mkdir(exist_ok=True)
            (path / "notes").write_text("mine")
        assert contents(path) == {"notes": "mine"}
        assert [entry.name for entry in path.parent.iterdir()] == ["model"]


def test_a_link_is_replaced_but_not_its_folder(path):
    write(path.with_name("first"), "old")
    path.symlink_to("first")
    write(path)
    assert (path / "data").read_text() == "new" and not path.is_symlink()
    assert (path.with_name("first") / "data").read_text() == "old"
    assert {entry.name for entry in path.parent.iterdir()} == {"first", "model"}


def failing_rename(monkeypatch, first, last=100):
    """Let the renames with these numbers fail, as on a full disk."""
    count, rename = 0, os.rename

    def fail(source, target):
        nonlocal count
        count += 1
        if first <= count <= last:
            raise OSError(28, "No space left on device")
        rename(source, target)

    monkeypatch.setattr(os, "rename", fail)


def test_a_failed_replacement_restores_the_old_folder(tmp_path, monkeypatch):
    path = write(tmp_path / "model", "old")
    monkeypatch.setattr(_atomic_folder, "_exchange", lambda first, second: False)
    for number in (1, 2):
        with monkeypatch.context() as patch, pytest.raises(OSError, match="No space"):
            failing_rename(patch, number, number)
            write(path)
        assert (path / "data").read_text() == "old"
        assert [entry.name for entry in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("next_call", ["recover", "write", "no overwrite"])
def test_the_last_copy_is_named_and_restored(tmp_path, monkeypatch, next_call):
    path = write(tmp_path / "model", "old")
    before = contents(path)
    monkeypatch.setattr(_atomic_folder, "_exchange", lambda first, second: False)
    with monkeypatch.context() as patch:
        failing_rename(patch, 2)
        with pytest.raises(OSError, match="not be replaced.*complete in") as raised:
            write(path)
    (backup,) = tmp_path.iterdir()
    assert repr(str(backup / "model")) in str(raised.value)
    assert contents(backup / "model") == before
    if next_call == "recover":
        _atomic_folder.recover(path)
    elif next_call == "write":
        write(path)
    else:
        with pytest.raises(FileExistsError, match="overwrite=True"):
            write(path, overwrite=False)
    expected = "new" if next_call == "write" else "old"
    assert (path / "data").read_text() == expected
    assert [entry.name for entry in tmp_path.iterdir()] == ["model"]


def test_an_interrupt_after_the_replacement(tmp_path, monkeypatch):
    path = write(tmp_path / "model", "old")
    monkeypatch.setattr(_atomic_folder, "_exchange", lambda first, second: False)
    rename = os.rename

    def interrupted(source, target):
        rename(source, target)
        if target == path:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "rename", interrupted)
        write(path)
    assert (path / "data").read_text() == "new"
    write(path, "newer")
    assert [entry.name for entry in tmp_path.iterdir()] == ["model"]


def test_leftovers_of_killed_processes_are_deleted(tmp_path):
    # except those of running processes and of other paths
    kept = {".model.partial-x", ".model.new.partial-abcdefgh", ".model.old-abcdefgi"}
    for name in (*kept, ".model.partial-abcdefgh", ".model.old-abcdefgh"):
        (tmp_path / name).mkdir()
    with (
        _atomic_folder._locked(tmp_path / ".model.old-abcdefgi"),
        _atomic_folder.write(tmp_path / "model", True, KIND) as first,
    ):
        kept.add(first.name)
        write(tmp_path / "model")
        assert {entry.name for entry in tmp_path.iterdir()} == {*kept, "model"}
        (first / "data").write_text("first")
    assert (tmp_path / "model" / "data").read_text() == "first"


def test_a_folder_that_is_being_replaced_is_not_restored(tmp_path):
    write(tmp_path / ".model.old-abcdefgh" / "model")
    with _atomic_folder._locked(tmp_path / ".model.old-abcdefgh"):
        assert not _atomic_folder.recover(tmp_path / "model").exists()
    assert _atomic_folder.recover(tmp_path / "model").exists()


def test_without_locks(path, monkeypatch):
    # as on Windows: leftovers are restored, but not deleted
    monkeypatch.setattr(_atomic_folder, "fcntl", None)
    backup = path.with_name(".model.old-abcdefgh")
    write(backup / "model", "old")
    assert (_atomic_folder.recover(path) / "data").read_text() == "old"
    backup.mkdir()
    write(path)
    assert {entry.name for entry in path.parent.iterdir()} == {"model", backup.name}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")
def test_folders_are_exchanged_on_linux(tmp_path, monkeypatch):
    path = write(tmp_path / "model", "old")
    monkeypatch.setattr(os, "rename", None)
    write(path)
    assert (path / "data").read_text() == "new"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes to kill")
@pytest.mark.subprocess
@pytest.mark.parametrize("means", ["exchange", "rename"])
def test_kills_at_each_step(tmp_path, means):
    script = pathlib.Path(__file__).with_name("kill_writes.py")
    command = [sys.executable, script, _atomic_folder.__file__, tmp_path, means]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) > 20
