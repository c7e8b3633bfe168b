"""Multi-head attention layers of a model, by the names of their attention maps."""

import keras

from keras_attn._graph import functional
from keras_attn._graph.attention_probe import probe_attention
from keras_attn._types import Model
from keras_attn.layers import LinearSelfAttention
from keras_attn.layers.attention.multi_head_attention import MultiHeadLayer
from keras_attn.layers.recurrent.decoder import RecurrentDecoder
from keras_attn.layers.transformer.block import TransformerBlock

__all__ = ["attention_parts", "multi_head_layers"]


def multi_head_layers(
    model: Model,
) -> dict[str, MultiHeadLayer | LinearSelfAttention]:
    """Return the multi-head attention layers of a Functional model.

    Args:
        model: A Functional model.

    Returns:
        A dict that maps names, as returned by `attention_maps`, to layers, in the order
        of the graph. A layer that is called several times has several names.

    Raises:
        ValueError: If `model` is not Functional or has no such layer.
    """
    functional.check_functional(model)
    layers = {}
    for name, call in probe_attention(model).calls.items():
        is_cross = name.endswith("/cross_attention")
        argument = "cross_attention" if is_cross else "attention"
        layer = attention_parts(call.operation).get(argument, call.operation)
        if isinstance(layer, (MultiHeadLayer, LinearSelfAttention)):
            layers[name] = layer
    if not layers:
        raise ValueError(
            "`model` must have a multi-head attention layer of keras_attn. Received: "
            f"a model with the layers {[layer.name for layer in model.layers]}"
        )
    return layers


def attention_parts(layer: keras.Operation) -> dict[str, keras.layers.Layer]:
    """Return the attention layers inside a layer, by their constructor arguments."""
    parts = {}
    if isinstance(layer, TransformerBlock):
        parts["attention"] = layer._self_attention
        parts["cross_attention"] = getattr(layer, "_cross_attention", None)
    elif isinstance(layer, RecurrentDecoder):
        parts["attention"] = layer.attention
    return {name: part for name, part in parts.items() if part is not None}
