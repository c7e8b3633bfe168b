"""Layers made of layers that come out of a file with what trains in them."""

from keras_attn._keras_internals import inner_layers, own_weights

__all__ = ["KeepsTraining"]

_ADAPTERS, _FROZEN = "adapters", "frozen"


class KeepsTraining:
    """Mixin for layers that make layers in `build`.

    Keras's files say of the layers of a model, but not of those in them, whether they
    are frozen or have adapters. Here the config to build the layer from says so, and
    the optimizer is then made for the weights it was made for before.
    """

    def get_build_config(self):
        config = super().get_build_config()
        if config is None:
            return None
        inner = dict(inner_layers(self))
        adapters = {
            path: [layer.lora_rank, layer.lora_alpha]
            for path, layer in inner.items()
            if getattr(layer, "lora_enabled", False)
        }
        frozen = [path for path, weight in _weights(self) if not weight.trainable]
        extra = {_ADAPTERS: adapters, _FROZEN: frozen}
        return {**config, **{name: value for name, value in extra.items() if value}}

    def build_from_config(self, config):
        super().build_from_config(config)
        inner = dict(inner_layers(self))
        for path, (rank, alpha) in config.get(_ADAPTERS, {}).items():
            inner[path].enable_lora(rank, lora_alpha=alpha)
        frozen = set(config.get(_FROZEN, ()))
        for path, weight in _weights(self):
            if path in frozen:
                weight.trainable = False


def _weights(layer):
    """Pairs of a path and a weight, of the layer and of those in it."""
    for path, inner in [("", layer), *inner_layers(layer)]:
        for weight in own_weights(inner):
            yield f"{path}/{weight.name}", weight
