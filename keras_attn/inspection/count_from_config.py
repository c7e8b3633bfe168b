"""Parameters and FLOPs of a model that is not built, from its configuration."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from keras_attn.layers._internal import arguments

__all__ = ["PARTS", "count_from_config"]

PARTS: tuple[str, ...] = (
    "embedding",
    "attention",
    "feed_forward",
    "normalization",
    "other",
)

# Optional arguments of the functions in `models`, with their defaults.
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
        "share_embeddings": None,
        "activation": "relu",
        "name": "transformer_translator",
    },
}
# Types of arguments that are not sizes, with the words for the error message. Models
# with a custom attention layer must be built to be counted.
_TYPES = {
    "normalize_first": (bool, "a bool"),
    "tie_weights": (bool, "a bool"),
    "share_embeddings": ((bool, type(None)), "a bool or None"),
    "activation": ((str, Callable, type(None)), "a name, a function or None"),
    "attention": (type(None), "None; build the model to count a custom attention"),
    "name": ((str, type(None)), "a str or None"),
}


def count_from_config(
    config: Mapping[str, Any], length: int | None = None
) -> dict[str, Any]:
    """Return the result of `count_parameters` for a configuration."""
    key, options = _complete_config(config)
    if key == "vocabulary_size":
        pieces = _language_model(options, length or 0)
    else:
        pieces = _translator(options, length or 0)
    counts, flops = dict.fromkeys(PARTS, 0), dict.fromkeys(PARTS, 0)
    for part, parameters, operations in pieces:
        counts[part] += parameters
        flops[part] += operations
    for numbers in (counts, flops):
        numbers["total"] = sum(numbers.values())
    return {**counts, "flops": flops}


# The following functions yield tuples of a part, its parameters and its operations per
# token.


def _language_model(
    config: dict[str, Any], length: int
) -> Iterator[tuple[str, int, int]]:
    max_length = config["max_length"] or 0
    if max_length and length > max_length:
        raise ValueError(
            "`length` must not exceed the number of learned positions. "
            f"Received: {length=}, max_length={max_length}"
        )
    width = config["hidden_dim"]
    yield "embedding", max_length * width, 0
    yield from _token_embedding(config["vocabulary_size"], width, config["tie_weights"])
    yield from _blocks(config, config["num_layers"], 1, length)


def _translator(config: dict[str, Any], length: int) -> Iterator[tuple[str, int, int]]:
    width, share = config["hidden_dim"], config["share_embeddings"]
    source, target = config["source_vocabulary_size"], config["target_vocabulary_size"]
    share = target is None if share is None else share
    if target or not share:
        yield "embedding", source * width, 0
    yield from _token_embedding(target or source, width, share)
    encoder_layers, decoder_layers = config["num_layers"]
    yield from _blocks(config, encoder_layers, 1, length)
    yield from _blocks(config, decoder_layers, 2, length)


def _token_embedding(
    vocabulary_size: int, width: int, tied: bool
) -> Iterator[tuple[str, int, int]]:
    """Count a token embedding and the output projection, tied or not."""
    size = vocabulary_size * width
    yield "embedding", size if tied else 2 * size, 2 * size


def _blocks(
    config: dict[str, Any], num_layers: int, num_attentions: int, length: int
) -> Iterator[tuple[str, int, int]]:
    """Count blocks with `num_attentions` attention layers each.

    With `normalize_first`, a final normalization is included.
    """
    width, inner = config["hidden_dim"], config["intermediate_dim"]
    products = 4 * length * width
    yield (
        "attention",
        num_layers * num_attentions * 4 * (width * width + width),
        num_layers * num_attentions * (8 * width * width + products),
    )
    yield (
        "feed_forward",
        num_layers * (2 * width * inner + inner + width),
        num_layers * 4 * width * inner,
    )
    norms = num_layers * (num_attentions + 1) + bool(config["normalize_first"])
    yield "normalization", norms * 2 * width, norms * 2 * width


# Validation.


def _complete_config(config: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Validate a configuration and add the default values.

    Returns:
        A tuple of the key that identifies the kind of model, a key of `_ARGUMENTS`, and
        the values of all arguments.
    """
    keys = [key for key in _ARGUMENTS if key in config]
    if len(keys) != 1:
        raise ValueError(
            "A configuration must have either 'vocabulary_size', for a language model, "
            "or 'source_vocabulary_size', for a translator. "
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
    options = {**defaults, **config}
    for name in (key, "hidden_dim", "intermediate_dim", "num_heads"):
        options[name] = arguments.positive_int(name, options[name])
    for name in ("max_length", "target_vocabulary_size"):
        if name in options:
            options[name] = arguments.positive_int(name, options[name], optional=True)
    for name, (types, description) in _TYPES.items():
        if name in options and not isinstance(options[name], types):
            raise ValueError(
                f"`{name}` must be {description}. Received: {name}={options[name]!r}"
            )
    arguments.rate("dropout", options["dropout"])
    if options["hidden_dim"] % options["num_heads"]:
        raise ValueError(
            "`hidden_dim` must be a multiple of `num_heads`. Received: "
            f"hidden_dim={options['hidden_dim']}, num_heads={options['num_heads']}"
        )
    options["num_layers"] = _num_layers(options["num_layers"], key != "vocabulary_size")
    return key, options


def _num_layers(value: Any, can_be_pair: bool) -> int | list[int]:
    """Validate `num_layers`; for a translator, return a pair."""
    if not can_be_pair:
        return arguments.positive_int("num_layers", value)
    pair = value if isinstance(value, (tuple, list)) else (value, value)
    if len(pair) != 2:
        raise ValueError(
            "`num_layers` must be a positive int or a pair of positive ints. "
            f"Received: num_layers={value!r}"
        )
    return [arguments.positive_int("num_layers", number) for number in pair]
