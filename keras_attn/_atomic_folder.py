"""Atomic writes of folders."""

import contextlib
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator

__all__ = ["check_path", "write"]


def check_path(
    path: str | os.PathLike[str], overwrite: bool, kind: str, marker: str
) -> pathlib.Path:
    """Return the path of a folder to write, or raise if it cannot be written.

    Args:
        path: Path of the folder.
        overwrite: Whether an existing folder of the same kind may be replaced.
        kind: The kind of folder, for error messages.
        marker: Name of a file that every folder of this kind contains.

    Returns:
        A `pathlib.Path`.

    Raises:
        FileExistsError: If the path exists and `overwrite` is False, or it is not a
            folder of this kind.
        FileNotFoundError: If the path is empty.
        OSError: If the folder cannot be created there.
    """
    if not str(path):
        raise FileNotFoundError(f"The path must not be empty. Received: {path=}")
    path = pathlib.Path(path)
    if not overwrite and (path.exists() or path.is_symlink()):
        raise FileExistsError(
            "The path exists already. Pass overwrite=True to replace it. "
            f"Received: path={str(path)!r}"
        )
    if overwrite and path.exists() and not _is_replaceable(path, marker):
        raise FileExistsError(
            f"The path exists and is not {kind}, so it is not replaced. "
            f"Received: path={str(path)!r}"
        )
    try:
        with tempfile.TemporaryDirectory(dir=_existing_parent(path)):
            pass
    except OSError as error:
        raise type(error)(
            f"The path cannot be written ({error.strerror}). "
            f"Received: path={str(path)!r}"
        ) from error
    return path


def _is_replaceable(path: pathlib.Path, marker: str) -> bool:
    """Return whether a path is an empty folder or a folder that has the marker file."""
    if not path.is_dir():
        return False
    names = {entry.name for entry in path.iterdir()}
    return not names or marker in names


def _existing_parent(path: pathlib.Path) -> pathlib.Path:
    """Return the nearest of the folders above `path` that exists."""
    return next(folder for folder in path.absolute().parents if folder.exists())


@contextlib.contextmanager
def write(path: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """Yield a temporary folder that is renamed to `path` if no error occurs.

    After an error the temporary folder and the parent folders that were created for it
    are removed, and an existing folder at `path` is unchanged.
    """
    path = pathlib.Path(path).absolute()
    existing_parent = _existing_parent(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = pathlib.Path(
        tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.partial-")
    )
    try:
        yield temporary
        temporary.chmod(0o755)  # `mkdtemp` gives permissions to the owner only.
        _move_into_place(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        with contextlib.suppress(OSError):  # Another process may use the folders.
            for folder in path.parents[: path.parents.index(existing_parent)]:
                folder.rmdir()
        raise


def _move_into_place(temporary: pathlib.Path, path: pathlib.Path) -> None:
    """Rename `temporary` to `path`, and restore an existing `path` on failure."""
    if not path.exists() and not path.is_symlink():
        os.rename(temporary, path)
        return
    backup = pathlib.Path(
        tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.old-")
    )
    os.rename(path, backup / path.name)
    try:
        os.rename(temporary, path)
    except BaseException:
        os.rename(backup / path.name, path)
        raise
    finally:
        shutil.rmtree(backup, ignore_errors=True)
