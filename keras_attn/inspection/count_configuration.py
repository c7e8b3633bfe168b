"""Parameters and operations of a model that is not there, from its sizes alone."""

from collections.abc import Callable

from keras_attn.layers._internal import arguments

__all__ = ["PARTS", "count_configuration"]

PARTS = ("embedding", "attention", "feed_forward", "normalization", "other")

# The further arguments of the functions in `models`, and their defaults.
_COMMON = {
    "num_layers": 6,
    "hidden_dim": 512,
    "intermediate_dim": 2048,
    "num_heads": 8,
    "dropout": 0.1,
    "dtype": None,
}
_ARGUMENTS = {
    "vocabulary_size": {
        **_COMMON,
        "normalize_first": True,
        "tie_weights": True,
        "max_length": None,
        "activation": "gelu",
        "attention": None,
        "name": "causal_language_model",
    },
    "source_vocabulary_size": {
        **_COMMON,
        "target_vocabulary_size": None,
        "normalize_first": False,
        "share_embeddings": True,
        "activation": "relu",
        "name": "transformer_translator",
    },
}
# What these must be, of which two say nothing about sizes. Attention of another kind is
# counted in a model that has it.
_KINDS = {
    "normalize_first": (bool, "a bool"),
    "tie_weights": (bool, "a bool"),
    "share_embeddings": (bool, "a bool"),
    "activation": ((str, Callable, type(None)), "a name, a function or None"),
    "attention": (type(None), "None: build the model to count another"),
    "name": ((str, type(None)), "a str or None"),
}


def count_configuration(config, length=None):
    """What `count_parameters` gives for a configuration, which it documents."""
    key, config = _complete(config)
    if key == "vocabulary_size":
        pieces = _language_model(config, length or 0)
    else:
        pieces = _translator(config, length or 0)
    counts, flops = dict.fromkeys(PARTS, 0), dict.fromkeys(PARTS, 0)
    for part, parameters, operations in pieces:
        counts[part] += parameters
        flops[part] += operations
    for numbers in (counts, flops):
        numbers["total"] = sum(numbers.values())
    return {**counts, "flops": flops}


def _language_model(config, length):
    most = config["max_length"] or 0
    if most and length > most:
        raise ValueError(
            "`length` must not be more than the learned positions. "
            f"Received: {length=}, max_length={most}"
        )
    width = config["hidden_dim"]
    yield "embedding", most * width, 0
    yield from _words(config["vocabulary_size"], width, config["tie_weights"])
    yield from _stack(config, config["num_layers"], 1, length)


def _translator(config, length):
    width, share = config["hidden_dim"], config["share_embeddings"]
    source, target = config["source_vocabulary_size"], config["target_vocabulary_size"]
    if target or not share:
        yield "embedding", source * width, 0
    yield from _words(target or source, width, share)
    encoder_layers, decoder_layers = config["num_layers"]
    yield from _stack(config, encoder_layers, 1, length)
    yield from _stack(config, decoder_layers, 2, length)


# Pieces of a model: tuples of a part, its parameters and operations for one token.


def _words(vocabulary_size, width, tied):
    size = vocabulary_size * width
    yield "embedding", size if tied else 2 * size, 2 * size


def _stack(config, num_layers, attentions, length):
    """Blocks with so many attention layers each; with a normalization at the end."""
    width, inner = config["hidden_dim"], config["intermediate_dim"]
    products = 4 * length * width
    yield (
        "attention",
        num_layers * attentions * 4 * (width * width + width),
        num_layers * attentions * (8 * width * width + products),
    )
    yield (
        "feed_forward",
        num_layers * (2 * width * inner + inner + width),
        num_layers * 4 * width * inner,
    )
    norms = num_layers * (attentions + 1) + bool(config["normalize_first"])
    yield "normalization", norms * 2 * width, norms * 2 * width


# Checking


def _complete(config):
    """Which model it is of, by its first argument, and all arguments, checked."""
    keys = [key for key in _ARGUMENTS if key in config]
    if len(keys) != 1:
        raise ValueError(
            "A configuration must have 'vocabulary_size', for a language model, or "
            "'source_vocabulary_size', for a translator, and not both. "
            f"Received: {config=}"
        )
    (key,) = keys
    defaults = _ARGUMENTS[key]
    unknown = [name for name in config if name not in {key, *defaults}]
    if unknown:
        raise ValueError(
            f"A configuration with '{key}' can have the keys {sorted(defaults)}. "
            f"Received: {unknown[0]}={config[unknown[0]]!r}"
        )
    config = {**defaults, **config}
    for name in (key, "hidden_dim", "intermediate_dim", "num_heads"):
        config[name] = arguments.positive_int(name, config[name])
    for name in ("max_length", "target_vocabulary_size"):
        if name in config:
            config[name] = arguments.positive_int(name, config[name], optional=True)
    for name, (kinds, words) in _KINDS.items():
        if name in config and not isinstance(config[name], kinds):
            raise ValueError(
                f"`{name}` must be {words}. Received: {name}={config[name]!r}"
            )
    arguments.rate("dropout", config["dropout"])
    if config["hidden_dim"] % config["num_heads"]:
        raise ValueError(
            "`hidden_dim` must be a multiple of `num_heads`. Received: "
            f"hidden_dim={config['hidden_dim']}, num_heads={config['num_heads']}"
        )
    config["num_layers"] = _num_layers(config["num_layers"], key != "vocabulary_size")
    return key, config


def _num_layers(value, can_be_pair):
    if not can_be_pair:
        return arguments.positive_int("num_layers", value)
    pair = value if isinstance(value, (tuple, list)) else (value, value)
    if len(pair) != 2:
        raise ValueError(
            "`num_layers` must be a positive int or a pair of them. "
            f"Received: num_layers={value!r}"
        )
    return [arguments.positive_int("num_layers", number) for number in pair]
