"""Parameters and FLOPs of a model, by part."""

from collections.abc import Iterator
from typing import Any

import keras

from keras_attn import layers
from keras_attn._keras_internals import is_functional, recorded_calls
from keras_attn.inspection.count_from_config import PARTS, count_from_config
from keras_attn.layers._internal import arguments
from keras_attn.layers.attention.attention_layer import AttentionLayer

__all__ = ["count_parameters"]

_PART_BY_CLASS = {
    (keras.layers.Embedding, layers.PositionEmbedding): "embedding",
    (
        keras.layers.LayerNormalization,
        keras.layers.RMSNormalization,
        keras.layers.GroupNormalization,
        keras.layers.BatchNormalization,
    ): "normalization",
    (
        AttentionLayer,
        layers.LinearSelfAttention,
        keras.layers.MultiHeadAttention,
        keras.layers.GroupQueryAttention,
    ): "attention",
    (layers.FeedForward,): "feed_forward",
}
# Words in the class name or the name of any other layer.
_PART_BY_WORD = {
    "embedding": "embedding",
    "norm": "normalization",
    "attention": "attention",
    "feedforward": "feed_forward",
}
# Parts of the names of weights that are added or looked up.
_NOT_MULTIPLIED = ("bias", "beta", "moving_mean", "moving_variance", "embedding")


def count_parameters(
    model_or_config: keras.layers.Layer | dict[str, Any],
    length: int | None = None,
) -> dict[str, Any]:
    """Count the parameters and the floating point operations of a model, by part.

    Args:
        model_or_config: A built `keras.Model` or layer. Or, for a model that may be too
            large to build, a dict of arguments: those of `models.causal_language_model`
            if it has the key `"vocabulary_size"`, those of
            `models.transformer_translator` if it has `"source_vocabulary_size"`.
            Missing arguments have their default values.
        length: Int. Number of tokens T that attention attends to, for `"flops"`.
            Defaults to `None`, which omits the products of query, key and value.

    Returns:
        A dict with the numbers of parameters `"embedding"`, `"attention"`,
        `"feed_forward"`, `"normalization"`, `"other"` and `"total"`. A shared weight
        counts once. The part of a weight is determined by the innermost layer that
        contains it and has a known class or name. Recurrent layers are `"other"`, but
        their attention layer is `"attention"`.

        The entry `"flops"` is a dict with the same keys: the multiplications and
        additions of a forward pass for one token (in an encoder-decoder, for one source
        token and one target token). A weight that is multiplied by a token counts 2 in
        each call of its layer. A projection to V logits therefore counts 2 x V x D, as
        `"embedding"`; looking up vectors counts 0. With `length`, an attention layer
        with N heads and keys and values of size H also counts 4 x T x N x H, with or
        without a causal mask. For additive attention, the factor is 5 instead of 4.
        Activations, softmax, the statistics of normalization layers, and `keras.ops`
        between layers are not counted. Operations that a layer computes once per
        sequence are counted once per token. A reversible embedding outside a Functional
        model counts as a projection to logits.

    Raises:
        ValueError: If a layer is not built, if the configuration has an unknown
            argument or an invalid value, or if `length` is not a positive int or
            exceeds the `max_length` of the configuration.

    Example:
        >>> from keras_attn import inspection, models
        >>> model = models.transformer_translator(
        ...     20, num_layers=1, hidden_dim=8, intermediate_dim=8, num_heads=2
        ... )
        >>> inspection.count_parameters(model)["attention"]
        864
        >>> gpt3 = {
        ...     "vocabulary_size": 50257, "num_layers": 96, "hidden_dim": 12288,
        ...     "intermediate_dim": 49152, "num_heads": 96, "max_length": 2048,
        ... }
        >>> counts = inspection.count_parameters(gpt3)
        >>> counts["total"], counts["flops"]["total"]
        (174604259328, 349132210176)

    Reference:
        Kaplan et al., 2020, "Scaling Laws for Neural Language Models", table 1 (for the
        operations), https://arxiv.org/abs/2001.08361
    """
    length = arguments.positive_int("length", length, optional=True)
    if isinstance(model_or_config, dict):
        return count_from_config(model_or_config, length)
    if not isinstance(model_or_config, keras.layers.Layer):
        raise ValueError(
            "`model_or_config` must be a Keras model or layer, or a dict of arguments "
            f"of a model. Received: {model_or_config=}"
        )
    if not model_or_config.built and not model_or_config.weights:
        raise ValueError(
            f"Layer '{model_or_config.name}' has no weights yet; build or call it "
            f"first. Received: {model_or_config=}"
        )
    counts, parts = dict.fromkeys(PARTS, 0), {}
    for weight, part, _ in _weights(model_or_config):
        parts[id(weight)] = part
        counts[part] += _size(weight)
    flops = dict.fromkeys(PARTS, 0)
    for layer, to_logits in _calls(model_or_config):
        for part, number in _flops(layer, to_logits, parts, length or 0):
            flops[part] += number
    for numbers in (counts, flops):
        numbers["total"] = sum(numbers.values())
    return {**counts, "flops": flops}


