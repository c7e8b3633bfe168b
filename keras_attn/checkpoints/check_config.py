"""Checks of the entries of a published model's config, before anything is built."""

import math
import numbers
from collections.abc import Callable, Mapping
from typing import Any

from keras_attn.checkpoints.folder import CONFIG, Config

__all__ = ["check_config"]

_LAYERS = (
    *("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers"),
    *("encoder_layers", "decoder_layers"),
)
# Sizes of axes of tensors in the file.
_WIDTHS = (
    *("vocab_size", "decoder_vocab_size", "hidden_size", "n_embd", "d_model", "dim"),
    *("intermediate_size", "n_inner", "d_ff", "hidden_dim"),
    *("encoder_ffn_dim", "decoder_ffn_dim"),
)
_SIZES = (
    *("num_attention_heads", "num_key_value_heads", "n_head", "n_heads", "num_heads"),
    *("encoder_attention_heads", "decoder_attention_heads", "head_dim", "d_kv"),
    *("max_position_embeddings", "n_positions", "sliding_window", "num_channels"),
    *("relative_attention_num_buckets", "relative_attention_max_distance"),
)
_OPTIONAL = (
    *("num_decoder_layers", "decoder_vocab_size", "n_inner", "num_key_value_heads"),
    *("head_dim", "sliding_window", "classifier_dropout", "seq_classif_dropout"),
)
_EPSILONS = ("layer_norm_eps", "rms_norm_eps", "layer_norm_epsilon")
_RATES = (
    *("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"),
    *("seq_classif_dropout", "dropout", "attention_dropout", "activation_dropout"),
    *("dropout_rate", "embd_pdrop", "attn_pdrop", "resid_pdrop"),
)
_NAMES = ("hidden_act", "activation", "activation_function", "feed_forward_proj")
_FLAGS = (
    *("tie_word_embeddings", "attention_bias", "mlp_bias", "use_sliding_window"),
    *("scale_embedding", "share_encoder_decoder_embeddings", "is_decoder"),
    *("scale_attn_weights", "scale_attn_by_inverse_layer_idx"),
    "scale_decoder_outputs",
)
_ROPE_ENTRIES = ("rope_parameters", "rope_scaling")


def check_config(
    config: Config, shapes: Mapping[str, tuple[int, ...]], uses_padding: bool
) -> None:
    """Raise a ValueError that names the first entry with an impossible value.

    Entries that are absent are not checked.

    Args:
        config: the config.
        shapes: dict from the name of each tensor in the file to its shape. There cannot
            be more layers than tensors, nor a width or vocabulary above the size of the
            largest axis of any tensor.
        uses_padding: whether the model masks the padding id.
    """
    largest = max((size for shape in shapes.values() for size in shape), default=0)
    for keys, least, most in (
        (_LAYERS, 0, len(shapes)),
        (_WIDTHS, 1, largest),
        (("type_vocab_size",), 0, largest),
    ):
        expected = f"an int in [{least}, {most}] for these weights"
        _check(config, keys, expected, _int(least, most))
    _check(config, _SIZES, "a positive int", _int(1))
    _check(config, _EPSILONS, "a finite number of at least 0", _number(0.0))
    _check(config, _RATES, "a number in [0, 1)", lambda x: _number(0.0)(x) and x < 1)
    _check(config, _NAMES, "a string", lambda x: isinstance(x, str))
    _check(config, _FLAGS, "a bool", lambda x: x is None or isinstance(x, bool))
    _check_padding_id(config, uses_padding)
    _check_rope(config)


def _check(
    config: Mapping[str, Any],
    keys: tuple[str, ...],
    expected: str,
    is_valid: Callable[[Any], bool],
) -> None:
    for key in keys:
        if key not in config or (config[key] is None and key in _OPTIONAL):
            continue
        if not is_valid(config[key]):
            optional = " or null" if key in _OPTIONAL else ""
            raise ValueError(
                f"`{key}` in `{CONFIG}` must be {expected}{optional}. "
                f"Received: {key}={config[key]!r}"
            )


def _int(least: float, most: float = math.inf) -> Callable[[Any], bool]:
    return lambda value: (
        isinstance(value, int)
        and not isinstance(value, bool)
        and least <= value <= most
    )


def _number(least: float) -> Callable[[Any], bool]:
    return lambda value: (
        isinstance(value, numbers.Real)
        and not isinstance(value, bool)
        and math.isfinite(float(value))
        and float(value) >= least
    )


def _check_padding_id(config: Config, uses_padding: bool) -> None:
    """Check `pad_token_id`. Causal language models do not use it: any int is accepted.

    Some of their configs have -1.
    """
    if config.get("pad_token_id") is None:
        return
    is_valid, expected = _int(0), "an int of at least 0"
    if not uses_padding:
        is_valid, expected = _int(-math.inf), "an int"
    elif isinstance(size := config.get("vocab_size"), int):
        is_valid, expected = _int(0, size - 1), f"a token id in [0, {size})"
    _check(config, ("pad_token_id",), f"{expected} or null", is_valid)


def _check_rope(config: Config) -> None:
    """Check the rotary position embedding, which may be described in two places."""
    _check(config, _ROPE_ENTRIES, "an object or null", _is_object_or_none)
    for entry in (config, *(config.get(key) or {} for key in _ROPE_ENTRIES)):
        _check(entry, ("rope_theta", "factor"), "a positive number", _is_positive)


def _is_positive(value: Any) -> bool:
    return _number(0.0)(value) and value > 0


def _is_object_or_none(value: Any) -> bool:
    return value is None or isinstance(value, dict)
