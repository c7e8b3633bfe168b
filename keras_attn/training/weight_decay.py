"""Weight decay of the weight matrices only."""

import keras

from keras_attn._types import Model

__all__ = ["exclude_from_weight_decay"]


def exclude_from_weight_decay(
    optimizer: keras.optimizers.Optimizer, model: Model
) -> int:
    """Exclude biases, normalization and embeddings from an optimizer's weight decay.

    The weight matrices of dense, attention, convolutional and recurrent layers decay,
    and an output projection that is not tied to an embedding. Decay of the vector of a
    token that is in few batches would be larger than its gradients.

    Call it before the first training step; a later call replaces an earlier one.

    Args:
        optimizer: A Keras optimizer with `weight_decay`, such as
            `keras.optimizers.AdamW`.
        model: A built `keras.Model`. Nested models are included.

    Returns:
        Int, the number of excluded variables.

    Raises:
        ValueError: If the model is not built, or if the optimizer is built already.

    Example:
        >>> import keras
        >>> from keras_attn import models, training
        >>> model = models.causal_language_model(
        ...     20, num_layers=1, hidden_dim=8, intermediate_dim=16, num_heads=2
        ... )
        >>> optimizer = keras.optimizers.AdamW(1e-3, weight_decay=0.1)
        >>> training.exclude_from_weight_decay(optimizer, model)
        13
        >>> model.compile(optimizer, training.MaskedCrossentropy())

    Reference:
        Loshchilov and Hutter, 2017, https://arxiv.org/abs/1711.05101
    """
    if not model.built:
        raise ValueError(
            "`model` must be built, since its variables are excluded: call it on a "
            f"batch first. Received: model={model.name!r}, which is not built"
        )
    if optimizer.built:
        raise ValueError(
            "`optimizer` must not be built: exclude variables before the first step of "
            f"training. Received: optimizer={optimizer.name!r}, which is built"
        )
    excluded = [
        variable
        for variable in model.trainable_variables
        # Biases of attention heads have two axes.
        if len(variable.shape) < 2 or variable.name in ("bias", "embeddings")
    ]
    optimizer.exclude_from_weight_decay(var_list=excluded)
    return len(excluded)
