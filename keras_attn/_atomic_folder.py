"""Folders that are written whole or not at all."""

import contextlib
import os
import pathlib
import shutil
import tempfile

__all__ = ["check_path", "write"]


def check_path(path, overwrite, what, mark):
    """The path to write a folder to; an error where nothing can or should be written.

    Args:
        path: of the folder.
        overwrite: bool, whether a folder of the same kind may be replaced.
        what: str, the kind of folder, for messages.
        mark: str, the name of a file that every such folder holds.

    Returns:
        A `pathlib.Path`.

    Raises:
        FileExistsError: if something is there and `overwrite` is False, or it is
            something else.
        OSError: if it cannot be made there.
    """
    if not str(path):
        raise FileNotFoundError(f"The path must have a name. Received: {path=}")
    path = pathlib.Path(path)
    if not overwrite and (path.exists() or path.is_symlink()):
        raise FileExistsError(
            "The path exists; pass overwrite=True to replace it. "
            f"Received: path={str(path)!r}"
        )
    if overwrite and path.exists() and not _may_be_replaced(path, mark):
        raise FileExistsError(
            f"The path holds something else than {what}, which is not replaced. "
            f"Received: path={str(path)!r}"
        )
    try:
        with tempfile.TemporaryDirectory(dir=_lowest_folder(path)):
            pass
    except OSError as error:
        raise type(error)(
            f"The path cannot be written ({error.strerror}). "
            f"Received: path={str(path)!r}"
        ) from error
    return path


def _may_be_replaced(path, mark):
    """An empty folder, or one of the kind."""
    if not path.is_dir():
        return False
    names = {entry.name for entry in path.iterdir()}
    return not names or mark in names


def _lowest_folder(path):
    """What is there already of the folders above `path`."""
    return next(folder for folder in path.absolute().parents if folder.exists())


@contextlib.contextmanager
def write(path):
    """A temporary folder to write into, which becomes `path` when all went well."""
    path = pathlib.Path(path).absolute()
    lowest = _lowest_folder(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = pathlib.Path(
        tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.partial-")
    )
    try:
        yield temporary
        temporary.chmod(0o755)  # `mkdtemp` makes folders for the owner alone.
        _put_in_place(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        with contextlib.suppress(OSError):  # where another process uses them
            for folder in path.parents[: path.parents.index(lowest)]:
                folder.rmdir()
        raise


def _put_in_place(temporary, path):
    if not path.exists() and not path.is_symlink():
        os.rename(temporary, path)
        return
    old = pathlib.Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.old-"))
    os.rename(path, old / path.name)
    try:
        os.rename(temporary, path)
    except BaseException:
        os.rename(old / path.name, path)
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)
