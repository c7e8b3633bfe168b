"""What Keras has no public name for, touched here and nowhere else.

Five things: the implicit mask that Keras hangs on a tensor, the recorded calls of a
Functional model, variables whose first value is given later, the layers that a layer is
made of, with their own weights, and what an optimizer's weight decay leaves out.
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
    "inner_layers",
    "is_decayed",
    "is_functional",
    "own_weights",
    "recorded_calls",
    "set_implicit_mask",
    "stored_kernel",
]


@contextlib.contextmanager
def initial_values():
    """Variables made inside have no memory until the end, when each gets its value.

    Yields:
        A function of a variable and of what makes its value, a tensor: a function of
        the variable's path and dtype, called at the end, one variable after the other
        in the order they were made in. Others get the value of their initializer.
    """

    def give(variable, value_of):
        def initializer(shape, dtype=None):
            return value_of(variable.path, dtype)

        variable._initializer = initializer

    try:
        with keras.StatelessScope():
            yield give
    except BaseException:
        # Else the next scope would make the variables of what has failed.
        set_global_attribute("uninitialized_variables", [])
        raise


def inner_layers(layer):
    """The layers in a layer or model, and those in them, wherever they lie.

    Yields:
        Pairs of the names on the way to one, as `"encoder_0/self_attention/query"`, and
        the layer. One that is used in several places comes once for each; no two pairs
        have one path.
    """
    names = set()
    for i, child in enumerate(layer._layers):
        name = f"{child.name}_{i}" if child.name in names else child.name
        names.add(name)
        yield name, child
        for path, inner in inner_layers(child):
            yield f"{name}/{path}", inner


def own_weights(layer):
    """The weights of a layer that are not those of layers in it."""
    return [*layer._trainable_variables, *layer._non_trainable_variables]


def stored_kernel(dense):
    """The kernel of a `Dense` or `EinsumDense` without its adapters."""
    return dense._kernel


def is_decayed(optimizer, variable):
    """Whether an optimizer's weight decay is meant for a variable."""
    return optimizer._use_weight_decay(variable)


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
