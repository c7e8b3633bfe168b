"""Folder of a published model: its config, and its tensors one at a time."""

import contextlib
import json
import math
import os
import pathlib
from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np

from keras_attn import _atomic_folder

__all__ = [
    "CONFIG",
    "INDEX",
    "WEIGHTS",
    "Config",
    "Folder",
    "check_inside",
    "read_json",
]

CONFIG, WEIGHTS = "config.json", "model.safetensors"
INDEX = f"{WEIGHTS}.index.json"
_CHUNK_SIZE = 2**19  # elements
# Formats that can contain code, which would be executed on reading.
_PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")


class Config(dict[str, Any]):
    """Contents of `config.json`. A missing key raises a ValueError that names it."""

    def __missing__(self, key: str) -> NoReturn:
        raise ValueError(
            f"`{CONFIG}` must contain {key!r} for a model of this family. "
            f"Received: keys {sorted(self)}"
        )


class Folder:
    """A published model on disk.

    Args:
        path: path of the folder, which contains `config.json` and either
            `model.safetensors` or several such files and their index.

    Attributes:
        path: path of the folder.
        config: contents of `config.json`.
        shapes: dict from the name of each tensor to its shape.
        dtypes: dict from the name of each tensor to its dtype, such as `"F32"`.

    Raises:
        FileNotFoundError: if the folder, the config, the weights or some of the weight
            files are missing.
        ValueError: for a file that cannot be read, for pickled weights and for an index
            with paths outside the folder.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path: pathlib.Path = _atomic_folder.recover(path)
        if not self.path.is_dir():
            raise FileNotFoundError(
                f"Expected a folder with a published model. Received: path={path!s}"
            )
        self.config: Config = Config(read_json(self.path / CONFIG))
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.dtypes: dict[str, str] = {}
        self._locations: dict[str, tuple[pathlib.Path, str]] = {}
        for file, names in self._weight_files().items():
            shapes, stored_names = self._read_header(file)
            for name in sorted(shapes) if names is None else names:
                if name not in shapes:
                    raise ValueError(
                        f"`{INDEX}` must map each tensor to the file that contains it. "
                        f"Received: tensor {name!r}, file {file!r}"
                    )
                self.shapes[name] = shapes[name]
                self._locations[name] = self.path / file, stored_names.get(name, name)

    def read(self, name: str) -> np.ndarray:
        """Return a tensor as a NumPy array in its stored dtype."""
        path, stored_name = self._locations[name]
        with _open_safetensors(path) as tensors:
            return tensors.get_tensor(stored_name)

    def read_chunks(self, name: str) -> Iterator[np.ndarray]:
        """Yield consecutive rows of a tensor in chunks of a few MB.

        Data that was read stays in memory until the file is closed, so each chunk opens
        the file again.
        """
        shape, (path, stored_name) = self.shapes[name], self._locations[name]
        rows = max(shape[0] * _CHUNK_SIZE // math.prod(shape), 1)
        for start in range(0, shape[0], rows):
            with _open_safetensors(path) as tensors:
                stop = min(start + rows, shape[0])
                yield tensors.get_slice(stored_name)[start:stop]

    def are_equal(self, name: str, other: str) -> bool:
        """Return whether two tensors have the same shape and values."""
        return self.shapes[name] == self.shapes[other] and all(
            np.array_equal(chunk, other_chunk)
            for chunk, other_chunk in zip(
                self.read_chunks(name), self.read_chunks(other)
            )
        )

    def is_large(self, name: str) -> bool:
        """Return whether a tensor is larger than one chunk."""
        return math.prod(self.shapes[name]) > _CHUNK_SIZE

    def _weight_files(self) -> dict[str, list[str] | None]:
        """Return a dict from each file to the tensors to read, None for all of them."""
        files: dict[str, list[str] | None] = {}
        if (self.path / INDEX).exists():
            weight_map = read_json(self.path / INDEX).get("weight_map")
            if not isinstance(weight_map, dict) or not weight_map:
                raise ValueError(
                    f"`{INDEX}` must contain a `weight_map` from tensors to files. "
                    f"Received: path={self.path / INDEX}"
                )
            grouped: dict[str, list[str]] = {}
            for name, file in weight_map.items():
                grouped.setdefault(check_inside(INDEX, file), []).append(name)
            files.update(grouped)
        # A single file has precedence: saving one does not remove an older index.
        if (self.path / WEIGHTS).exists():
            return {WEIGHTS: None}
        if files:
            return files
        pickled = [f.name for pattern in _PICKLED for f in self.path.glob(pattern)]
        if pickled:
            raise ValueError(
                "Pickled weights are not supported, because unpickling can execute "
                f"arbitrary code; if you trust them, save the model as `{WEIGHTS}`. "
                f"Received: files={sorted(pickled)} in path={self.path}"
            )
        raise FileNotFoundError(
            f"Expected `{WEIGHTS}` or `{INDEX}`. Received: path={self.path}"
        )

    def _read_header(
        self, file: str
    ) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
        """Return the shapes by name, and the stored names of tensors that are aliases.

        For tensors that share memory, a file can store one and list the names of the
        others in its metadata.
        """
        path = self.path / file
        if not path.is_file():
            raise FileNotFoundError(f"Expected a weight file. Received: path={path}")
        with _open_safetensors(path) as tensors:
            names = tensors.keys()
            slices = {name: tensors.get_slice(name) for name in names}
            shapes = {name: tuple(x.get_shape()) for name, x in slices.items()}
            self.dtypes.update((name, x.get_dtype()) for name, x in slices.items())
            metadata = tensors.metadata() or {}
        stored_names = {
            name: stored_name
            for name, stored_name in metadata.items()
            if stored_name in shapes and name not in shapes
        }
        aliases = {name: shapes[stored] for name, stored in stored_names.items()}
        return {**shapes, **aliases}, stored_names


def read_json(path: pathlib.Path, kind: type = dict) -> Any:
    """Return the contents of a JSON file.

    Args:
        path: path of the file.
        kind: `dict` or `list`, the expected type of the contents.

    Raises:
        FileNotFoundError: if the file does not exist.
        ValueError: if the contents are not JSON, or are of a different type.
    """
    if not path.is_file():
        raise FileNotFoundError(
            f"Expected `{path.name}` in the folder of a published model. "
            f"Received: path={path}"
        )
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"Expected JSON. Received: path={path}") from error
    if not isinstance(content, kind):
        name = {dict: "object", list: "array"}[kind]
        raise ValueError(f"Expected a JSON {name}. Received: path={path}")
    return content


def check_inside(source: str, file: object) -> str:
    """Return a relative path that was read from a file, if it is inside the folder.

    Args:
        source: name of the file that contains the path, for the error message.
        file: the path.

    Raises:
        ValueError: if it is not a string, is absolute or contains `..`.
    """
    if isinstance(file, str) and file and "\\" not in file and "\0" not in file:
        path = pathlib.PurePosixPath(file)
        inside = not path.is_absolute() and ".." not in path.parts
        if inside and not os.path.isabs(file):
            return file
    raise ValueError(
        f"`{source}` must name files inside the folder. Received: file {file!r}"
    )


@contextlib.contextmanager
def _open_safetensors(path: pathlib.Path) -> Iterator[Any]:
    # Imported here to keep the import of this package fast.
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as tensors:
            yield tensors
    except (SafetensorError, OSError) as error:
        raise ValueError(
            "Expected a complete safetensors file, but it is truncated or corrupt. "
            f"Received: path={path}"
        ) from error
