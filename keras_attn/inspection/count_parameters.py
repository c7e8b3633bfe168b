"""Where a model's parameters are."""

import keras

from keras_attn import layers

__all__ = ["count_parameters"]

_CLASSES = {
    (keras.layers.Embedding, layers.PositionEmbedding): "embedding",
    (
        keras.layers.LayerNormalization,
        keras.layers.RMSNormalization,
        keras.layers.GroupNormalization,
        keras.layers.BatchNormalization,
    ): "normalization",
    (
        layers.MultiHeadAttention,
        layers.MultiHeadSelfAttention,
        layers.CrossAttention,
        keras.layers.MultiHeadAttention,
        keras.layers.GroupQueryAttention,
    ): "attention",
    (layers.FeedForward,): "feed_forward",
}
# Of layers from elsewhere, what their class or name says.
_WORDS = {
    "embedding": "embedding",
    "norm": "normalization",
    "attention": "attention",
    "feedforward": "feed_forward",
}


def count_parameters(model):
    """Numbers of parameters, by part.

    Args:
        model: a built `keras.Model` or layer.

    Returns:
        A dict with `"embedding"`, `"attention"`, `"feed_forward"`,
        `"normalization"`, `"other"` and `"total"`. A weight counts once, however
        often it is used. The part is that of the innermost layer around it whose
        class is known, or tells it by its name.

    Example:
        >>> count_parameters(keras_attn.models.transformer_translator(37000))["total"]
        63082496
    """
    counts = {**dict.fromkeys(_WORDS.values(), 0), "other": 0, "total": 0}
    seen = set()
    _count(model, "other", counts, seen)
    return counts


def _count(layer, part, counts, seen):
    """Adds what `layer` holds to `counts`, the innermost layers first."""
    part = _part(layer) or part
    feed_forward = getattr(layer, "feed_forward", None)  # of a block, any layer
    for child in _children(layer):
        _count(child, "feed_forward" if child is feed_forward else part, counts, seen)
    for weight in layer.weights:
        if id(weight) not in seen:
            seen.add(id(weight))
            size = int(keras.ops.size(weight))
            counts[part] += size
            counts["total"] += size


def _children(layer):
    """The layers that a layer or model holds."""
    for value in vars(layer).values():
        values = value if isinstance(value, (list, tuple)) else [value]
        yield from (child for child in values if isinstance(child, keras.layers.Layer))


def _part(layer):
    for classes, part in _CLASSES.items():
        if isinstance(layer, classes):
            return part
    for name in (type(layer).__name__, layer.name):
        for word, part in _WORDS.items():
            if word in name.lower().replace("_", ""):
                return part
    return None
