"""Llama, Mistral, Qwen2 and Qwen3: one decoder with settings for each family."""

import functools
from typing import Any

import keras

from keras_attn import layers
from keras_attn.checkpoints.activations import get_activation
from keras_attn.checkpoints.family import (
    BuildOptions,
    Family,
    ids_input,
    untied_head_overrides,
)
from keras_attn.checkpoints.folder import Config
from keras_attn.checkpoints.weight_map import Entry, block_modules, map_weights

__all__ = ["FAMILIES"]

# Values of entries that a config can omit.
_DEFAULTS = {
    "hidden_act": "silu",
    "num_key_value_heads": None,
    "head_dim": None,
    "attention_bias": False,
    "mlp_bias": False,
    "attention_dropout": 0.0,
    "tie_word_embeddings": False,
    "sliding_window": 4096,
    "use_sliding_window": False,
    "max_window_layers": 28,
    "layer_types": None,
}
# Settings that all models of a family share, regardless of their config.
_FAMILY_SETTINGS: dict[str, dict[str, Any]] = {
    "llama": {"use_sliding_window": False},
    "mistral": {
        "attention_bias": False,
        "mlp_bias": False,
        "use_sliding_window": True,
        "max_window_layers": 0,
        "layer_types": None,
    },
    "qwen2": {
        "attention_bias": True,
        "attention_output_bias": False,
        "mlp_bias": False,
    },
    "qwen3": {"query_key_norm": True, "mlp_bias": False},
}


def _build(
    kind: str, config: Config, task: str, options: BuildOptions
) -> tuple[keras.KerasTensor, keras.KerasTensor]:
    """Return the input and the output of a model.

    The model is a stack of blocks, a final normalization and, with a head, logits that
    are computed with a separate projection or with the token embedding.
    """
    config = Config({**_DEFAULTS, **config, **_FAMILY_SETTINGS[kind]})
    epsilon = config["rms_norm_eps"]
    attention_dropout, dropout = config["attention_dropout"], 0.0
    if options.dropout is not None:
        attention_dropout = dropout = options.dropout

    token_ids = ids_input("token_ids")
    embedding = layers.TokenEmbedding(
        config["vocab_size"],
        config["hidden_size"],
        padding_id=None,
        tie_weights=task == "hidden_states" or config["tie_word_embeddings"],
        name="embedding",
    )
    x = embedding(token_ids)
    for i in range(config["num_hidden_layers"]):
        attention = layers.MultiHeadSelfAttention(
            config["num_attention_heads"],
            config["head_dim"],
            dropout=attention_dropout,
            num_key_value_heads=config["num_key_value_heads"],
            position=_position(config),
            sliding_window=_window(config, i),
            qk_norm=_qk_norm(config),
            use_bias=config["attention_bias"],
            use_output_bias=config.get("attention_output_bias"),
            name="self_attention",
        )
        x = layers.TransformerDecoder(
            config["intermediate_size"],
            config["num_attention_heads"],
            dropout=dropout,
            layer_norm_epsilon=epsilon,
            normalize_first=True,
            attention=attention,
            feed_forward=layers.FeedForward(
                config["intermediate_size"],
                activation=get_activation(config["hidden_act"]),
                use_bias=config["mlp_bias"],
                gated=True,
                name="feed_forward",
            ),
            normalization="rms_norm",
            name=f"decoder_{i}",
        )(x)
    x = keras.layers.RMSNormalization(epsilon=epsilon, name="norm")(x)
    if task == "causal_language_model":
        x = embedding(x, reverse=True)
    return token_ids, x


def _position(config: Config) -> layers.RotaryPositionEmbedding:
    """Return the rotary position embedding that an older or newer config describes."""
    scaling = dict(config.get("rope_scaling") or config.get("rope_parameters") or {})
    scaling.pop("finetuned", None)  # a note, without effect in `transformers`
    wavelength = scaling.pop("rope_theta", config.get("rope_theta", 10000.0))
    if scaling.get("rope_type", scaling.get("type")) in ("yarn", "llama3"):
        key = "original_max_position_embeddings"
        default = scaling.get(key, config.get("max_position_embeddings"))
        scaling[key] = config.get(key, default)
    return layers.RotaryPositionEmbedding(wavelength, scaling=scaling or None)


def _window(config: Config, i: int) -> int | None:
    """Return the sliding window of block `i`, None for full attention."""
    if not config["use_sliding_window"]:
        return None
    sliding = i >= config["max_window_layers"]
    if config["layer_types"] is not None:
        sliding = config["layer_types"][i] == "sliding_attention"
    return config["sliding_window"] if sliding else None


def _qk_norm(config: Config) -> keras.layers.Layer | None:
    if not config.get("query_key_norm"):
        return None
    return keras.layers.RMSNormalization(epsilon=config["rms_norm_eps"])


# From keras_attn layers to the modules of `transformers`.
_OUTER_MODULES = {
    "embedding": "model.embed_tokens",
    "embedding/reverse_embeddings": "lm_head.weight",
    "norm": "model.norm",
}
_BLOCK_MODULES = {
    "self_attention_layer_norm": "input_layernorm",
    "self_attention/query": "self_attn.q_proj",
    "self_attention/query_norm": "self_attn.q_norm",
    "self_attention/key": "self_attn.k_proj",
    "self_attention/key_norm": "self_attn.k_norm",
    "self_attention/value": "self_attn.v_proj",
    "self_attention/attention_output": "self_attn.o_proj",
    "feedforward_layer_norm": "post_attention_layernorm",
    "feed_forward/gate": "mlp.gate_proj",
    "feed_forward/intermediate": "mlp.up_proj",
    "feed_forward/output": "mlp.down_proj",
}


def _weight_map(model: keras.Model, config: Config, task: str) -> list[Entry]:
    num_blocks = config["num_hidden_layers"]
    blocks = block_modules("decoder_", "model.layers.", num_blocks, _BLOCK_MODULES)
    return map_weights(model, _OUTER_MODULES | blocks)


def _family(kind: str, class_prefix: str) -> Family:
    return Family(
        kind,
        {
            "hidden_states": f"{class_prefix}Model",
            "causal_language_model": f"{class_prefix}ForCausalLM",
        },
        functools.partial(_build, kind),
        _weight_map,
        base_prefix="model.",
        head_prefixes=("lm_head.", "score.", "qa_outputs."),
        ignored_suffixes=("rotary_emb.inv_freq",),
        config_overrides=untied_head_overrides(
            "lm_head.weight", "model.embed_tokens.weight"
        ),
    )


FAMILIES = [
    _family("llama", "Llama"),
    _family("mistral", "Mistral"),
    _family("qwen2", "Qwen2"),
    _family("qwen3", "Qwen3"),
]
