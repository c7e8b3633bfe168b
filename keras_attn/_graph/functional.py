"""Rebuilding the graph of a Functional model with some of its calls replaced.

This module handles graphs of any model and does not depend on attention: decoding
and inspection decide which calls to replace.
"""

import dataclasses
import inspect
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import keras

from keras_attn._keras_internals import (
    Untracked,
    implicit_mask,
    is_functional,
    producing_call,
    recorded_calls,
)
from keras_attn._types import Tensor

__all__ = [
    "Call",
    "Graph",
    "UniqueNames",
    "ancestors",
    "boundary_tensors",
    "check_functional",
    "descendants",
    "input_structure",
    "map_tensors",
    "min_attribute",
    "read_graph",
    "replay_call",
    "substitute_tensors",
    "tensors_in",
    "top_level_calls",
    "unused_name",
]


@dataclasses.dataclass(frozen=True, eq=False)
class Call:
    """One recorded call of a layer or op.

    Attributes:
        operation: The layer or op.
        args, kwargs: The arguments of the call, with `keras.KerasTensor`s in them.
        outputs: The outputs of the call, a flat tuple of `keras.KerasTensor`s.
    """

    operation: keras.Operation
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: tuple[keras.KerasTensor, ...]

    @property
    def inputs(self) -> list[keras.KerasTensor]:
        """The `keras.KerasTensor`s among the arguments, as a flat list."""
        return tensors_in((self.args, self.kwargs))

    def arguments(self) -> dict[str, Any]:
        """Return all arguments that are not None, by their parameter names."""
        bound = inspect.signature(self.operation.call).bind(*self.args, **self.kwargs)
        return {
            name: value for name, value in bound.arguments.items() if value is not None
        }

    def accepts(self, argument: str) -> bool:
        """Return whether the operation's `call` has a parameter of this name."""
        return argument in inspect.signature(self.operation.call).parameters


@dataclasses.dataclass(frozen=True)
class Graph:
    """The graph of a Functional model.

    Attributes:
        inputs, outputs: The model's `keras.KerasTensor`s, flat tuples.
        calls: A list of `Call`, in an order in which they can be replayed.
    """

    inputs: tuple[keras.KerasTensor, ...]
    calls: list[Call]
    outputs: tuple[keras.KerasTensor, ...]


def check_functional(model: Any) -> None:
    """Raise a ValueError if `model` is not a built Functional model."""
    try:
        if isinstance(model, keras.Model) and any(recorded_calls(model)):
            return
    except AttributeError:
        pass
    raise ValueError(
        "`model` must be a built Functional keras.Model, whose graph can be "
        f"traversed. Received: model={model}"
    )


def input_structure(model: keras.Model) -> Any:
    """Return the model's inputs, nested in the structure that its `call` expects."""
    if isinstance(model, keras.Sequential):
        return model.inputs[0]
    return model.input


def read_graph(model: keras.Model) -> Graph:
    """Return the graph of a Functional model, with nested models flattened.

    The call of a nested Functional or Sequential model is replaced by the calls that
    the nested model consists of.

    Args:
        model: A built Functional (or Sequential) `keras.Model`.

    Returns:
        A `Graph`.
    """
    nested = any(is_functional(operation) for operation, *_ in recorded_calls(model))
    if nested:
        # Flattened once per model: Keras records the new calls on the layers
        # permanently.
        output_ids = [*map(id, model.outputs)]
        cached = _FLATTENED.get(model)
        if cached is None or cached[0] != output_ids:
            cached = output_ids, _Flattener().flatten(model)
            _FLATTENED[model] = cached
        return cached[1]
    return Graph(tuple(model.inputs), top_level_calls(model), tuple(model.outputs))


def top_level_calls(model: keras.Model) -> list[Call]:
    """Return the calls of a Functional model, a nested model being a single call."""
    return [
        Call(operation, tuple(args), dict(kwargs), tuple(outputs))
        for operation, args, kwargs, outputs in recorded_calls(model)
    ]


# From a model that has nested models to the ids of its outputs and its flat graph.
_FLATTENED: weakref.WeakKeyDictionary[keras.Model, tuple[list[int], Graph]] = (
    weakref.WeakKeyDictionary()
)


