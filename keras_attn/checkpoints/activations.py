"""Activations by their names in the configs of published models."""

from collections.abc import Callable

from keras_attn._types import Tensor
from keras_attn.layers._internal.activations import gelu_tanh, quick_gelu

__all__ = ["get_activation"]

_ACTIVATIONS: dict[str, str | Callable[[Tensor], Tensor]] = {
    "gelu": "gelu",
    "gelu_new": gelu_tanh,
    "gelu_pytorch_tanh": gelu_tanh,
    "gelu_fast": gelu_tanh,
    "quick_gelu": quick_gelu,
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}


def get_activation(name: str) -> str | Callable[[Tensor], Tensor]:
    """Return the `activation` argument of a Keras layer for a name in a config.

    Raises:
        ValueError: for an unsupported name.
    """
    if name not in _ACTIVATIONS:
        raise ValueError(
            "The activation in `config.json` must be one of "
            f"{sorted(_ACTIVATIONS)}. Received: activation={name!r}"
        )
    return _ACTIVATIONS[name]
