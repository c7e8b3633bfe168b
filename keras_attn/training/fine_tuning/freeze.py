"""Freezing all of a model but its last blocks and its head."""

from keras_attn._keras_internals import inner_layers
from keras_attn.training.fine_tuning.blocks import depths
from keras_attn.training.fine_tuning.compiled_state import (
    forget_functions,
    make_all_trainable,
)

__all__ = ["freeze", "unfreeze"]


def freeze(model, trainable_blocks=0, blocks=None):
    """Freezes a model but for its last Transformer blocks and what comes after them.

    Embeddings are frozen whatever comes before or after them, and with them an output
    projection that is a token embedding's. What a frozen block shares with one that is
    not (T5's position bias) is frozen as well. Models inside the model are opened: the
    blocks may be those of an encoder that is called in it. In a translation model the
    last blocks are the decoder's.

    Compile the model afterwards to train it: Keras takes note of what trains at that
    moment. A file of the model keeps what is frozen.

    Args:
        model: a built `keras.Model`.
        trainable_blocks: int, how many blocks, from the top, go on training; with 0
            the head alone does.
        blocks: regular expression that the names of the blocks match as a whole.
            Default: those of `keras_attn` and KerasHub, by whatever name.

    Raises:
        ValueError: if there are no blocks or fewer than `trainable_blocks`, nothing
            would be left to train, or the model has adapters.

    Example:
        >>> model = checkpoints.load("bert-base-uncased", num_classes=4)
        >>> freeze(model, trainable_blocks=2)
        >>> model.compile(keras.optimizers.Adam(1e-4), loss)
    """
    _check_no_adapters(model)
    layers, count = depths(model, blocks)
    if not hasattr(trainable_blocks, "__index__") or not (
        0 <= trainable_blocks <= count
    ):
        raise ValueError(
            f"`trainable_blocks` must be an int from 0 to the number of blocks, "
            f"{count}. Received: {trainable_blocks=}"
        )
    frozen = [layer for layer, depth in layers if depth > trainable_blocks]
    if len(frozen) == len(layers):
        raise ValueError(
            "With 0 blocks there must be weights after the last block, a head, to "
            f"train. Received: {trainable_blocks=}, layers "
            f"{[layer.name for layer in frozen]}"
        )
    make_all_trainable(model)
    for layer in frozen:
        layer.trainable = False
    forget_functions(model)


def unfreeze(model):
    """Makes all of a model trainable again, as `freeze` or its user may have left it.

    Compile the model afterwards to train it.

    Args:
        model: a built `keras.Model`.

    Raises:
        ValueError: if the model has adapters, which train in the place of kernels;
            `merge_lora` and `remove_lora` take them off, and freeze nothing.

    Example:
        >>> unfreeze(model)
        >>> model.compile(keras.optimizers.Adam(1e-5), loss)
    """
    _check_no_adapters(model)
    make_all_trainable(model)
    forget_functions(model)


def _check_no_adapters(model):
    with_adapters = [
        path
        for path, layer in inner_layers(model)
        if getattr(layer, "lora_enabled", False)
    ]
    if with_adapters:
        raise ValueError(
            "`model` must have no adapters: `merge_lora` or `remove_lora` takes them "
            f"off. Received: adapters of {with_adapters[:8]}"
        )
