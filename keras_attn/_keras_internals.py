"""The private parts of Keras that the library uses; no other module imports them.

They are: the implicit mask of a tensor, whether a model is Functional and its recorded
calls, variables whose initial value is supplied later, the nested layers of a layer and
its own weights, the kernel of a dense layer without its adapters, whether a model is
being saved or loaded, the variables that an optimizer's weight decay excludes, an
update of an optimizer and the steps around it, and the arguments of a running `fit`.
Values that Keras must not track are held by `Untracked`.
`tests/test_keras_internals.py` lists the Keras versions that they were checked with,
and fails if one of them changes.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import keras
from keras.src import backend
from keras.src.backend.common.global_state import (
    get_global_attribute,
    set_global_attribute,
)
from keras.src.models.functional import Functional

from keras_attn._types import Shape, Tensor

__all__ = [
    "Untracked",
    "deferred_initialization",
    "has_class_weight",
    "implicit_mask",
    "inner_layers",
    "is_decayed",
    "is_functional",
    "is_sharing_objects",
    "overridden_methods",
    "own_weights",
    "producing_call",
    "recorded_calls",
    "set_implicit_mask",
    "stored_kernel",
    "update_variables",
]

implicit_mask: Callable[[Any], Any] = backend.get_keras_mask
set_implicit_mask: Callable[[Any, Any], None] = backend.set_keras_mask

# The methods of a model in which a loss is called.
_METHODS_WITH_LOSS = ("fit", "evaluate", "train_on_batch", "test_on_batch")

# The steps of an optimizer around its update: a wrapper performs them itself.
_STEPS_AROUND_UPDATE = (
    "apply",
    "stateless_apply",
    "scale_loss",
    "finalize_variable_values",
    "_backend_apply_gradients",
    "_filter_empty_gradients",
    "_overwrite_variables_directly_with_gradients",
    "_clip_gradients",
    "_update_model_variables_moving_average",
    "_overwrite_model_variables_with_average_value",
)


class Untracked:
    """A container for a value that Keras does not track.

    If it is an attribute of a layer, layers and models inside `value` do not become
    inner layers of that layer. They may be templates, or belong to another layer.
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


@contextlib.contextmanager
def deferred_initialization() -> Iterator[
    Callable[[keras.Variable, Callable[[str, Any], Tensor]], None]
]:
    """Allocate variables that are created inside only at the end of the context.

    Yields:
        A function `set_value(variable, compute_value)`. `compute_value(path, dtype)`
        returns the initial value of the variable, a tensor. At the end of the
        context it is called for one variable after another, in the order of their
        creation. All other variables get the value of their initializer.
    """

    def set_value(
        variable: keras.Variable, compute_value: Callable[[str, Any], Tensor]
    ) -> None:
        def initializer(shape: Shape, dtype: Any = None) -> Tensor:
            return compute_value(variable.path, dtype)

        variable._initializer = initializer

    try:
        with keras.StatelessScope():
            yield set_value
    except BaseException:
        # The next scope would otherwise initialize the variables of the failed one.
        set_global_attribute("uninitialized_variables", [])
        raise


def inner_layers(
    layer: keras.layers.Layer,
) -> Iterator[tuple[str, keras.layers.Layer]]:
    """Iterate over all layers nested in a layer or model, at any depth.

    Yields:
        Tuples `(path, layer)`. The path joins the names of the layers that lead to
        the nested one, as in `"encoder_0/self_attention/query"`. A layer that is used
        in several places is yielded once for each of them. All paths are distinct.
    """
    names = set()
    for i, child in enumerate(layer._layers):
        name = f"{child.name}_{i}" if child.name in names else child.name
        names.add(name)
        yield name, child
        for path, inner in inner_layers(child):
            yield f"{name}/{path}", inner


def own_weights(layer: keras.layers.Layer) -> list[keras.Variable]:
    """Return the weights of a layer without those of its nested layers."""
    return [*layer._trainable_variables, *layer._non_trainable_variables]


