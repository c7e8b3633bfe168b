"""Where a model's parameters are."""

import keras

__all__ = ["count_parameters"]

_PARTS = {
    # What a path from the model to a weight says, the innermost word first.
    "embedding": "embedding",
    "norm": "normalization",
    "attention": "attention",
    "feed_forward": "feed_forward",
}


def count_parameters(model):
    """Numbers of parameters, by part.

    Args:
        model: a built `keras.Model` or layer.

    Returns:
        A dict with `"embedding"`, `"attention"`, `"feed_forward"`,
        `"normalization"`, `"other"` and `"total"`. A weight counts once, however
        often it is used. The part is told by the names of the layers around it.

    Example:
        >>> count_parameters(keras_attn.models.transformer_translator(37000))["total"]
        63082496
    """
    counts = {**dict.fromkeys(_PARTS.values(), 0), "other": 0, "total": 0}
    for weight in model.weights:
        size = int(keras.ops.size(weight))
        counts[_part(weight.path)] += size
        counts["total"] += size
    return counts


def _part(path):
    for name in reversed(path.split("/")[:-1]):
        for word, part in _PARTS.items():
            if word in name:
                return part
    return "other"
