"""Writing a SavedModel whole or not at all."""

import json

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from keras_attn import _atomic_folder

__all__ = ["OPS_FILE", "check_path", "write"]

OPS_FILE = "non_core_ops.json"


def check_path(path, overwrite):
    """The path to export to; see `keras_attn._atomic_folder.check_path`."""
    return _atomic_folder.check_path(path, overwrite, "a SavedModel", "saved_model.pb")


def write(module, path, signatures):
    """Saves `module` under `path`.

    Beside the SavedModel's own files there is `non_core_ops.json`: the names of the
    ops that TensorFlow alone does not have, so that a server knows what to load.
    """
    with _atomic_folder.write(path) as folder:
        tf.saved_model.save(module, str(folder), signatures=signatures)
        ops = json.dumps(sorted(non_core_ops(folder)), indent=2)
        (folder / OPS_FILE).write_text(ops + "\n", encoding="utf-8")


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
