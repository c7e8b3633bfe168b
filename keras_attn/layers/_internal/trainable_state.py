"""Trainable flags and LoRA adapters of inner layers in a layer's build config.

A `.keras` file stores for the layers of a model, but not for the layers inside them,
whether they are frozen or have adapters. The layers of keras_attn add it to their build
config: after loading, the same weights are trainable, and the optimizer's variables
fit them.
"""

from collections.abc import Iterator
from typing import Any

import keras

from keras_attn._keras_internals import inner_layers, own_weights

__all__ = ["add_trainable_state", "restore_trainable_state"]

_ADAPTERS, _FROZEN = "adapters", "frozen"


def add_trainable_state(
    layer: keras.layers.Layer, config: dict[str, Any] | None
) -> dict[str, Any] | None:
    """Return a build config with the state of the inner layers.

    Args:
        layer: the layer.
        config: its own build config, or None if it is not built.
    """
    if config is None:
        return None
    adapters = {
        path: [inner.lora_rank, inner.lora_alpha]
        for path, inner in inner_layers(layer)
        if getattr(inner, "lora_enabled", False)
    }
    frozen = [path for path, weight in _weights(layer) if not weight.trainable]
    state = {_ADAPTERS: adapters, _FROZEN: frozen}
    return {**config, **{name: value for name, value in state.items() if value}}


def restore_trainable_state(layer: keras.layers.Layer, config: dict[str, Any]) -> None:
    """Apply the state that `add_trainable_state` has saved to a layer that is built."""
    inner = dict(inner_layers(layer))
    for path, (rank, alpha) in config.get(_ADAPTERS, {}).items():
        inner[path].enable_lora(rank, lora_alpha=alpha)
    frozen = set(config.get(_FROZEN, ()))
    for path, weight in _weights(layer):
        if path in frozen:
            weight.trainable = False


def _weights(layer: keras.layers.Layer) -> Iterator[tuple[str, Any]]:
    """Yield the path and the weight, of the layer and of its inner layers."""
    for path, inner in [("", layer), *inner_layers(layer)]:
        for weight in own_weights(inner):
            yield f"{path}/{weight.name}", weight
