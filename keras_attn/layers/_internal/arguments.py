"""Constructor arguments that several layers share: checking and copying them."""

import numbers

import keras
import numpy as np

__all__ = [
    "boolean",
    "clone_initializer",
    "copy_of",
    "deserialize",
    "is_int",
    "number",
    "part",
    "positive_int",
    "rate",
    "serialize",
]


def copy_of(layer, name):
    """A new layer like one that is a pattern, by another name."""
    return type(layer).from_config({**layer.get_config(), "name": name})


def is_int(value):
    """Whether it is an int of Python or NumPy, and no bool."""
    return hasattr(value, "__index__") and not isinstance(value, bool)


def boolean(name, value):
    """`value` as a bool; a clear error where it is none."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"`{name}` must be a bool. Received: {name}={value!r}")
    return bool(value)


def positive_int(name, value, optional=False):
    """`value` as an int; a clear error where it is not a positive one."""
    if value is None and optional:
        return None
    if not is_int(value) or value <= 0:
        raise ValueError(
            f"`{name}` must be a positive int{' or None' if optional else ''}. "
            f"Received: {name}={value!r}"
        )
    return int(value)


def number(name, value, least=-np.inf, most=np.inf, what="a number"):
    """`value`; a clear error where it is not a number above `least`, up to `most`."""
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not is_number or not least < value <= most or not np.isfinite(value):
        raise ValueError(f"`{name}` must be {what}. Received: {name}={value!r}")
    return value


def rate(name, value):
    """`value` as a dropout rate; a clear error outside [0, 1)."""
    if not isinstance(value, numbers.Real) or not 0.0 <= value < 1.0:
        raise ValueError(
            f"`{name}` must be a number in [0, 1). Received: {name}={value!r}"
        )
    return float(value) if isinstance(value, np.floating) else value


def clone_initializer(initializer):
    """A copy, with another seed unless the user fixed one: weights start apart."""
    if isinstance(initializer, keras.initializers.Initializer):
        return initializer.clone()
    return initializer


def serialize(value):
    """A nested layer's config; a name or None stays as it is."""
    if isinstance(value, keras.layers.Layer):
        return keras.saving.serialize_keras_object(value)
    return value


def deserialize(value):
    """A nested layer from what `serialize` gave; all else stays as it is.

    It is not built: the layer around it does that, whose name the paths of its weights
    then begin with, as before it was saved.
    """
    if isinstance(value, dict):
        value = {key: x for key, x in value.items() if key != "build_config"}
        return keras.saving.deserialize_keras_object(value)
    return value


def part(name, value):
    """A layer to stand in a block, out of its config as well; None stays None."""
    value = deserialize(value)
    if value is not None and not isinstance(value, keras.layers.Layer):
        raise ValueError(
            f"`{name}` must be a keras.layers.Layer or None. Received: {name}={value!r}"
        )
    return value
