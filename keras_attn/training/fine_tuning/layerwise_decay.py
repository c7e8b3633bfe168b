"""Learning rate factors that decrease from the head of a model to its embeddings."""

import re

from keras_attn._types import Model
from keras_attn.training.fine_tuning.blocks import layer_depths

__all__ = ["layerwise_decay"]


def layerwise_decay(
    model: Model, decay: float, blocks: str | None = None
) -> dict[str, float]:
    """Return factors for `LayerwiseOptimizer` that decrease from output to input.

    Layers after the last Transformer block have the factor 1, the last block has the
    factor `decay`, the block before it `decay**2`, and so on. Embeddings have the
    smallest factor.

    Args:
        model: A built `keras.Model`. Nested models are included.
        decay: Float in (0, 1]. Ratio of the factors of a block and of the next one. The
            papers recommend 1 / 2.6 for three LSTMs and 0.95 for the twelve blocks of
            BERT.
        blocks: Regular expression that matches the full names of the blocks. Defaults
            to `None`: all blocks of keras_attn and KerasHub.

    Returns:
        A dict that maps regular expressions for the paths of layers to factors.

    Raises:
        ValueError: If `decay` is not in (0, 1], if the model has no blocks, or if two
            layers have the same path, as in two nested models of one architecture.

    Example:
        >>> from keras_attn import models, training
        >>> model = models.text_classifier(
        ...     20, 3, num_layers=2, hidden_dim=8, intermediate_dim=8, num_heads=2
        ... )
        >>> for path, factor in training.layerwise_decay(model, 0.5).items():
        ...     print(path, factor)
        ^embedding/ 0.125
        ^position/ 0.125
        ^norm/ 0.125
        ^encoder_0/ 0.25
        ^encoder_1/ 0.5
        ^logits/ 1.0

    References:
        Howard and Ruder, 2018, https://arxiv.org/abs/1801.06146
        Sun et al., 2019, "How to Fine-Tune BERT for Text Classification?", section
        5.3.3, https://arxiv.org/abs/1905.05583
    """
    if not 0 < decay <= 1:
        raise ValueError(f"`decay` must be in (0, 1]. Received: {decay=}")
    layers, _ = layer_depths(model, blocks)
    paths = [str(layer.path) for layer, _ in layers]
    factors = {
        f"^{re.escape(path)}/": decay**depth for path, (_, depth) in zip(paths, layers)
    }
    if len(factors) < len(layers):
        shared = sorted({path for path in paths if paths.count(path) > 1})
        raise ValueError(
            "The layers of `model` must have different paths, since a factor applies "
            f"to a path. Received: several layers with the paths {shared[:8]}"
        )
    return factors
