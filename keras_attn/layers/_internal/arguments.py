"""Checks, copies and serialization of constructor arguments."""

import numbers
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import constraints, initializers, regularizers

from keras_attn._types import InitializerLike

__all__ = [
    "boolean",
    "clone_initializer",
    "copy_layer",
    "deserialize",
    "is_int",
    "number",
    "optional_layer",
    "positive_int",
    "rate",
    "refuse_ragged",
    "refuse_unsupported",
    "serialize",
    "serialize_weight_options",
    "set_weight_options",
    "weight_options",
]


def is_int(value: Any) -> bool:
    """Return whether `value` is a Python or NumPy int, and not a bool."""
    return hasattr(value, "__index__") and not isinstance(value, bool)


def boolean(name: str, value: Any) -> bool:
    """Return `value` as a bool; raise a ValueError if it is not one."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"`{name}` must be a bool. Received: {name}={value!r}")
    return bool(value)


def gain(name: str, value: Any) -> float:
    """Return a factor of initial weights; raise a ValueError if it is not positive."""
    return float(number(name, value, 0, expected="a positive number"))


def positive_int(name: str, value: Any, optional: bool = False) -> Any:
    """Return `value` as an int; raise a ValueError if it is not a positive int.

    Args:
        name: name of the argument, for the message.
        value: the value to check.
        optional: whether None is accepted, and returned.
    """
    if value is None and optional:
        return None
    if value is None or not is_int(value) or value <= 0:
        raise ValueError(
            f"`{name}` must be a positive int{' or None' if optional else ''}. "
            f"Received: {name}={value!r}"
        )
    return int(value)


def number(
    name: str,
    value: Any,
    above: float = -np.inf,
    most: float = np.inf,
    expected: str = "a number",
) -> Any:
    """Return `value`; raise a ValueError if it is not a finite number in a range.

    Args:
        name: name of the argument, for the message.
        value: the value to check.
        above: the number must be larger than this.
        most: the number must not be larger than this.
        expected: description of the accepted values, for the message.
    """
    if (
        not _is_real(value)
        or isinstance(value, bool)
        or not above < value <= most
        or not np.isfinite(value)
    ):
        raise ValueError(f"`{name}` must be {expected}. Received: {name}={value!r}")
    return value


def rate(name: str, value: Any) -> float:
    """Return `value` as a dropout rate; raise a ValueError if it is not in [0, 1)."""
    if not _is_real(value) or not 0.0 <= value < 1.0:
        raise ValueError(
            f"`{name}` must be a number in [0, 1). Received: {name}={value!r}"
        )
    return float(value) if isinstance(value, np.floating) else value


def _is_real(value: Any) -> bool:
    # A separate function: Pyright rejects `<` for a value that `isinstance` has
    # narrowed to `numbers.Real`.
    return isinstance(value, numbers.Real)


def refuse_ragged(name: str, tensor: Any) -> None:
    """Raise a ValueError if `tensor` is a ragged tensor of TensorFlow.

    Args:
        name: description of the tensor, the beginning of the message.
        tensor: the tensor.
    """
    if hasattr(tensor, "nested_row_splits"):
        raise ValueError(
            f"{name} must be a dense tensor; `ids.to_tensor()` pads a ragged one with "
            f"zeros. Received: a ragged tensor of shape {tensor.shape}"
        )


def refuse_unsupported(
    layer_class: type, arguments: Mapping[str, Any], alternatives: Mapping[str, str]
) -> None:
    """Raise a ValueError for a Keras argument that a layer does not have.

    Args:
        layer_class: the class of the layer, for the message.
        arguments: keyword arguments of its constructor.
        alternatives: the replacement of each argument that is refused.
    """
    for name in sorted(set(arguments) & set(alternatives)):
        raise ValueError(
            f"`{layer_class.__name__}` has no argument `{name}`: {alternatives[name]}. "
            f"Received: {name}={arguments[name]!r}"
        )


def copy_layer(layer: keras.layers.Layer, name: str) -> keras.layers.Layer:
    """Return a new layer with the configuration of `layer` and another name."""
    return type(layer).from_config({**layer.get_config(), "name": name})


def clone_initializer(initializer: InitializerLike) -> InitializerLike:
    """Return a copy whose seed differs unless the user has set one.

    Two weights made by one initializer object would start equal.
    """
    if isinstance(initializer, keras.initializers.Initializer):
        return initializer.clone()
    return initializer


def set_weight_options(
    layer: Any,
    kernel_initializer: InitializerLike,
    bias_initializer: InitializerLike,
    kernel_regularizer: Any = None,
    bias_regularizer: Any = None,
    kernel_constraint: Any = None,
    bias_constraint: Any = None,
) -> None:
    """Set the initializers, regularizers and constraints as attributes of `layer`."""
    layer.kernel_initializer = initializers.get(kernel_initializer)
    layer.bias_initializer = initializers.get(bias_initializer)
    layer.kernel_regularizer = regularizers.get(kernel_regularizer)
    layer.bias_regularizer = regularizers.get(bias_regularizer)
    layer.kernel_constraint = constraints.get(kernel_constraint)
    layer.bias_constraint = constraints.get(bias_constraint)


def weight_options(layer: Any) -> dict[str, Any]:
    """Return the arguments of a dense layer inside `layer`; initializers are cloned."""
    return {
        "kernel_initializer": clone_initializer(layer.kernel_initializer),
        "bias_initializer": clone_initializer(layer.bias_initializer),
        "kernel_regularizer": layer.kernel_regularizer,
        "bias_regularizer": layer.bias_regularizer,
        "kernel_constraint": layer.kernel_constraint,
        "bias_constraint": layer.bias_constraint,
        "dtype": layer.dtype_policy,
    }


def serialize_weight_options(layer: Any) -> dict[str, Any]:
    """Return the config entries of the attributes that `set_weight_options` sets."""
    return {
        "kernel_initializer": initializers.serialize(layer.kernel_initializer),
        "bias_initializer": initializers.serialize(layer.bias_initializer),
        "kernel_regularizer": regularizers.serialize(layer.kernel_regularizer),
        "bias_regularizer": regularizers.serialize(layer.bias_regularizer),
        "kernel_constraint": constraints.serialize(layer.kernel_constraint),
        "bias_constraint": constraints.serialize(layer.bias_constraint),
    }


def serialize(value: Any) -> Any:
    """Return the config of a nested layer; a name or None is returned unchanged."""
    if isinstance(value, keras.layers.Layer):
        return keras.saving.serialize_keras_object(value)
    return value


def deserialize(value: Any) -> Any:
    """Return the nested layer of a config; anything else is returned unchanged.

    The layer is not built: the outer layer builds it, so that the paths of its weights
    begin with the outer layer's name, as they did before saving.
    """
    if isinstance(value, dict):
        value = {key: entry for key, entry in value.items() if key != "build_config"}
        return keras.saving.deserialize_keras_object(value)
    return value


def optional_layer(name: str, value: Any) -> Any:
    """Return the layer given as an argument, or deserialized from a config, or None."""
    value = deserialize(value)
    if value is not None and not isinstance(value, keras.layers.Layer):
        raise ValueError(
            f"`{name}` must be a keras.layers.Layer or None. Received: {name}={value!r}"
        )
    return value