def _size(weight: keras.Variable) -> int:
    return int(keras.ops.size(weight))  # pyright: ignore[reportArgumentType]


# Layers and weights.


def _walk(
    layer: keras.layers.Layer, part: str = "other", seen: set[int] | None = None
) -> Iterator[tuple[keras.layers.Layer, str]]:
    """Yield `layer` and all its inner layers with their parts, innermost first."""
    seen = set() if seen is None else seen
    if id(layer) in seen:
        return
    seen.add(id(layer))
    part = _part(layer) or part
    # The feed-forward network of a block can be a layer of any class.
    feed_forward = getattr(layer, "feed_forward", None)
    for child in _children(layer):
        yield from _walk(child, "feed_forward" if child is feed_forward else part, seen)
    yield layer, part


def _weights(
    layer: keras.layers.Layer,
) -> Iterator[tuple[keras.Variable, str, keras.layers.Layer]]:
    """Yield each weight of `layer`, its part and the innermost layer that has it."""
    seen = set()
    for owner, part in _walk(layer):
        for weight in owner.weights:
            if id(weight) not in seen:
                seen.add(id(weight))
                yield weight, part, owner


def _children(layer: keras.layers.Layer) -> Iterator[keras.layers.Layer]:
    """Yield the layers among the attributes of a layer or model."""
    for value in vars(layer).values():
        values = value if isinstance(value, (list, tuple)) else [value]
        yield from (child for child in values if isinstance(child, keras.layers.Layer))


def _part(layer: keras.layers.Layer) -> str | None:
    """Return the part of a layer by its class or name, None if unknown."""
    for classes, part in _PART_BY_CLASS.items():
        if isinstance(layer, classes):
            return part
    for name in (type(layer).__name__, layer.name):
        for word, part in _PART_BY_WORD.items():
            if word in name.lower().replace("_", ""):
                return part
    return None


# Operations.


def _calls(
    layer: keras.layers.Layer, to_logits: bool = True
) -> Iterator[tuple[keras.layers.Layer, bool]]:
    """Yield the layers called by a model, and whether a call projects to logits."""
    if not is_functional(layer):
        yield layer, to_logits
        return
    for operation, _, kwargs, _ in recorded_calls(layer):
        if isinstance(operation, keras.layers.ReversibleEmbedding):
            yield operation, kwargs.get("reverse", False)
        elif isinstance(operation, keras.layers.Layer):
            yield from _calls(operation)


def _flops(
    layer: keras.layers.Layer, to_logits: bool, parts: dict[int, str], length: int
) -> Iterator[tuple[str, int]]:
    """Yield pairs of a part and a number of operations per token in one call."""
    for weight, _, owner in _weights(layer):
        is_added = any(word in weight.name for word in _NOT_MULTIPLIED)
        if not is_added and weight is not _score_vector(owner):
            yield parts[id(weight)], 2 * _size(weight)
    for inner, _ in _walk(layer):
        if isinstance(inner, keras.layers.ReversibleEmbedding) and to_logits:
            yield "embedding", 2 * inner.input_dim * inner.output_dim
        num_heads, key_dim, value_dim = _attention_sizes(inner)
        # Additive attention adds query and key before the product with its vector.
        score = 2 if _score_vector(inner) is None else 3
        yield "attention", length * num_heads * (score * key_dim + 2 * value_dim)


def _score_vector(layer: keras.layers.Layer) -> keras.Variable | None:
    """Return the weight of additive attention that is multiplied by pairs of tokens."""
    return layer.vector if isinstance(layer, layers.AdditiveAttention) else None


def _attention_sizes(layer: keras.layers.Layer) -> tuple[int, int, int]:
    """Return the number of heads and the sizes of a key and of a value."""
    if isinstance(layer, (AttentionLayer, layers.LinearSelfAttention)):
        return getattr(layer, "num_heads", 1), *layer.head_dims
    if isinstance(layer, keras.layers.MultiHeadAttention):
        return layer.num_heads, layer.key_dim, layer.value_dim
    if isinstance(layer, keras.layers.GroupQueryAttention):
        return layer.num_query_heads, layer.head_dim, layer.head_dim
    return 0, 0, 0