class _Flattener:
    """Flattens nested models: calls their layers on the tensors of the outer model."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.names = UniqueNames()
        self._known: set[int] = set()  # The ids of the inputs and of all outputs.

    def flatten(self, model: keras.Model) -> Graph:
        self._known.update(map(id, model.inputs))
        outputs = self._replay(model, model.inputs)
        return Graph(tuple(model.inputs), self.calls, tuple(outputs))

    def _replay(
        self, model: keras.Model, inputs: Sequence[keras.KerasTensor]
    ) -> list[keras.KerasTensor]:
        values = dict(zip(map(id, model.inputs), inputs))
        for operation, args, kwargs, outputs in recorded_calls(model):
            args, kwargs = substitute_tensors(values, args, kwargs)
            if is_functional(operation):
                nested_inputs = args[0] if args else kwargs["inputs"]
                results = self._replay(
                    operation, _flat_inputs(operation, nested_inputs)
                )
            else:
                results = keras.tree.flatten(self.names.call(operation, args, kwargs))
                kwargs = _with_implicit_masks(operation, args, kwargs)
                self._add(Call(operation, args, kwargs, tuple(results)))
            values.update(zip(map(id, outputs), results))
        return [values[id(tensor)] for tensor in model.outputs]

    def _add(self, call: Call) -> None:
        """Append a call, after the operations that compute its implicit masks."""
        for tensor in call.inputs:
            if id(tensor) not in self._known:
                operation, args, kwargs, outputs = producing_call(tensor)
                self._add(Call(operation, tuple(args), dict(kwargs), tuple(outputs)))
        self.calls.append(call)
        self._known.update(map(id, call.outputs))


def _with_implicit_masks(
    operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Return keyword arguments with the implicit masks that Keras passes to a layer.

    Keras records them in the calls of a model, but behind a nested model they exist
    only when the model runs.
    """
    if not isinstance(operation, keras.layers.Layer):
        return kwargs
    call = Call(operation, args, kwargs, ())
    arguments = call.arguments()
    tensors = {name: x for name, x in arguments.items() if tensors_in(x)}
    names = {name: f"{name}_mask" for name in tensors}
    if len(tensors) == 1:
        names = dict.fromkeys(tensors, "mask")
    masks = {
        names[name]: keras.tree.map_structure(implicit_mask, value)
        for name, value in tensors.items()
        if call.accepts(names[name]) and names[name] not in arguments
    }
    return {**kwargs, **{n: mask for n, mask in masks.items() if tensors_in(mask)}}


def _flat_inputs(model: keras.Model, inputs: Any) -> list[keras.KerasTensor]:
    """Return the inputs of a nested model's call as a list, in the model's order."""
    if isinstance(inputs, dict) and not isinstance(model.input, dict):
        return [inputs[tensor.name] for tensor in model.inputs]
    if isinstance(inputs, dict):  # Keras accepts a dict with unused entries.
        inputs = {name: inputs[name] for name in model.input}
    return keras.tree.flatten(inputs)


