"""Atomic writes of folders, which replace only folders that were written here.

A folder is written under a temporary name next to its path, and then replaces an older
one. On a system that can exchange two folders (Linux), there is a complete folder at
the path at every moment. On others, the older folder is first renamed; if the process
is killed before the new folder has its name, the next call restores the older one.

Temporary folders are named `.NAME.partial-XXXXXXXX` (the new folder, or the replaced
one until it is deleted) and `.NAME.old-XXXXXXXX` (a folder around a renamed one). Their
writer locks them, so that those of a killed process can be recognized and deleted.
"""

import contextlib
import ctypes
import errno
import functools
import json
import os
import pathlib
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

__all__ = ["LIST", "check_path", "recover", "write"]

LIST = "keras_attn_files.json"
_NUM_NAMES = 10  # in an error message
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
# Errors of a system or a file system that cannot exchange two paths.
_CANNOT_EXCHANGE = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM}


def check_path(
    path: str | os.PathLike[str], overwrite: bool, kind: str
) -> pathlib.Path:
    """Return the path of a folder to write, or raise if it cannot be written.

    A folder that a killed process was replacing is restored first.

    Args:
        path: Path of the folder.
        overwrite: Whether an existing folder may be replaced. It must be empty, or a
            folder of this kind from `write`, without any other files.
        kind: The kind of folder with its article, such as "a SavedModel".

    Returns:
        A `pathlib.Path`.

    Raises:
        FileExistsError: If the path exists and `overwrite` is False, or it may not be
            replaced.
        FileNotFoundError: If the path is empty.
        OSError: If the folder cannot be created there.
    """
    if not str(path):
        raise FileNotFoundError(f"The path must not be empty. Received: {path=}")
    path = recover(path)
    _check_replaceable(path, overwrite, kind)
    try:
        folder = tempfile.mkdtemp(
            dir=_existing_parent(path), prefix=_prefix(path, "partial")
        )
    except OSError as error:
        raise type(error)(
            f"The path cannot be written ({error.strerror}). "
            f"Received: path={str(path)!r}"
        ) from error
    with contextlib.suppress(OSError):  # deleted as a leftover by another process
        os.rmdir(folder)
    return path


