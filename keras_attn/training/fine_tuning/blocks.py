"""Transformer blocks of a model and the depth of its layers."""

import re
from collections.abc import Iterator

import keras

__all__ = ["flat_layers", "layer_depths"]


def flat_layers(model: keras.Model) -> Iterator[keras.layers.Layer]:
    """Yield the layers of a model in order, with nested models expanded in place."""
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            yield from flat_layers(layer)
        else:
            yield layer


def layer_depths(
    model: keras.Model, blocks: str | None = None
) -> tuple[list[tuple[keras.layers.Layer, int]], int]:
    """Return the layers of a model that have weights, each with its depth.

    The depth is counted in Transformer blocks, from the output to the input. Layers
    after the last block have depth 0, the last block has depth 1, the block before it
    depth 2. A layer between two blocks has the depth of the first of them. Embeddings,
    and all layers before the first block, have the largest depth.

    Args:
        model: A built `keras.Model` with layers of any kind.
        blocks: Regular expression that matches the full names of the blocks. Defaults
            to `None`: the blocks are the layers with the attributes `num_heads` and
            `intermediate_dim`, such as the blocks of keras_attn and KerasHub.

    Returns:
        A tuple of a list of pairs `(layer, depth)` and the number of blocks.

    Raises:
        ValueError: If the model has no blocks.
    """
    layers = [layer for layer in flat_layers(model) if layer.weights]
    num_blocks = sum(_is_block(layer, blocks) for layer in layers)
    if not num_blocks:
        raise ValueError(
            "`model` must have Transformer blocks; pass `blocks` if they have other "
            f"names. Received: {blocks=}, layers {[layer.name for layer in layers]}"
        )
    pairs, depth, last_block = [], num_blocks + 1, None
    for layer in layers:
        if _is_block(layer, blocks):
            depth -= 1
            last_block = layer
        pairs.append((layer, depth))
    after_last = [layer for layer, _ in pairs].index(last_block) + 1
    pairs[after_last:] = [(layer, 0) for layer, _ in pairs[after_last:]]
    return [
        (layer, num_blocks + 1 if _is_embedding(layer) else depth)
        for layer, depth in pairs
    ], num_blocks


def _is_block(layer: keras.layers.Layer, blocks: str | None) -> bool:
    if blocks is not None:
        return re.fullmatch(blocks, layer.name) is not None
    return hasattr(layer, "num_heads") and hasattr(layer, "intermediate_dim")


def _is_embedding(layer: keras.layers.Layer) -> bool:
    return any(weight.name.endswith("embeddings") for weight in layer.weights)
