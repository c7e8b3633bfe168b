"""What Keras has no public name for, touched here and nowhere else.

Two things: the implicit mask that Keras hangs on a tensor, and the recorded calls of
a Functional model. `tests/test_keras_internals.py` says which Keras versions these
hold for and fails when one of them moves.
"""

import keras
from keras.src.backend import get_keras_mask as implicit_mask
from keras.src.backend import set_keras_mask as set_implicit_mask
from keras.src.models.functional import Functional

__all__ = ["implicit_mask", "is_functional", "recorded_calls", "set_implicit_mask"]


def is_functional(operation):
    """Whether this is a model whose call is its graph: Functional or Sequential."""
    call = getattr(type(operation), "call", None)
    return call in (Functional.call, keras.Sequential.call) and operation.built


def recorded_calls(model):
    """The calls a Functional model consists of, in an order that can be replayed.

    Args:
        model: a built Functional (or Sequential) `keras.Model`.

    Yields:
        Tuples `(operation, args, kwargs, outputs)`: the layer or op, the arguments
        it was called with (`KerasTensor`s inside), its outputs as a flat list.
        The model's inputs are not among the calls.
    """
    nodes_by_depth = getattr(model, "_functional", model)._nodes_by_depth
    for depth in sorted(nodes_by_depth, reverse=True):
        for node in nodes_by_depth[depth]:
            if not node.is_input:
                arguments = node.arguments
                yield node.operation, arguments.args, arguments.kwargs, node.outputs
