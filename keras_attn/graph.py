"""Rebuilding a Functional model's graph with some of its calls replaced.

Knows Functional graphs, not attention: decoding and inspection say what to replace.
"""

import dataclasses
import inspect
import typing

import keras

from keras_attn._keras_internals import recorded_calls

__all__ = [
    "Call",
    "calls",
    "check_functional",
    "dependents",
    "frontier",
    "input_structure",
    "least_attribute",
    "map_tensors",
    "tensors_in",
    "unused_name",
]


@dataclasses.dataclass(frozen=True, eq=False)
class Call:
    """One recorded call of a layer or op.

    Attributes:
        operation: the layer or op.
        args, kwargs: what it was called with, `keras.KerasTensor`s inside.
        outputs: its outputs, a flat tuple of `keras.KerasTensor`s.
    """

    operation: typing.Any
    args: tuple
    kwargs: dict
    outputs: tuple

    @property
    def inputs(self):
        """The `keras.KerasTensor`s among the arguments, flat."""
        return tensors_in((self.args, self.kwargs))

    def arguments(self):
        """All arguments by the names of the operation's `call`, None left out."""
        bound = inspect.signature(self.operation.call).bind(*self.args, **self.kwargs)
        return {
            name: value for name, value in bound.arguments.items() if value is not None
        }

    def accepts(self, argument):
        """Whether the operation's `call` has an argument of this name."""
        return argument in inspect.signature(self.operation.call).parameters


def check_functional(model):
    """Raise a ValueError where `model` has no graph that can be walked."""
    try:
        if isinstance(model, keras.Model) and calls(model):
            return
    except AttributeError:
        pass
    raise ValueError(
        "`model` must be a built Functional keras.Model, whose graph can be "
        f"walked. Received: model={model}"
    )


def input_structure(model):
    """The model's input tensors, nested as the model takes them without a warning."""
    if isinstance(model, keras.Sequential):
        return model.inputs[0]
    return model.input


def calls(model):
    """The calls that make up a Functional model, in an order to replay them in."""
    return [
        Call(operation, tuple(args), dict(kwargs), tuple(outputs))
        for operation, args, kwargs, outputs in recorded_calls(model)
    ]


def dependents(calls, tensors):
    """Ids of the tensors that depend on any of `tensors`, those included.

    Args:
        calls: what `calls` gave.
        tensors: `keras.KerasTensor`s of the graph.

    Returns:
        A set of `id(tensor)`.
    """
    found = {id(tensor) for tensor in tensors}
    for call in calls:
        if any(id(tensor) in found for tensor in call.inputs):
            found.update(id(tensor) for tensor in call.outputs)
    return found


def tensors_in(structure):
    """The `keras.KerasTensor`s in a nested structure, flat."""
    leaves = keras.tree.flatten(structure)
    return [leaf for leaf in leaves if isinstance(leaf, keras.KerasTensor)]


def map_tensors(function, structure):
    """`structure` with `function` applied to the `keras.KerasTensor`s in it."""
    return keras.tree.map_structure(
        lambda leaf: function(leaf) if isinstance(leaf, keras.KerasTensor) else leaf,
        structure,
    )


def frontier(calls, moving):
    """The tensors on which moving calls stand: they do not move themselves.

    Args:
        calls: what `calls` gave.
        moving: ids of the moving tensors, what `dependents` gave.

    Returns:
        A list of `keras.KerasTensor`s, each once.
    """
    found = {
        id(tensor): tensor
        for call in calls
        if any(id(output) in moving for output in call.outputs)
        for tensor in call.inputs
        if id(tensor) not in moving
    }
    return list(found.values())


def least_attribute(calls, name):
    """The least int that a called operation has as its attribute `name`, or None."""
    values = (getattr(call.operation, name, None) for call in calls)
    return min((value for value in values if isinstance(value, int)), default=None)


def unused_name(name, used):
    """`name`, or the first of `name_1`, `name_2`, ... that is not in `used`.

    A layer may be called several times, and each call needs a name of its own.
    """
    candidate, count = name, 0
    while candidate in used:
        count += 1
        candidate = f"{name}_{count}"
    return candidate
