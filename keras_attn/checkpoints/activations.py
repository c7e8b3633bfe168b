"""Activations by the names that configs of published models have for them."""

from keras_attn.layers._internal.activations import gelu_tanh, quick_gelu

__all__ = ["named"]

_NAMED = {
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


def named(name):
    """What a Keras layer takes for the activation that a config names.

    Raises:
        ValueError: for a name that is not known here.
    """
    if name not in _NAMED:
        raise ValueError(
            f"An activation in `config.json` must be one of {sorted(_NAMED)}. "
            f"Received: {name!r}"
        )
    return _NAMED[name]
