"""Learning rates that fall from the head of a model down to its embeddings."""

import re

from keras_attn.training.fine_tuning.blocks import depths

__all__ = ["layerwise_decay"]


def layerwise_decay(model, decay, blocks=None):
    """Factors for `LayerwiseOptimizer` that fall from the head of a model downwards.

    What comes after the last Transformer block has factor 1, that block `decay`, the
    one before it `decay**2`, and so on; the embeddings have the lowest.

    Args:
        model: a built `keras.Model`; models inside it are opened.
        decay: float in (0, 1], factor from one block to the one below. The papers
            recommend 1 / 2.6 for three LSTMs, 0.95 for the twelve blocks of BERT.
        blocks: regular expression that the names of the blocks match as a whole.
            Default: those of `keras_attn` and KerasHub, by whatever name.

    Returns:
        A dict from regular expression, the path of a layer, to factor.

    Raises:
        ValueError: if `decay` is not in (0, 1], there are no blocks, or two layers have
            one path, as those of two models of one family.

    Example:
        >>> layerwise_decay(models.text_classifier(800, 3, num_layers=1), 0.5)
        {'^embedding/': 0.25, '^position/': 0.25, ..., '^encoder_0/': 0.5, ...}

    References:
        Howard and Ruder 2018 (https://arxiv.org/abs/1801.06146); Sun et al. 2019, "How
        to Fine-Tune BERT for Text Classification?", section 5.3.3
        (https://arxiv.org/abs/1905.05583).
    """
    if not 0 < decay <= 1:
        raise ValueError(f"`decay` must be in (0, 1]. Received: {decay=}")
    layers, _ = depths(model, blocks)
    factors = {f"^{re.escape(layer.path)}/": decay**depth for layer, depth in layers}
    if len(factors) < len(layers):
        paths = [layer.path for layer, _ in layers]
        shared = sorted({path for path in paths if paths.count(path) > 1})
        raise ValueError(
            "The layers of `model` must differ in their paths, which are what factors "
            f"are by. Received: several layers of the paths {shared[:8]}"
        )
    return factors
