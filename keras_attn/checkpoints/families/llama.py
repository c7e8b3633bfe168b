"""Llama, Mistral, Qwen2 and Qwen3: one decoder, of which each has its settings."""

import functools

import keras

from keras_attn import layers
from keras_attn.checkpoints.activations import named
from keras_attn.checkpoints.family import Family, untied
from keras_attn.checkpoints.names import entries, numbered

__all__ = ["FAMILIES"]

# What a config may leave out.
_USUAL = {
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
# What is the same in all models of a family, whatever their config says.
_SETTINGS = {
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


def _build(kind, config, task, options):
    """The blocks, a last normalization, and logits by a matrix of its own or the
    embedding's."""
    config = type(config)({**_USUAL, **config, **_SETTINGS[kind]})
    epsilon = config["rms_norm_eps"]
    attention_dropout, dropout = config["attention_dropout"], 0.0
    if options.dropout is not None:
        attention_dropout = dropout = options.dropout

    target = keras.Input((None,), dtype="int32", name="target")
    embedding = layers.TokenEmbedding(
        config["vocab_size"],
        config["hidden_size"],
        padding_id=None,
        tie_weights=task == "hidden_states" or config["tie_word_embeddings"],
        name="embedding",
    )
    x = embedding(target)
    for i in range(config["num_hidden_layers"]):
        attention = layers.MultiHeadSelfAttention(
            config["num_attention_heads"],
            config["head_dim"],
            dropout=attention_dropout,
            num_key_value_heads=config["num_key_value_heads"],
            position=_position(config),
            sliding_window=_window(config, i),
            qk_norm=_query_key_norm(config),
            use_bias=config["attention_bias"],
            use_output_bias=config.get("attention_output_bias"),
            name="self_attention",
        )
        x = layers.TransformerDecoder(
            config["intermediate_size"],
            config["num_attention_heads"],
            dropout=dropout,
            activation=named(config["hidden_act"]),
            layer_norm_epsilon=epsilon,
            normalize_first=True,
            attention=attention,
            normalization="rms_norm",
            use_bias=config["mlp_bias"],
            gated=True,
            name=f"decoder_{i}",
        )(x)
    x = keras.layers.RMSNormalization(epsilon=epsilon, name="norm")(x)
    if task == "causal_language_model":
        x = embedding(x, reverse=True)
    return target, x


def _position(config):
    """Rotary positions, in the words of newer configs or of older ones."""
    scaling = dict(config.get("rope_scaling") or config.get("rope_parameters") or {})
    wavelength = scaling.pop("rope_theta", config.get("rope_theta", 10000.0))
    if scaling.get("rope_type", scaling.get("type")) in ("yarn", "llama3"):
        key = "original_max_position_embeddings"
        default = scaling.get(key, config.get("max_position_embeddings"))
        scaling[key] = config.get(key, default)
    return layers.RotaryPositionEmbedding(wavelength, scaling=scaling or None)


def _window(config, i):
    """How many tokens block `i` sees, None for all."""
    if not config["use_sliding_window"]:
        return None
    sliding = i >= config["max_window_layers"]
    if config["layer_types"] is not None:
        sliding = config["layer_types"][i] == "sliding_attention"
    return config["sliding_window"] if sliding else None


def _query_key_norm(config):
    if not config.get("query_key_norm"):
        return None
    return keras.layers.RMSNormalization(epsilon=config["rms_norm_eps"])


# Layers of ours and modules of theirs.
_AROUND = {
    "embedding": "model.embed_tokens",
    "embedding/reverse_embeddings": "lm_head.weight",
    "norm": "model.norm",
}
_BLOCK = {
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


def _names(model, config, task):
    count = config["num_hidden_layers"]
    return entries(
        model, _AROUND | numbered("decoder_", "model.layers.", count, _BLOCK)
    )


def _family(kind, spelled):
    return Family(
        kind,
        {
            "hidden_states": f"{spelled}Model",
            "causal_language_model": f"{spelled}ForCausalLM",
        },
        functools.partial(_build, kind),
        _names,
        base="model.",
        heads=("lm_head.", "score.", "qa_outputs."),
        buffers=("rotary_emb.inv_freq",),
        settings=untied("lm_head.weight", "model.embed_tokens.weight"),
    )


FAMILIES = [
    _family("llama", "Llama"),
    _family("mistral", "Mistral"),
    _family("qwen2", "Qwen2"),
    _family("qwen3", "Qwen3"),
]
