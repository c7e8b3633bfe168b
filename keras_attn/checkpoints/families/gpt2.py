"""GPT-2: pre-norm decoder blocks with learned positions."""

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
from keras_attn.checkpoints.weight_map import (
    Entry,
    Matrix,
    block_modules,
    map_weights,
)

__all__ = ["FAMILIES"]


def _build(
    config: Config, task: str, options: BuildOptions
) -> tuple[keras.KerasTensor, keras.KerasTensor]:
    """Return the input and the output of a model.

    The model is a stack of blocks, a final normalization and, with a head, logits that
    are computed with the token embedding unless it is untied.
    """
    width, heads = config["n_embd"], config["n_head"]
    epsilon = config["layer_norm_epsilon"]

    def dropout(name: str) -> float:
        return config[name] if options.dropout is None else options.dropout

    token_ids = ids_input("token_ids")
    embedding = layers.TokenEmbedding(
        config["vocab_size"],
        width,
        padding_id=None,
        tie_weights=task == "hidden_states" or config.get("tie_word_embeddings", True),
        name="embedding",
    )
    x = embedding(token_ids)
    x = layers.PositionEmbedding(config["n_positions"], name="position")(x)
    x = keras.layers.Dropout(dropout("embd_pdrop"), name="dropout")(x)
    for i in range(config["n_layer"]):
        attention = layers.MultiHeadSelfAttention(
            heads,
            dropout=dropout("attn_pdrop"),
            scale=_scale(config, i),
            name="self_attention",
        )
        x = layers.TransformerDecoder(
            config.get("n_inner") or 4 * width,
            heads,
            dropout=dropout("resid_pdrop"),
            activation=get_activation(config["activation_function"]),
            layer_norm_epsilon=epsilon,
            normalize_first=True,
            attention=attention,
            name=f"decoder_{i}",
        )(x)
    x = keras.layers.LayerNormalization(epsilon=epsilon, name="norm")(x)
    if task == "causal_language_model":
        x = embedding(x, reverse=True)
    return token_ids, x


def _scale(config: Config, i: int) -> float:
    """Return the factor of the attention scores in block `i`."""
    scale = 1.0
    if config.get("scale_attn_weights", True):
        scale = (config["n_embd"] // config["n_head"]) ** -0.5
    if config.get("scale_attn_by_inverse_layer_idx", False):
        scale /= i + 1
    return scale


# From keras_attn layers to the modules of `transformers`.
_OUTER_MODULES = {
    "embedding": "transformer.wte",
    "embedding/reverse_embeddings": "lm_head.weight",
    "position": "transformer.wpe",
    "norm": "transformer.ln_f",
}
_BLOCK_MODULES = {
    "self_attention_layer_norm": "ln_1",
    "self_attention/query": "attn.c_attn",
    "self_attention/key": "attn.c_attn",
    "self_attention/value": "attn.c_attn",
    "self_attention/attention_output": "attn.c_proj",
    "feedforward_layer_norm": "ln_2",
    "feed_forward/intermediate": "mlp.c_fc",
    "feed_forward/output": "mlp.c_proj",
}


def _weight_map(model: keras.Model, config: Config, task: str) -> list[Entry]:
    blocks = block_modules(
        "decoder_", "transformer.h.", config["n_layer"], _BLOCK_MODULES
    )
    # GPT-2's `Conv1D` stores `(inputs, outputs)` like Keras; its head is a `Linear`.
    layouts = {"embedding/reverse_embeddings": Matrix(transposed=True)}
    return map_weights(
        model, _OUTER_MODULES | blocks, transposed=False, layouts=layouts
    )


FAMILIES = [
    Family(
        "gpt2",
        {"hidden_states": "GPT2Model", "causal_language_model": "GPT2LMHeadModel"},
        _build,
        _weight_map,
        base_prefix="transformer.",
        head_prefixes=("lm_head.", "score.", "classifier.", "multiple_choice_head."),
        ignored_suffixes=(".attn.bias", ".attn.masked_bias"),
        config_overrides=untied_head_overrides(
            "lm_head.weight", "transformer.wte.weight"
        ),
    )
]
