"""The multi-head attention layers of a model, by the names of their maps."""

from keras_attn._graph import functional
from keras_attn._graph.attention_probe import probe
from keras_attn.layers.attention.multi_head_base import MultiHeadBase
from keras_attn.layers.recurrent.decoder import RecurrentDecoder
from keras_attn.layers.transformer.block import TransformerBlock

__all__ = ["attention_parts", "multi_head_layers"]


def multi_head_layers(model):
    """The multi-head attention layers of a Functional model.

    Args:
        model: a Functional model.

    Returns:
        A dict from name, as `attention_maps` gives it, to layer, in the order of the
        graph. A layer that is called several times has several names.

    Raises:
        ValueError: if `model` is not Functional, or has no such layer in it.
    """
    functional.check_functional(model)
    found = {}
    for name, call in probe(model).calls.items():
        is_cross = name.endswith("/cross_attention")
        argument = "cross_attention" if is_cross else "attention"
        layer = attention_parts(call.operation).get(argument, call.operation)
        if isinstance(layer, MultiHeadBase):
            found[name] = layer
    if not found:
        raise ValueError(
            "`model` must have a multi-head attention layer of keras_attn. Received: "
            f"a model with the layers {[layer.name for layer in model.layers]}"
        )
    return found


def attention_parts(layer):
    """The attention layers in a layer, by the constructor arguments that give them."""
    parts = {}
    if isinstance(layer, TransformerBlock):
        parts["attention"] = layer._self_attention_layer
        parts["cross_attention"] = getattr(layer, "_cross_attention_layer", None)
    elif isinstance(layer, RecurrentDecoder):
        parts["attention"] = layer.attention
    return {name: part for name, part in parts.items() if part is not None}
