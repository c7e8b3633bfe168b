"""GPT-2: decoder blocks that normalize first, with learned positions."""

import keras

from keras_attn import layers
from keras_attn.checkpoints.activations import named
from keras_attn.checkpoints.family import Family, untied
from keras_attn.checkpoints.names import Kernel, entries, numbered

__all__ = ["FAMILIES"]


def _build(config, task, options):
    """The blocks, a last normalization, and logits by the embedding of the tokens."""
    width, heads = config["n_embd"], config["n_head"]
    epsilon = config["layer_norm_epsilon"]

    def dropout(where):
        return config[where] if options.dropout is None else options.dropout

    target = keras.Input((None,), dtype="int32", name="target")
    embedding = layers.TokenEmbedding(
        config["vocab_size"],
        width,
        padding_id=None,
        tie_weights=task == "hidden_states" or config.get("tie_word_embeddings", True),
        name="embedding",
    )
    x = embedding(target)
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
            activation=named(config["activation_function"]),
            layer_norm_epsilon=epsilon,
            normalize_first=True,
            attention=attention,
            name=f"decoder_{i}",
        )(x)
    x = keras.layers.LayerNormalization(epsilon=epsilon, name="norm")(x)
    if task == "causal_language_model":
        x = embedding(x, reverse=True)
    return target, x


def _scale(config, i):
    """What the scores of block `i` are multiplied by."""
    scale = 1.0
    if config.get("scale_attn_weights", True):
        scale = (config["n_embd"] // config["n_head"]) ** -0.5
    if config.get("scale_attn_by_inverse_layer_idx", False):
        scale /= i + 1
    return scale


# Layers of ours and modules of theirs.
_AROUND = {
    "embedding": "transformer.wte",
    "embedding/reverse_embeddings": "lm_head.weight",
    "position": "transformer.wpe",
    "norm": "transformer.ln_f",
}
_BLOCK = {
    "self_attention_layer_norm": "ln_1",
    "self_attention/query": "attn.c_attn",
    "self_attention/key": "attn.c_attn",
    "self_attention/value": "attn.c_attn",
    "self_attention/attention_output": "attn.c_proj",
    "feedforward_layer_norm": "ln_2",
    "feed_forward/intermediate": "mlp.c_fc",
    "feed_forward/output": "mlp.c_proj",
}


def _names(model, config, task):
    blocks = numbered("decoder_", "transformer.h.", config["n_layer"], _BLOCK)
    # Their own kind of dense layer keeps its kernel as ours do, but for this one.
    layouts = {"embedding/reverse_embeddings": Kernel(turned=True)}
    return entries(model, _AROUND | blocks, turned=False, layouts=layouts)


FAMILIES = [
    Family(
        "gpt2",
        {"hidden_states": "GPT2Model", "causal_language_model": "GPT2LMHeadModel"},
        _build,
        _names,
        base="transformer.",
        heads=("lm_head.", "score.", "classifier.", "multiple_choice_head."),
        buffers=(".attn.bias", ".attn.masked_bias"),
        settings=untied("lm_head.weight", "transformer.wte.weight"),
    )
]
