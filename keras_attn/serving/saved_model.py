"""Writing a SavedModel whole or not at all."""

import contextlib
import json
import os
import pathlib
import shutil
import tempfile

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

__all__ = ["OPS_FILE", "check_path", "write"]

OPS_FILE = "non_core_ops.json"


def check_path(path, overwrite):
    """The path to export to; an error where nothing can or should be written.

    Raises:
        FileExistsError: if something is there and `overwrite` is False.
        OSError: if it cannot be made there.
    """
    if not str(path):
        raise FileNotFoundError(f"The export path must have a name. Received: {path=}")
    path = pathlib.Path(path)
    if not overwrite and (path.exists() or path.is_symlink()):
        raise FileExistsError(
            "The export path exists; pass overwrite=True to replace it. "
            f"Received: path={str(path)!r}"
        )
    if overwrite and path.exists() and not _may_be_replaced(path):
        raise FileExistsError(
            "The export path holds something else than a SavedModel, which is not "
            f"replaced. Received: path={str(path)!r}"
        )
    try:
        with tempfile.TemporaryDirectory(dir=_lowest_folder(path)):
            pass
    except OSError as error:
        raise type(error)(
            f"The export path cannot be written ({error.strerror}). "
            f"Received: path={str(path)!r}"
        ) from error
    return path


def _may_be_replaced(path):
    """An empty folder, or one that a SavedModel is in."""
    if not path.is_dir():
        return False
    names = {entry.name for entry in path.iterdir()}
    return not names or "saved_model.pb" in names


def _lowest_folder(path):
    """What is there already of the folders above `path`."""
    return next(folder for folder in path.absolute().parents if folder.exists())


def write(module, path, signatures):
    """Saves `module` under `path`, by way of a temporary folder beside it.

    Beside the SavedModel's own files there is `non_core_ops.json`: the names of the
    ops that TensorFlow alone does not have, so that a server knows what to load.
    """
    path = pathlib.Path(path).absolute()
    lowest = _lowest_folder(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = pathlib.Path(
        tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.partial-")
    )
    try:
        tf.saved_model.save(module, str(temporary), signatures=signatures)
        ops = json.dumps(sorted(non_core_ops(temporary)), indent=2)
        (temporary / OPS_FILE).write_text(ops + "\n", encoding="utf-8")
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


def non_core_ops(folder):
    """Names of the ops in a SavedModel that TensorFlow alone does not have."""
    saved_model = SavedModel()
    try:
        saved_model.ParseFromString((folder / "saved_model.pb").read_bytes())
    except DecodeError as error:
        raise ValueError(f"No SavedModel. Received: folder={folder}") from error
    graphs = [meta.graph_def for meta in saved_model.meta_graphs]
    nodes = [node for graph in graphs for node in graph.node]
    for graph in graphs:
        for function in graph.library.function:
            nodes.extend(function.node_def)
    # `raw_ops` has every op that TensorFlow registers, and no other, save XLA's, which
    # work without compilation as well (Keras writes slices with one).
    return {
        node.op
        for node in nodes
        if not hasattr(tf.raw_ops, node.op) and not node.op.startswith(("_", "Xla"))
    } - {function.signature.name for g in graphs for function in g.library.function}