@contextlib.contextmanager
def write(
    path: str | os.PathLike[str], overwrite: bool, kind: str
) -> Iterator[pathlib.Path]:
    """Yield a temporary folder that is renamed to `path` if no error occurs.

    The list of its files is added to the folder as `keras_attn_files.json`. After an
    error the temporary folder and the parent folders that were created for it are
    removed, and an existing folder at `path` is unchanged.

    Args:
        path: The path, from `check_path`.
        overwrite: Whether an existing folder may be replaced, see `check_path`.
        kind: The kind of folder with its article, such as "a SavedModel".

    Raises:
        FileExistsError: If the path may not be replaced.
    """
    path = pathlib.Path(path).absolute()
    existing_parent = _existing_parent(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with _temporary_folder(path, "partial") as temporary:
        try:
            yield temporary
            _write_list(temporary, kind)
            temporary.chmod(0o755)  # `mkdtemp` gives permissions to the owner only.
            _flush(temporary)
            # Again, since files may have been added in the meantime.
            _check_replaceable(path, overwrite, kind)
            _move_into_place(temporary, path, overwrite)
        except BaseException:
            _delete(temporary)
            with contextlib.suppress(OSError):  # Another process may use the folders.
                for folder in path.parents[: path.parents.index(existing_parent)]:
                    folder.rmdir()
            raise
        _delete(temporary)  # the replaced folder, if the two were exchanged
    _delete_leftovers(path)


def recover(path: str | os.PathLike[str]) -> pathlib.Path:
    """Restore the folder at `path` if a process was killed while replacing it.

    Nothing happens if the path exists, or no folder of this name is left, or another
    process is just replacing it.

    Returns:
        The path, a `pathlib.Path`.
    """
    path = pathlib.Path(path)
    if os.path.lexists(path):
        return path
    for backup in _leftovers(path.absolute(), "old"):
        with _locked(backup) as is_locked, contextlib.suppress(OSError):
            if is_locked is not False and not os.path.lexists(path):
                os.rename(backup / path.name, path)
                backup.rmdir()
    return path


def _existing_parent(path: pathlib.Path) -> pathlib.Path:
    """Return the nearest of the folders above `path` that exists."""
    return next(folder for folder in path.absolute().parents if folder.exists())


def _check_replaceable(path: pathlib.Path, overwrite: bool, kind: str) -> None:
    """Raise a FileExistsError if there is something at `path` that must be kept."""
    if not os.path.lexists(path):
        return
    if not overwrite:
        raise FileExistsError(
            "The path exists already. Pass overwrite=True to replace it. "
            f"Received: path={str(path)!r}"
        )
    if not path.exists():  # a link to nothing
        return
    if not path.is_dir():
        raise FileExistsError(
            f"The path exists and is not {kind}, so it is not replaced. Received: "
            f"path={str(path)!r}"
        )
    listed = _read_list(path, kind)
    names = _other_names(path, listed or {})
    if not names:
        return
    shown = ", ".join(names[:_NUM_NAMES])
    if len(names) > _NUM_NAMES:
        shown += f", and {len(names) - _NUM_NAMES} more"
    reason = f"is not {kind} that keras_attn has written"
    if listed:
        reason = "contains files that keras_attn has not written"
    raise FileExistsError(
        f"The folder {reason}, so it is not replaced. Move or delete these files, or "
        f"pass another path. Received: path={str(path)!r}, which contains {shown}"
    )


def _write_list(folder: pathlib.Path, kind: str) -> None:
    """Write the list of the files and folders in `folder`, itself included."""
    (folder / LIST).touch()
    files = sorted(name for name, _ in _entries(folder, lambda _: True))
    content = {"format": "keras_attn.folder", "kind": kind, "files": files}
    text = json.dumps(content, indent=2)
    (folder / LIST).write_text(text + "\n", encoding="utf-8")


def _read_list(folder: pathlib.Path, kind: str) -> dict[str, bool] | None:
    """Return the paths that `_write_list` has listed, and whether each is a folder.

    Returns:
        A dict from relative path to bool, or None if there is no such list of a folder
        of this kind.
    """
    try:
        content = json.loads((folder / LIST).read_text(encoding="utf-8"))
        if content["format"] != "keras_attn.folder" or content["kind"] != kind:
            return None
        return {name.rstrip("/"): name.endswith("/") for name in content["files"]}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _other_names(folder: pathlib.Path, listed: dict[str, bool]) -> list[str]:
    """Return the sorted names of the files and folders that are not listed.

    A folder's name ends with a slash, and the files in a folder that is not listed are
    not named.
    """

    def is_listed(name: str) -> bool:
        return listed.get(name.rstrip("/")) is name.endswith("/")

    entries = _entries(folder, is_listed)
    return sorted(name for name, is_link in entries if is_link or not is_listed(name))


def _entries(
    folder: pathlib.Path, enter: Callable[[str], bool], prefix: str = ""
) -> Iterator[tuple[str, bool]]:
    """Yield the relative paths of the entries of a folder, and whether each is a link.

    The path of a folder ends with a slash. The entries of a folder follow it if `enter`
    returns True for it.
    """
    with os.scandir(folder) as entries:
        for entry in entries:
            is_folder = entry.is_dir(follow_symlinks=False)
            name = prefix + entry.name + ("/" if is_folder else "")
            yield name, entry.is_symlink()
            if is_folder and enter(name):
                yield from _entries(pathlib.Path(entry.path), enter, name)


def _flush(folder: pathlib.Path) -> None:
    """Write the contents of a folder to the disk, before an older one is deleted."""
    for parent, _, files in os.walk(folder):
        for file in files:
            with open(os.path.join(parent, file), "rb+") as opened:
                os.fsync(opened.fileno())
        _flush_names(parent)


def _flush_names(folder: str | os.PathLike[str]) -> None:
    """Write the names in a folder to the disk where the system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _move_into_place(
    temporary: pathlib.Path, path: pathlib.Path, overwrite: bool
) -> None:
    """Rename `temporary` to `path`; an existing `path` is exchanged or deleted."""
    if not overwrite or not os.path.lexists(path):
        os.rename(temporary, path)  # An error if there are files at `path` by now.
    elif not _exchange(temporary, path):
        _rename_twice(temporary, path)
    _flush_names(path.parent)


def _exchange(first: pathlib.Path, second: pathlib.Path) -> bool:
    """Exchange two paths atomically, or return False if the system cannot."""
    function = _renameat2()
    if function is None:
        return False
    names = os.fsencode(first), os.fsencode(second)
    arguments = (_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE)
    if function(*arguments) == 0:
        return True
    code = ctypes.get_errno()
    if code in _CANNOT_EXCHANGE:
        return False
    raise OSError(code, os.strerror(code), str(first), None, str(second))


@functools.cache
def _renameat2() -> Callable[..., int] | None:
    """Return the system call that can exchange two paths, or None without it."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        function: Any = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):  # an old C library
        return None
    name, descriptor = ctypes.c_char_p, ctypes.c_int
    function.argtypes = [descriptor, name, descriptor, name, ctypes.c_uint]
    return function


def _rename_twice(temporary: pathlib.Path, path: pathlib.Path) -> None:
    """Replace `path`, and restore it after an error. `recover` does so after a kill."""
    with _temporary_folder(path, "old") as backup:
        old = backup / path.name
        try:
            os.rename(path, old)
            os.rename(temporary, path)
        except BaseException as error:
            _restore(old, path, error)
            with contextlib.suppress(OSError):
                backup.rmdir()
            raise
        _flush_names(path.parent)
        _delete(backup)


def _restore(old: pathlib.Path, path: pathlib.Path, error: BaseException) -> None:
    """Rename `old` to `path`, or raise an OSError with its path."""
    if os.path.lexists(path) or not os.path.lexists(old):
        return
    try:
        os.rename(old, path)
    except OSError as second:
        raise OSError(
            second.errno,
            f"The folder could not be replaced ({error}), nor renamed back "
            f"({second.strerror or second}). It is complete in {str(old)!r}: rename it "
            "to the path, or repeat the call, which does so. Received: "
            f"path={str(path)!r}",
        ) from error


def _delete(path: pathlib.Path) -> None:
    """Delete a folder or a link if it exists, as far as possible."""
    if path.is_symlink():
        with contextlib.suppress(OSError):
            path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)