def stored_kernel(dense: keras.layers.Layer) -> keras.Variable:
    """Return the kernel of a `Dense` or `EinsumDense` without its LoRA adapters."""
    return dense._kernel  # pyright: ignore[reportAttributeAccessIssue]


def is_decayed(optimizer: keras.optimizers.Optimizer, variable: keras.Variable) -> bool:
    """Return whether an optimizer applies weight decay to a variable."""
    return optimizer._use_weight_decay(variable)


def overridden_methods(optimizer: keras.optimizers.Optimizer) -> list[str]:
    """Return the names of the steps around the update that an optimizer overrides.

    They are those of `apply` except for weight decay and the update: unscaling,
    accumulation and clipping of gradients, and averages of variables.
    """
    return [
        name
        for name in _STEPS_AROUND_UPDATE
        if getattr(type(optimizer), name)
        is not getattr(keras.optimizers.Optimizer, name)
    ]


def update_variables(
    optimizer: keras.optimizers.Optimizer,
    gradients: list[Tensor],
    variables: list[keras.Variable],
) -> None:
    """Apply the weight decay of an optimizer, then its update.

    Gradients are taken as they are, and the number of iterations does not change.
    """
    decayed = [variable for variable in variables if is_decayed(optimizer, variable)]
    if decayed:  # PyTorch refuses an empty list.
        optimizer._apply_weight_decay(decayed)
    optimizer._backend_update_step(gradients, variables, optimizer.learning_rate)


def has_class_weight() -> bool:
    """Return whether the caller runs in a `fit` or similar with a `class_weight`.

    Keras turns `class_weight` into weights of batch elements before a loss is called,
    so that the call stack is the only trace of it.
    """
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name in _METHODS_WITH_LOSS:
            values = frame.f_locals
            if isinstance(values.get("self"), keras.Model):
                return values.get("class_weight") is not None
        frame = frame.f_back
    return False


def is_functional(operation: Any) -> bool:
    """Return whether `operation` is a built Functional or Sequential model.

    A subclass that overrides `call` is not, since it does more than replay its graph.
    """
    call = getattr(type(operation), "call", None)
    return call in (Functional.call, keras.Sequential.call) and operation.built


def is_sharing_objects() -> bool:
    """Return whether a model is being saved or loaded, with shared objects marked."""
    return get_global_attribute("shared_objects/id_to_config_map") is not None


def producing_call(
    tensor: keras.KerasTensor,
) -> tuple[Any, tuple[Any, ...], dict[str, Any], list[keras.KerasTensor]]:
    """Return the call that a tensor is an output of, as `recorded_calls` yields it."""
    history: Any = tensor._keras_history  # pyright: ignore[reportAttributeAccessIssue]
    node = history.operation._inbound_nodes[history.node_index]
    arguments = node.arguments
    return node.operation, arguments.args, arguments.kwargs, node.outputs


def recorded_calls(
    model: keras.Model,
) -> Iterator[tuple[Any, tuple[Any, ...], dict[str, Any], list[keras.KerasTensor]]]:
    """Iterate over the calls of a Functional model, in an order to replay them in.

    Args:
        model: A built Functional (or Sequential) `keras.Model`.

    Yields:
        Tuples `(operation, args, kwargs, outputs)`: the layer or op, the arguments of
        the call (with `keras.KerasTensor`s in them), and its outputs as a flat list.
        The inputs of the model are not among the calls.

    Raises:
        AttributeError: If the model is neither Functional nor a built Sequential.
    """
    functional: Any = getattr(model, "_functional", model)
    nodes_by_depth = functional._nodes_by_depth
    for depth in sorted(nodes_by_depth, reverse=True):
        for node in nodes_by_depth[depth]:
            if not node.is_input:
                arguments = node.arguments
                yield node.operation, arguments.args, arguments.kwargs, node.outputs
