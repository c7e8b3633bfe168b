"""Rebuilding a Functional model's graph with some of its calls replaced.

Knows Functional graphs, not attention: decoding and inspection say what to replace.
"""

import dataclasses
import inspect
import typing
import weakref

import keras

from keras_attn._keras_internals import is_functional, recorded_calls

__all__ = [
    "Call",
    "Graph",
    "Names",
    "arguments_on",
    "call_again",
    "check_functional",
    "dependents",
    "frontier",
    "input_structure",
    "leading_to",
    "least_attribute",
    "map_tensors",
    "read",
    "tensors_in",
    "unopened_calls",
    "unused_name",
]


@dataclasses.dataclass(frozen=True)
class Graph:
    """A Functional model's graph.

    Attributes:
        inputs, outputs: its `keras.KerasTensor`s, flat tuples.
        calls: a list of `Call`, in an order to replay them in.
    """

    inputs: tuple
    calls: list
    outputs: tuple


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
        if isinstance(model, keras.Model) and any(recorded_calls(model)):
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


def read(model):
    """The graph of a Functional model.

    Functional and Sequential models called in it are opened: their calls take the
    place of the call of the whole.

    Args:
        model: a built Functional (or Sequential) `keras.Model`.

    Returns:
        A `Graph`.
    """
    nested = any(is_functional(operation) for operation, *_ in recorded_calls(model))
    if nested:
        # Opened once: the calls stay on the layers for good.
        known = _OPENED.get(model)
        if known is None or known[0] != [*map(id, model.outputs)]:
            known = [*map(id, model.outputs)], _Reader().read(model)
            _OPENED[model] = known
        return known[1]
    return Graph(tuple(model.inputs), unopened_calls(model), tuple(model.outputs))


def unopened_calls(model):
    """The calls of a Functional model, a model called in it being one call."""
    return [
        Call(operation, tuple(args), dict(kwargs), tuple(outputs))
        for operation, args, kwargs, outputs in recorded_calls(model)
    ]


# model with models in it -> ids of its outputs, its graph
_OPENED = weakref.WeakKeyDictionary()


class _Reader:
    """Opens nested models by calling their layers on the tensors around them."""

    def __init__(self):
        self.calls = []
        self.names = Names()

    def read(self, model):
        outputs = self._replay(model, model.inputs)
        return Graph(tuple(model.inputs), self.calls, tuple(outputs))

    def _replay(self, model, inputs):
        values = dict(zip(map(id, model.inputs), inputs))
        for operation, args, kwargs, outputs in recorded_calls(model):
            args, kwargs = arguments_on(values, args, kwargs)
            if is_functional(operation):
                given = args[0] if args else kwargs["inputs"]
                new = self._replay(operation, _in_order_of(operation, given))
            else:
                new = keras.tree.flatten(self.names.call(operation, args, kwargs))
                self.calls.append(Call(operation, args, kwargs, tuple(new)))
            values.update(zip(map(id, outputs), new))
        return [values[id(tensor)] for tensor in model.outputs]


def _in_order_of(model, given):
    """What a nested model was called on, flat, in the order of its inputs."""
    if isinstance(given, dict) and not isinstance(model.input, dict):
        return [given[tensor.name] for tensor in model.inputs]
    if isinstance(given, dict):  # Keras lets a caller add what is not used.
        given = {name: given[name] for name in model.input}
    return keras.tree.flatten(given)


class Names:
    """Calls operations for a new graph in which no two may have one name.

    Layers that met nowhere before may: those of nested models, for one.
    """

    def __init__(self):
        self.owners = {}

    def claim(self, name, owner):
        """A name of `owner`'s own: `name` itself, or `name_1` and so on."""
        if self.owners.get(name) is not owner:
            name = unused_name(name, self.owners)
        self.owners[name] = owner
        return name

    def call(self, operation, args, kwargs):
        """The outputs of `operation(*args, **kwargs)`."""
        name = self.claim(operation.name, operation)
        if name != operation.name:
            call = Call(operation, args, kwargs, ())
            return Renamed(call, name=name)(call.inputs)
        return operation(*args, **kwargs)


class Renamed(keras.layers.Layer):
    """One call of an operation, under another name."""

    def __init__(self, call, **kwargs):
        super().__init__(**kwargs)
        self.operation = call.operation
        # In a lambda, or Keras would track what it finds in them.
        self._call = lambda: call
        self.supports_masking = True
        self.built = True

    def call(self, tensors):
        return call_again(self._call(), tensors)

    def compute_mask(self, tensors, masks):
        if not getattr(self.operation, "supports_masking", False):
            return None
        return self.operation.compute_mask(tensors[0], masks[0])


def arguments_on(values, args, kwargs):
    """A recorded call's arguments, with other tensors in the place of its own.

    Args:
        values: a dict from `id(tensor)` to what stands for it now.
        args, kwargs: what the call was recorded with.

    Returns:
        A pair `(args, kwargs)`.
    """
    # Keras records an implicit mask as an argument, and adds it anew.
    if id(kwargs.get("mask")) not in values:
        kwargs = {name: value for name, value in kwargs.items() if name != "mask"}
    return map_tensors(lambda tensor: values[id(tensor)], (tuple(args), kwargs))


def call_again(call, tensors):
    """What a `Call`'s operation gives for other tensors, as many as its `inputs`."""
    left = iter(tensors)
    args, kwargs = map_tensors(lambda _: next(left), (call.args, call.kwargs))
    return call.operation(*args, **kwargs)


def dependents(calls, tensors):
    """Ids of the tensors that depend on any of `tensors`, those included.

    Args:
        calls: those of a `Graph`.
        tensors: `keras.KerasTensor`s of the graph.

    Returns:
        A set of `id(tensor)`.
    """
    found = {id(tensor) for tensor in tensors}
    for call in calls:
        if any(id(tensor) in found for tensor in call.inputs):
            found.update(id(tensor) for tensor in call.outputs)
    return found


def leading_to(calls, tensors):
    """Ids of the tensors that any of `tensors` is computed from, those included.

    Args:
        calls: those of a `Graph`.
        tensors: `keras.KerasTensor`s of the graph.

    Returns:
        A set of `id(tensor)`.
    """
    found = {id(tensor) for tensor in tensors}
    for call in reversed(calls):
        if any(id(tensor) in found for tensor in call.outputs):
            found.update(id(tensor) for tensor in call.inputs)
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
        calls: those of a `Graph`.
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


def least_attribute(calls, name, unless=None):
    """The least int that a called operation has as its attribute `name`, or None.

    Calls that are given the argument `unless` do not count.
    """
    values = (
        getattr(call.operation, name, None)
        for call in calls
        if call.kwargs.get(unless) is None
    )
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
