"""Atomic export of SavedModels."""

import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from keras_attn import _atomic_folder

__all__ = ["OPS_FILE", "check_path", "write"]

OPS_FILE = "non_core_ops.json"
# Stored in `keras_attn_files.json`: folders with a different value are not replaced.
# Do not reword.
_KIND = "a SavedModel"


def check_path(path: str | os.PathLike[str], overwrite: bool) -> pathlib.Path:
    """Return the path to export to; see `keras_attn._atomic_folder.check_path`."""
    return _atomic_folder.check_path(path, overwrite, _KIND)


def write(
    module: tf.Module,
    path: pathlib.Path,
    signatures: Mapping[str, Any],
    overwrite: bool = False,
) -> None:
    """Save a module under `path`.

    In addition to the files of a SavedModel, the folder contains `non_core_ops.json`:
    the names of the ops that are not part of TensorFlow itself, so that a server can
    load the libraries that provide them. A list of all files is in
    `keras_attn_files.json`.

    Args:
        module: The module to save.
        path: The path of the folder, from `check_path`.
        signatures: A dict from the names of the signatures to `tf.function`s.
        overwrite: Whether to replace an existing SavedModel, see `check_path`.
    """
    with _atomic_folder.write(path, overwrite, _KIND) as folder:
        tf.saved_model.save(module, str(folder), signatures=signatures)
        ops = json.dumps(sorted(non_core_ops(folder)), indent=2)
        (folder / OPS_FILE).write_text(ops + "\n", encoding="utf-8")


def non_core_ops(folder: pathlib.Path) -> set[str]:
    """Return the names of a SavedModel's ops that are not part of TensorFlow itself."""
    saved_model = SavedModel()
    try:
        saved_model.ParseFromString((folder / "saved_model.pb").read_bytes())
    except DecodeError as error:
        raise ValueError(
            "`folder` must contain a SavedModel, but its saved_model.pb cannot be "
            f"parsed. Received: folder={folder}"
        ) from error
    graphs = [meta.graph_def for meta in saved_model.meta_graphs]
    nodes = [node for graph in graphs for node in graph.node]
    for graph in graphs:
        for function in graph.library.function:
            nodes.extend(function.node_def)
    # `tf.raw_ops` contains exactly the ops that TensorFlow registers, except those of
    # XLA, which also run without compilation (Keras uses one for slices).
    return {
        node.op
        for node in nodes
        if not hasattr(tf.raw_ops, node.op) and not node.op.startswith(("_", "Xla"))
    } - {function.signature.name for g in graphs for function in g.library.function}
