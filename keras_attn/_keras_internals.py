"""What Keras has no public name for, touched here and nowhere else.

Three things: the implicit mask that Keras hangs on a tensor, the recorded calls of a
Functional model, and variables whose first value is given later.
`tests/test_keras_internals.py` says which Keras versions these hold for and fails when
one of them moves.
"""

import contextlib

import keras
from keras.src.backend import get_keras_mask as implicit_mask
from keras.src.backend import set_keras_mask as set_implicit_mask
from keras.src.backend.common.global_state import set_global_attribute
from keras.src.models.functional import Functional

__all__ = [
    "implicit_mask",
    "initial_values",
    "is_functional",
    "recorded_calls",
    "set_implicit_mask",
]


@contextlib.contextmanager
def initial_values():
    """Variables made inside have no memory until the end, when each gets its value.

    Yields:
        A function of a variable and of what makes its value: a function of the
        variable's path, called at the end, one variable after the other in the order
        they were made in. Other variables get the value of their initializer.
    """

    def give(variable, value_of):
        def initializer(shape, dtype=None):
            return keras.ops.convert_to_tensor(value_of(variable.path), dtype=dtype)

        variable._initializer = initializer

    try:
        with keras.StatelessScope():
            yield give
    except BaseException:
        # Else the next scope would make the variables of what has failed.
        set_global_attribute("uninitialized_variables", [])
        raise


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
