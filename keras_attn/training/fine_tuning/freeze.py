"""Freezing of a model except for its last blocks and its head."""

import keras

from keras_attn._keras_internals import inner_layers
from keras_attn._types import Model
from keras_attn.training.fine_tuning.blocks import layer_depths
from keras_attn.training.fine_tuning.compiled_state import (
    make_all_trainable,
    reset_compiled_functions,
)

__all__ = ["freeze", "unfreeze"]


def freeze(model: Model, trainable_blocks: int = 0, blocks: str | None = None) -> None:
    """Freeze a model except for its last Transformer blocks and the layers after them.

    Embeddings are frozen at any position in the model, and with them an output
    projection that is tied to a token embedding. A layer that a frozen block shares
    with a trainable one, such as the position bias of T5, is frozen too. Nested models
    are included: the blocks may be those of an encoder that the model calls. In a
    translation model the last blocks are those of the decoder.

    Compile the model afterwards to train it: Keras reads the trainable flags at that
    moment. A saved model keeps its frozen weights frozen.

    Args:
        model: A built `keras.Model`.
        trainable_blocks: Int. Number of blocks, counted from the output, that remain
            trainable. With 0, only the head is trainable.
        blocks: Regular expression that matches the full names of the blocks. Defaults
            to `None`: all blocks of keras_attn and KerasHub.

    Raises:
        ValueError: If the model has no blocks, or fewer than `trainable_blocks`; if no
            weight would remain trainable; or if the model has adapters.

    Example:
        >>> from keras_attn import models, training
        >>> model = models.text_classifier(
        ...     20, 3, num_layers=4, hidden_dim=8, intermediate_dim=8, num_heads=2
        ... )
        >>> training.freeze(model, trainable_blocks=1)
        >>> sorted({w.path.split("/")[0] for w in model.trainable_weights})
        ['encoder_3', 'logits']
        >>> model.compile("adam", "sparse_categorical_crossentropy")
    """
    _check_no_adapters(model)
    layers, num_blocks = layer_depths(model, blocks)
    if not hasattr(trainable_blocks, "__index__") or not (
        0 <= trainable_blocks <= num_blocks
    ):
        raise ValueError(
            f"`trainable_blocks` must be an int from 0 to the number of blocks, "
            f"{num_blocks}. Received: {trainable_blocks=}"
        )
    frozen = [layer for layer, depth in layers if depth > trainable_blocks]
    if len(frozen) == len(layers):
        raise ValueError(
            "With 0 trainable blocks the model must have a head, weights after the "
            f"last block, to train. Received: {trainable_blocks=}, layers "
            f"{[layer.name for layer in frozen]}"
        )
    make_all_trainable(model)
    for layer in frozen:
        layer.trainable = False
    reset_compiled_functions(model)


def unfreeze(model: Model) -> None:
    """Make all weights of a model trainable again.

    The function reverts `freeze` and trainable flags that were set by hand. Compile the
    model afterwards to train it.

    Args:
        model: A built `keras.Model`.

    Raises:
        ValueError: If the model has adapters, which are trained instead of the kernels;
            `merge_lora` and `remove_lora` remove them and make all weights trainable.

    Example:
        >>> from keras_attn import models, training
        >>> model = models.text_classifier(
        ...     20, 3, num_layers=4, hidden_dim=8, intermediate_dim=8, num_heads=2
        ... )
        >>> training.freeze(model)
        >>> len(model.trainable_weights)  # kernel and bias of the head
        2
        >>> training.unfreeze(model)
        >>> len(model.trainable_weights) == len(model.weights)
        True
    """
    _check_no_adapters(model)
    make_all_trainable(model)
    reset_compiled_functions(model)


def _check_no_adapters(model: keras.Model) -> None:
    """Raise a ValueError if a layer of the model has adapters."""
    with_adapters = [
        path
        for path, layer in inner_layers(model)
        if getattr(layer, "lora_enabled", False)
    ]
    if with_adapters:
        raise ValueError(
            "`model` must have no adapters; `merge_lora` or `remove_lora` removes "
            f"them. Received: adapters of {with_adapters[:8]}"
        )
