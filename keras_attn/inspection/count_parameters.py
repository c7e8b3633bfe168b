"""Where a model's parameters are, and its operations."""

import keras

from keras_attn import layers
from keras_attn._keras_internals import is_functional, recorded_calls
from keras_attn.inspection.count_configuration import PARTS, count_configuration
from keras_attn.layers._internal import arguments
from keras_attn.layers.attention.attention_base import AttentionBase

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
        AttentionBase,
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
# Weights that are added or looked up, by the names that Keras gives them.
_NOT_MULTIPLIED = ("bias", "beta", "moving_mean", "moving_variance", "embedding")


def count_parameters(model_or_config, length=None):
    """Numbers of parameters and of operations, by part.

    Args:
        model_or_config: a built `keras.Model` or layer. Or a dict of arguments of a
            model that may be too large to build: with `"vocabulary_size"` those of
            `models.causal_language_model`, with `"source_vocabulary_size"` those of
            `models.transformer_translator`; what is not there has its default.
        length: int, number of tokens T that attention looks at, for `"flops"`.
            Default: none, which leaves out the products of query, key and value.

    Returns:
        A dict of numbers of parameters `"embedding"`, `"attention"`,
        `"feed_forward"`, `"normalization"`, `"other"` and `"total"`. A weight counts
        once, however often it is used. The part is that of the innermost layer around
        it whose class is known, or tells it by its name. Recurrent layers are
        `"other"`, their attention is `"attention"`.

        And `"flops"`, a dict with the same keys: multiplications and additions of a
        forward pass for one token (in an encoder-decoder, for one source token and one
        target token). Each weight that multiplies a token counts 2 in each call of
        its layer, so a projection back to V words 2 x V x D, as `"embedding"`;
        looking up vectors costs nothing. With a length, an attention of N heads with
        keys and values of size H takes 4 x T x N x H more: causal masks save nothing.
        Additive attention takes 5 for that 4. Not counted: activations, softmax, the
        means in a normalization, `keras.ops` between layers. What a layer does once a
        sequence counts as if done for each token. Where a reversible embedding stands
        in no Functional model, it counts as projecting back.

    Raises:
        ValueError: for a layer that is not built, an unknown argument in a
            configuration or a value that the model's function would not take.

    Example:
        >>> count_parameters(keras_attn.models.transformer_translator(37000))["total"]
        63082496
        >>> gpt3 = dict(vocabulary_size=50257, num_layers=96, hidden_dim=12288,
        ...             intermediate_dim=49152, num_heads=96, max_length=2048)
        >>> counts = count_parameters(gpt3)
        >>> counts["total"], counts["flops"]["total"]
        (174604259328, 349139140608)

    Reference:
        Kaplan et al. 2020, "Scaling Laws for Neural Language Models", table 1, for the
        operations (https://arxiv.org/abs/2001.08361).
    """
    length = arguments.positive_int("length", length, optional=True)
    if isinstance(model_or_config, dict):
        return count_configuration(model_or_config, length)
    if not isinstance(model_or_config, keras.layers.Layer):
        raise ValueError(
            "`model_or_config` must be a Keras model or layer, or a dict of the "
            f"arguments of a model. Received: {model_or_config=}"
        )
    if not model_or_config.built and not model_or_config.weights:
        raise ValueError(
            f"Layer '{model_or_config.name}' has no weights yet: build it, or call it "
            f"on something. Received: {model_or_config=}"
        )
    counts, parts = dict.fromkeys(PARTS, 0), {}
    for weight, part, _ in _weights(model_or_config):
        parts[id(weight)] = part
        counts[part] += _size(weight)
    flops = dict.fromkeys(PARTS, 0)
    for layer, projects in _calls(model_or_config):
        for part, number in _flops(layer, projects, parts, length or 0):
            flops[part] += number
    for numbers in (counts, flops):
        numbers["total"] = sum(numbers.values())
    return {**counts, "flops": flops}


def _size(weight):
    return int(keras.ops.size(weight))


# Layers and weights


def _walk(layer, part="other", seen=None):
    """`layer` and all layers in it with their parts, the innermost first."""
    seen = set() if seen is None else seen
    if id(layer) in seen:
        return
    seen.add(id(layer))
    part = _part(layer) or part
    feed_forward = getattr(layer, "feed_forward", None)  # of a block, any layer
    for child in _children(layer):
        yield from _walk(child, "feed_forward" if child is feed_forward else part, seen)
    yield layer, part


def _weights(layer):
    """Tuples of each weight in `layer`, its part and the innermost layer around it."""
    seen = set()
    for owner, part in _walk(layer):
        for weight in owner.weights:
            if id(weight) not in seen:
                seen.add(id(weight))
                yield weight, part, owner


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


# Operations


def _calls(layer, projects=True):
    """The calls in a model, with whether each is a projection back to words."""
    if not is_functional(layer):
        yield layer, projects
        return
    for operation, _, kwargs, _ in recorded_calls(layer):
        if isinstance(operation, keras.layers.ReversibleEmbedding):
            yield operation, kwargs.get("reverse", False)
        elif isinstance(operation, keras.layers.Layer):
            yield from _calls(operation)


def _flops(layer, projects, parts, length):
    """Pairs of a part and the operations of a call for one token, in pieces."""
    for weight, _, owner in _weights(layer):
        is_added = any(word in weight.name for word in _NOT_MULTIPLIED)
        if not is_added and weight is not _score_vector(owner):
            yield parts[id(weight)], 2 * _size(weight)
    for each, _ in _walk(layer):
        if isinstance(each, keras.layers.ReversibleEmbedding) and projects:
            yield "embedding", 2 * each.input_dim * each.output_dim
        heads, key_dim, value_dim = _attention_sizes(each)
        # A sum of a query and a key takes an addition more than their product.
        score = 2 if _score_vector(each) is None else 3
        yield "attention", length * heads * (score * key_dim + 2 * value_dim)


def _score_vector(layer):
    """The weight of additive attention that multiplies pairs of tokens."""
    return layer.vector if isinstance(layer, layers.AdditiveAttention) else None


def _attention_sizes(layer):
    """Number of heads, size of a key and of a value in each."""
    if isinstance(layer, AttentionBase):
        return getattr(layer, "num_heads", 1), *layer.head_dims
    if isinstance(layer, keras.layers.MultiHeadAttention):
        return layer.num_heads, layer.key_dim, layer.value_dim
    if isinstance(layer, keras.layers.GroupQueryAttention):
        return layer.num_query_heads, layer.head_dim, layer.head_dim
    return 0, 0, 0
