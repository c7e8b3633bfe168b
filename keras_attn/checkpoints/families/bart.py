"""BART and Marian: the paper's encoder and decoder, for text to text."""

import functools

import keras
from keras import ops

from keras_attn import layers
from keras_attn.checkpoints.activations import named
from keras_attn.checkpoints.family import Family
from keras_attn.checkpoints.names import Dropped, Kernel, entries, numbered
from keras_attn.layers.embedding.output_bias import OutputBias

__all__ = ["FAMILIES"]

_SIDES = {
    "source": ("encoder", layers.TransformerEncoder),
    "target": ("decoder", layers.TransformerDecoder),
}
# BART's tables of positions begin with rows that are never read.
_UNREAD_POSITIONS = 2


def _shares_embedding(config):
    tied = config.get("tie_word_embeddings", True)
    return tied and config.get("share_encoder_decoder_embeddings", True)


def _embeddings(config, has_head):
    """Those of source and target, which may be one."""

    def embedding(size, name, **options):
        # No padding: it is the token that most targets begin with.
        scale = config.get("scale_embedding", False)
        return layers.TokenEmbedding(
            size, config["d_model"], scale, padding_id=None, name=name, **options
        )

    if _shares_embedding(config):
        return (embedding(config["vocab_size"], "embedding"),) * 2
    source = embedding(config["vocab_size"], "source_embedding")
    size = config.get("decoder_vocab_size") or config["vocab_size"]
    tied = not has_head or config.get("tie_word_embeddings", True)
    return source, embedding(size, "target_embedding", tie_weights=tied)


def _build(kind, config, task, options):
    """Each branch normalized after its sum; embeddings too, in BART."""

    def rate(name):
        return config.get(name, 0.0) if options.dropout is None else options.dropout

    def embed(embedding, ids, side):
        x = embedding(ids)
        name = f"{side}_position"
        if kind == "marian":
            x = layers.SinusoidalPositionEmbedding(interleaved=False, name=name)(x)
        else:
            length = config["max_position_embeddings"]
            x = layers.PositionEmbedding(length, name=name)(x)
            norm = keras.layers.LayerNormalization(epsilon=1e-5, name=f"{side}_norm")
            x = norm(x)
        return keras.layers.Dropout(rate("dropout"), name=f"{side}_dropout")(x)

    def block(side, i):
        stack, block_class = _SIDES[side]
        heads = config[f"{stack}_attention_heads"]
        middle = config[f"{stack}_ffn_dim"]
        attention_rate = rate("attention_dropout")
        parts = {
            "attention": layers.MultiHeadSelfAttention(
                heads, dropout=attention_rate, name="self_attention"
            ),
            "feed_forward": layers.FeedForward(
                middle,
                activation=named(config["activation_function"]),
                dropout=rate("activation_dropout"),
                name="feed_forward",
            ),
        }
        if side == "target":
            parts["cross_attention"] = layers.CrossAttention(
                heads, dropout=attention_rate, name="cross_attention"
            )
        return block_class(
            middle, heads, dropout=rate("dropout"), name=f"{stack}_{i}", **parts
        )

    has_head = task == "translation"
    source_embedding, target_embedding = _embeddings(config, has_head)
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    keep = ops.not_equal(source, config["pad_token_id"])
    encoded = embed(source_embedding, source, "source")
    for i in range(config["encoder_layers"]):
        encoded = block("source", i)(encoded, padding_mask=keep)
    x = embed(target_embedding, target, "target")
    for i in range(config["decoder_layers"]):
        x = block("target", i)(x, encoded, encoder_padding_mask=keep)
    if has_head:
        x = OutputBias(name="logits")(target_embedding(x, reverse=True))
    return {"source": source, "target": target}, x


# Layers of ours and modules of theirs.
_BLOCK = {
    "self_attention/query": "self_attn.q_proj",
    "self_attention/key": "self_attn.k_proj",
    "self_attention/value": "self_attn.v_proj",
    "self_attention/attention_output": "self_attn.out_proj",
    "self_attention_layer_norm": "self_attn_layer_norm",
    "cross_attention/query": "encoder_attn.q_proj",
    "cross_attention/key": "encoder_attn.k_proj",
    "cross_attention/value": "encoder_attn.v_proj",
    "cross_attention/attention_output": "encoder_attn.out_proj",
    "cross_attention_layer_norm": "encoder_attn_layer_norm",
    "feed_forward/intermediate": "fc1",
    "feed_forward/output": "fc2",
    "feedforward_layer_norm": "final_layer_norm",
}


def _names(model, config, task):
    modules = {
        "embedding": "model.shared",
        "target_embedding/reverse_embeddings": "lm_head.weight",
        "logits/bias": "final_logits_bias",
    }
    # Theirs is a matrix of one row.
    layouts = {"logits/bias": Kernel(inputs=0, turned=False)}
    for side, (stack, _) in _SIDES.items():
        theirs = f"model.{stack}"
        modules[f"{side}_embedding"] = f"{theirs}.embed_tokens"
        modules[f"{side}_position"] = f"{theirs}.embed_positions"
        modules[f"{side}_norm"] = f"{theirs}.layernorm_embedding"
        layouts[f"{side}_position/embeddings"] = Dropped(_UNREAD_POSITIONS)
        count = config[f"{stack}_layers"]
        modules |= numbered(f"{stack}_", f"{theirs}.layers.", count, _BLOCK)
    return entries(model, modules, layouts=layouts)


def _family(kind, tasks):
    return Family(
        kind,
        tasks,
        functools.partial(_build, kind),
        _names,
        base="model.",
        heads=(
            *("final_logits_bias", "lm_head."),
            # Copies of what is shared; and what would be, where nothing is.
            *("encoder.embed_tokens.", "decoder.embed_tokens.", "shared."),
        ),
        # Marian's positions are sines and cosines: read only where they are learned.
        buffers=("embed_positions.weight", "coder.version"),
        fresh=("logits",),
        # One matrix where it is shared, of which a file may have any name.
        aliases=(
            ("shared.weight", "decoder.embed_tokens.weight"),
            ("shared.weight", "encoder.embed_tokens.weight"),
        ),
    )


FAMILIES = [
    _family(
        "bart",
        {"hidden_states": "BartModel", "translation": "BartForConditionalGeneration"},
    ),
    _family(
        "marian",
        {"hidden_states": "MarianModel", "translation": "MarianMTModel"},
    ),
]
