"""A folder with a published model: its config, and its tensors one at a time."""

import contextlib
import json
import math
import os
import pathlib

import numpy as np

__all__ = ["CONFIG", "INDEX", "WEIGHTS", "Config", "Folder", "inside", "read_json"]

CONFIG, WEIGHTS = "config.json", "model.safetensors"
INDEX = f"{WEIGHTS}.index.json"
_PART = 2**19  # numbers
# Formats that hold programs as well as numbers, which reading them would run.
_PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")


class Config(dict):
    """What is in `config.json`; asked for what it lacks, it says so."""

    def __missing__(self, key):
        raise ValueError(
            f"`{CONFIG}` must hold {key!r} for a model of this family. "
            f"Received: keys {sorted(self)}"
        )


class Folder:
    """A published model as it lies on disk.

    Args:
        path: of the folder, with `config.json` and `model.safetensors`, or several
            such files and an index of them.

    Attributes:
        path: `pathlib.Path`.
        config: a `Config`.
        shapes: dict from the name of each tensor to its shape.

    Raises:
        FileNotFoundError: without the folder, the config, or weights, or with a part
            of the weights missing.
        ValueError: for a file that cannot be read, weights that are pickled, an index
            with paths out of the folder.
    """

    def __init__(self, path):
        self.path = pathlib.Path(path)
        if not self.path.is_dir():
            raise FileNotFoundError(
                f"Expected a folder with a published model. Received: path={path!s}"
            )
        self.config = Config(read_json(self.path / CONFIG))
        self.shapes, self._stored = {}, {}
        for file, names in self._weight_files().items():
            found, stored = self._read_header(file)
            for name in sorted(found) if names is None else names:
                if name not in found:
                    raise ValueError(
                        f"`{INDEX}` names a tensor that is not in its file. "
                        f"Received: tensor {name!r}, file {file!r}"
                    )
                self.shapes[name] = found[name]
                self._stored[name] = self.path / file, stored.get(name, name)

    def read(self, name):
        """One tensor, an array of NumPy of the dtype it is stored in."""
        path, name = self._stored[name]
        with _opened(path) as tensors:
            return tensors.get_tensor(name)

    def read_parts(self, name):
        """One tensor row by row, several at a time, in few MB.

        What was read of a file stays in memory until the file is closed, so each part
        opens it anew.
        """
        shape, (path, name) = self.shapes[name], self._stored[name]
        rows = max(shape[0] * _PART // math.prod(shape), 1)
        for start in range(0, shape[0], rows):
            with _opened(path) as tensors:
                stop = min(start + rows, shape[0])
                yield tensors.get_slice(name)[start:stop]

    def are_equal(self, name, other):
        """Whether two tensors are the same."""
        return self.shapes[name] == self.shapes[other] and all(
            np.array_equal(part, another)
            for part, another in zip(self.read_parts(name), self.read_parts(other))
        )

    def is_large(self, name):
        """Whether a tensor is worth reading in parts."""
        return math.prod(self.shapes[name]) > _PART

    def _weight_files(self):
        """Dict from the name of each file to the tensors to take, None for all."""
        files = {}
        if (self.path / INDEX).exists():
            entries = read_json(self.path / INDEX).get("weight_map")
            if not isinstance(entries, dict) or not entries:
                raise ValueError(
                    f"`{INDEX}` must hold a `weight_map` from tensors to files. "
                    f"Received: path={self.path / INDEX}"
                )
            for name, file in entries.items():
                files.setdefault(inside(INDEX, file), []).append(name)
        # Before the index: one that is left of an older save beside it is not removed.
        if (self.path / WEIGHTS).exists():
            return {WEIGHTS: None}
        if files:
            return files
        pickled = [f.name for pattern in _PICKLED for f in self.path.glob(pattern)]
        if pickled:
            raise ValueError(
                "Pickled weights are not read, since reading them runs programs that "
                f"may be in them; save the model as `{WEIGHTS}` where you trust it. "
                f"Received: {sorted(pickled)} in {self.path}"
            )
        raise FileNotFoundError(
            f"Expected `{WEIGHTS}` or `{INDEX}`. Received: path={self.path}"
        )

    def _read_header(self, file):
        """Shapes by name, and what a tensor of one name is stored as, if as another.

        Where several names share memory, files keep one and say so of the others.
        """
        path = self.path / file
        if not path.is_file():
            raise FileNotFoundError(
                f"A file of the weights is missing. Received: path={path}"
            )
        with _opened(path) as tensors:
            names = tensors.keys()
            shapes = {n: tuple(tensors.get_slice(n).get_shape()) for n in names}
            metadata = tensors.metadata() or {}
        stored = {
            name: kept
            for name, kept in metadata.items()
            if kept in shapes and name not in shapes
        }
        return {**shapes, **{n: shapes[kept] for n, kept in stored.items()}}, stored


def read_json(path, kind=dict):
    """The dict in a file; or the list, if that is the `kind` to be found in it.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it holds something else.
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


def inside(source, file):
    """The name of a file or folder that the file `source` gives, if it stays inside the
    folder of the model."""
    if isinstance(file, str) and file and "\\" not in file and "\0" not in file:
        path = pathlib.PurePosixPath(file)
        inside = not path.is_absolute() and ".." not in path.parts
        if inside and not os.path.isabs(file):
            return file
    raise ValueError(
        f"`{source}` must name files inside the folder. Received: file {file!r}"
    )


@contextlib.contextmanager
def _opened(path):
    # Here, so that to import this package takes no longer.
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as tensors:
            yield tensors
    except (SafetensorError, OSError) as error:
        raise ValueError(
            "Expected a whole safetensors file; this one is truncated or corrupt. "
            f"Received: path={path}"
        ) from error
