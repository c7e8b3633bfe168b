"""The JSON file of a saved tokenizer."""

import json
import os
from collections.abc import Callable
from typing import Any, TypeVar

FORMAT = "keras_attn.tokenizer"
VERSION = 1

T = TypeVar("T")


def write(
    path: str | os.PathLike[str], class_name: str, config: dict[str, Any]
) -> None:
    """Write a tokenizer file atomically.

    The content is written to a temporary file that then replaces `path`, so a failure
    leaves an existing file unchanged and no partial one.

    Args:
        path: The file; an existing one is replaced.
        class_name: Name of the tokenizer class.
        config: The arguments of the class, JSON serializable.

    Raises:
        FileNotFoundError: If the folder of `path` does not exist.
        IsADirectoryError: If `path` is a folder.
    """
    path = os.fspath(path)
    if os.path.isdir(path):
        raise IsADirectoryError(
            f"Expected the path of a file, but it is a folder. Received: path={path!r}"
        )
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise FileNotFoundError(
            f"Expected the path of a file in an existing folder. Received: "
            f"path={path!r}"
        )
    content = {
        "format": FORMAT,
        "version": VERSION,
        "class": class_name,
        "config": config,
    }
    partial = f"{path}.{os.getpid()}.partial"
    try:
        with open(partial, "w", encoding="ascii") as file:
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        if os.path.exists(partial):
            os.remove(partial)
        raise


def read(path: str | os.PathLike[str]) -> tuple[str, dict[str, Any]]:
    """Read a tokenizer file.

    Returns:
        A tuple `(class_name, config)`, as passed to `write`.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the file was not written by `write`.
    """
    path = os.fspath(path)
    if not os.path.exists(path):
        raise FileNotFoundError(
            f"Expected an existing file, written by the `save` method of a tokenizer. "
            f"Received: path={path!r}"
        )
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        if content["format"] != FORMAT or content["version"] != VERSION:
            raise ValueError(f"format {content['format']} {content['version']}")
        class_name, config = content["class"], content["config"]
    except (
        IsADirectoryError,
        KeyError,
        TypeError,
        ValueError,
        RecursionError,
    ) as error:
        raise invalid_file(path) from error
    if not isinstance(class_name, str) or not isinstance(config, dict):
        raise invalid_file(path)
    return class_name, config


def rebuild(
    from_config: Callable[[dict[str, Any]], T],
    config: dict[str, Any],
    path: str | os.PathLike[str],
) -> T:
    """Return `from_config(config)`, a tokenizer.

    Raises:
        ValueError: If the config does not belong to this class; the error names the
            file that contains it.
    """
    try:
        return from_config(config)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise invalid_file(path) from error


def invalid_file(path: str | os.PathLike[str]) -> ValueError:
    """Return the error for a file that no tokenizer can be loaded from."""
    return ValueError(
        f"Expected a file written by the `save` method of a tokenizer (format "
        f"{FORMAT}, version {VERSION}). Received: path={os.fspath(path)!r}"
    )