class UniqueNames:
    """Calls operations for a new graph, in which no two may have the same name.

    Layers of different models may share a name, so flattening nested models can
    bring two of them into one graph.
    """

    def __init__(self) -> None:
        self.owners: dict[str, Any] = {}

    def claim(self, name: str, owner: Any) -> str:
        """Reserve a name for `owner`: `name` itself, or `name_1` and so on."""
        if self.owners.get(name) is not owner:
            name = unused_name(name, self.owners)
        self.owners[name] = owner
        return name

    def call(
        self,
        operation: keras.Operation,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Return `operation(*args, **kwargs)`, called under an unused name."""
        name = self.claim(operation.name, operation)
        if name != operation.name:
            call = Call(operation, args, kwargs, ())
            return RenamedCall(call, name=name)(call.inputs)
        return operation(*args, **kwargs)


class RenamedCall(keras.layers.Layer):
    """One call of an operation, as a layer with a different name."""

    def __init__(self, call: Call, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.operation: Any = call.operation
        # The arguments may hold layers, which are not inner layers of this one.
        self._call = Untracked(call)
        self.supports_masking = True
        self.built = True

    def call(self, inputs: list[Tensor]) -> Any:
        return replay_call(self._call.value, inputs)

    def compute_mask(self, inputs: list[Tensor], previous_mask: list[Any]) -> Any:
        if not getattr(self.operation, "supports_masking", False):
            return None
        return self.operation.compute_mask(inputs[0], previous_mask[0])


def substitute_tensors(
    values: Mapping[int, Any], args: Iterable[Any], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return a recorded call's arguments with their tensors replaced.

    Args:
        values: A dict from `id(tensor)` to the replacement of the tensor.
        args, kwargs: The arguments that were recorded.

    Returns:
        A tuple `(args, kwargs)`.
    """
    # Keras records an implicit mask as an argument, and adds it to the new call itself.
    if id(kwargs.get("mask")) not in values:
        kwargs = {name: value for name, value in kwargs.items() if name != "mask"}
    return map_tensors(lambda tensor: values[id(tensor)], (tuple(args), kwargs))


def replay_call(call: Call, tensors: Iterable[Tensor]) -> Any:
    """Call the operation of a `Call` on other tensors.

    Args:
        call: A `Call`.
        tensors: One tensor for each of `call.inputs`, in the same order.

    Returns:
        The outputs of the operation.
    """
    remaining = iter(tensors)
    args, kwargs = map_tensors(lambda _: next(remaining), (call.args, call.kwargs))
    return call.operation(*args, **kwargs)


def descendants(
    calls: Iterable[Call], tensors: Iterable[keras.KerasTensor]
) -> set[int]:
    """Return the ids of the tensors that depend on any of `tensors`.

    Args:
        calls: The calls of a `Graph`.
        tensors: `keras.KerasTensor`s of the graph.

    Returns:
        A set of `id(tensor)`, those of `tensors` included.
    """
    ids = {id(tensor) for tensor in tensors}
    for call in calls:
        if any(id(tensor) in ids for tensor in call.inputs):
            ids.update(id(tensor) for tensor in call.outputs)
    return ids


def ancestors(calls: Sequence[Call], tensors: Iterable[keras.KerasTensor]) -> set[int]:
    """Return the ids of the tensors from which any of `tensors` is computed.

    Args:
        calls: The calls of a `Graph`.
        tensors: `keras.KerasTensor`s of the graph.

    Returns:
        A set of `id(tensor)`, those of `tensors` included.
    """
    ids = {id(tensor) for tensor in tensors}
    for call in reversed(calls):
        if any(id(tensor) in ids for tensor in call.outputs):
            ids.update(id(tensor) for tensor in call.inputs)
    return ids


def tensors_in(structure: Any) -> list[keras.KerasTensor]:
    """Return the `keras.KerasTensor`s of a nested structure as a flat list."""
    leaves = keras.tree.flatten(structure)
    return [leaf for leaf in leaves if isinstance(leaf, keras.KerasTensor)]


def map_tensors(function: Callable[[keras.KerasTensor], Any], structure: Any) -> Any:
    """Apply `function` to the `keras.KerasTensor`s of a nested structure."""
    return keras.tree.map_structure(
        lambda leaf: function(leaf) if isinstance(leaf, keras.KerasTensor) else leaf,
        structure,
    )


def boundary_tensors(
    calls: Iterable[Call], dependent: Collection[int]
) -> list[keras.KerasTensor]:
    """Return the independent tensors that are inputs of dependent calls.

    Args:
        calls: The calls of a `Graph`.
        dependent: The ids of the dependent tensors, from `descendants`. A call is
            dependent if one of its outputs is.

    Returns:
        A list of distinct `keras.KerasTensor`s that are not dependent.
    """
    boundary = {
        id(tensor): tensor
        for call in calls
        if any(id(output) in dependent for output in call.outputs)
        for tensor in call.inputs
        if id(tensor) not in dependent
    }
    return list(boundary.values())


def min_attribute(
    calls: Iterable[Call], name: str, unless: str | None = None
) -> int | None:
    """Return the smallest int attribute `name` of the called operations.

    Args:
        calls: The calls of a `Graph`.
        name: The name of the attribute.
        unless: The name of an argument. Calls that set it do not count.

    Returns:
        An int, or None if no operation has such an attribute.
    """
    values = (
        getattr(call.operation, name, None)
        for call in calls
        if unless is None or unless not in call.arguments()
    )
    return min((value for value in values if isinstance(value, int)), default=None)


def unused_name(name: str, used: Collection[str]) -> str:
    """Return `name`, or the first of `name_1`, `name_2`, ... that is not in `used`.

    A layer may be called several times, and each call needs a name of its own.
    """
    candidate, count = name, 0
    while candidate in used:
        count += 1
        candidate = f"{name}_{count}"
    return candidate
