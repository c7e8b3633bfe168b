"""Quantization, adapters and trainable flags of inner layers in a build config.

A `.keras` file stores for the layers of a model, but not for the layers inside them,
whether they are quantized, frozen or have adapters. The layers of keras_attn add it to
their build config: a loaded model has the same variables, the same of them are
trainable, and the optimizer's variables fit them.
"""

from collections.abc import Iterator
from typing import Any

import keras

from keras_attn._keras_internals import inner_layers, own_weights

__all__ = ["add_trainable_state", "restore_trainable_state"]

_QUANTIZED, _ADAPTERS, _FROZEN = "quantized", "adapters", "frozen"


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
    quantized = {
        path: {
            "mode": inner.quantization_mode,
            "config": keras.saving.serialize_keras_object(
                getattr(inner, "quantization_config", None)
            ),
        }
        for path, inner in inner_layers(layer)
        if inner.quantization_mode is not None
    }
    adapters = {
        path: [inner.lora_rank, inner.lora_alpha]
        for path, inner in inner_layers(layer)
        if getattr(inner, "lora_enabled", False)
    }
    frozen = [path for path, weight in _weights(layer) if not weight.trainable]
    state = {_QUANTIZED: quantized, _ADAPTERS: adapters, _FROZEN: frozen}
    return {**config, **{name: value for name, value in state.items() if value}}


def restore_trainable_state(layer: keras.layers.Layer, config: dict[str, Any]) -> None:
    """Apply the state that `add_trainable_state` has saved to a layer that is built."""
    inner = dict(inner_layers(layer))
    for path, saved in config.get(_QUANTIZED, {}).items():
        # A layer with a quantized dtype policy of its own has been built with it, and a
        # layer that two layers share may have been restored with the other one.
        if inner[path].quantization_mode is None:
            # The quantized weights of the file replace those of the initial ones.
            inner[path].quantize(
                saved["mode"],
                config=keras.saving.deserialize_keras_object(saved["config"]),
            )
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