def _prefix(path: pathlib.Path, word: str) -> str:
    """Return the beginning of the name of a temporary folder for `path`."""
    return f".{path.name}.{word}-"


def _leftovers(path: pathlib.Path, word: str) -> list[pathlib.Path]:
    """Return the temporary folders next to `path`, newest first."""
    # The letters of `tempfile.mkdtemp`. Names of other paths have a dot in this place.
    pattern = re.compile(re.escape(_prefix(path, word)) + "[a-z0-9_]{8}")
    folders = []
    with contextlib.suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            if pattern.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                folders.append((entry.stat().st_mtime, pathlib.Path(entry.path)))
    return [folder for _, folder in sorted(folders, reverse=True)]


def _delete_leftovers(path: pathlib.Path) -> None:
    """Delete the temporary folders of killed processes, now that `path` is complete."""
    for folder in _leftovers(path, "partial") + _leftovers(path, "old"):
        with _locked(folder) as is_locked:
            if is_locked:
                _delete(folder)


@contextlib.contextmanager
def _temporary_folder(path: pathlib.Path, word: str) -> Iterator[pathlib.Path]:
    """Yield a new folder next to `path`, locked until the end of the context."""
    while True:
        name = tempfile.mkdtemp(dir=path.parent, prefix=_prefix(path, word))
        folder = pathlib.Path(name)
        with _locked(folder, wait=True):
            # Before it was locked, another process may have deleted it as a leftover.
            if folder.exists():
                yield folder
                return


@contextlib.contextmanager
def _locked(folder: pathlib.Path, wait: bool = False) -> Iterator[bool | None]:
    """Lock a folder. The system releases the lock when the process ends.

    Yields:
        True, or False if another writer has locked it, or None if folders cannot be
        locked here (on Windows and some network file systems).
    """
    descriptor = None
    is_locked: bool | None = None
    try:
        try:
            if fcntl is not None:
                descriptor = os.open(folder, os.O_RDONLY)
                fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
                is_locked = True
        except BlockingIOError:
            is_locked = False
        except OSError:
            pass
        yield is_locked
    finally:
        if descriptor is not None:
            os.close(descriptor)
