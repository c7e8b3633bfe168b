"""How deep in a model a layer lies: its Transformer blocks, and what is around them."""

import re

import keras

__all__ = ["depths", "flat_layers"]


def flat_layers(model):
    """The layers of a model in their order, those of models in it in their place."""
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            yield from flat_layers(layer)
        else:
            yield layer


def depths(model, blocks=None):
    """The layers of a model with weights, and the depth of each from the top.

    What comes after the last Transformer block has depth 0, that block 1, the one
    before it 2. What stands between two blocks goes with the lower one. Embeddings, and
    all that comes before the first block, are the deepest.

    Args:
        model: a built `keras.Model`, of any layers.
        blocks: regular expression that the names of the blocks match as a whole.
            Default: layers that have heads and a feed-forward network, which are those
            with the attributes `num_heads` and `intermediate_dim`, ours and KerasHub's.

    Returns:
        A list of pairs of a layer and its depth, and the number of blocks.

    Raises:
        ValueError: if there are no blocks.
    """
    layers = [layer for layer in flat_layers(model) if layer.weights]
    count = sum(_is_block(layer, blocks) for layer in layers)
    if not count:
        raise ValueError(
            "The model must have Transformer blocks; name others with `blocks`. "
            f"Received: {blocks=}, layers {[layer.name for layer in layers]}"
        )
    found, depth = [], count + 1
    for layer in layers:
        if _is_block(layer, blocks):
            depth -= 1
            last = layer
        found.append((layer, depth))
    after_last = [layer for layer, _ in found].index(last) + 1
    found[after_last:] = [(layer, 0) for layer, _ in found[after_last:]]
    return [
        (layer, count + 1 if _is_embedding(layer) else depth) for layer, depth in found
    ], count


def _is_block(layer, blocks):
    if blocks is not None:
        return re.fullmatch(blocks, layer.name) is not None
    return hasattr(layer, "num_heads") and hasattr(layer, "intermediate_dim")


def _is_embedding(layer):
    return any(weight.name.endswith("embeddings") for weight in layer.weights)
