"""BART and Marian: the original Transformer for text-to-text tasks."""

import functools
from typing import Any

import keras
from keras import ops

from keras_attn import layers
from keras_attn.checkpoints.activations import get_activation
from keras_attn.checkpoints.family import BuildOptions, Family, ids_input
from keras_attn.checkpoints.folder import Config
from keras_attn.checkpoints.weight_map import (
    Entry,
    Layout,
    Matrix,
    SkippedRows,
    block_modules,
    map_weights,
)
from keras_attn.layers.embedding.output_bias import OutputBias

__all__ = ["FAMILIES"]

_STACKS = {"source": "encoder", "target": "decoder"}
# The first rows of BART's position tables are not used.
_NUM_UNUSED_POSITIONS = 2


def _shares_embedding(config: Config) -> bool:
    tied = config.get("tie_word_embeddings", True)
    return tied and config.get("share_encoder_decoder_embeddings", True)


def _embeddings(
    config: Config, has_head: bool
) -> tuple[layers.TokenEmbedding, layers.TokenEmbedding]:
    """Return the embeddings of source and target, which can be the same layer."""

    def embedding(size: int, name: str, **options: Any) -> layers.TokenEmbedding:
        # No padding id: most targets start with the padding token.
        scale = config.get("scale_embedding", False)
        return layers.TokenEmbedding(
            size, config["d_model"], scale, padding_id=None, name=name, **options
        )

    if _shares_embedding(config):
        shared = embedding(config["vocab_size"], "embedding")
        return shared, shared
    source = embedding(config["vocab_size"], "source_embedding")
    size = config.get("decoder_vocab_size") or config["vocab_size"]
    tied = not has_head or config.get("tie_word_embeddings", True)
    return source, embedding(size, "target_embedding", tie_weights=tied)


def _dropout_rate(config: Config, options: BuildOptions, name: str) -> float:
    return config.get(name, 0.0) if options.dropout is None else options.dropout


def _embed(
    kind: str,
    config: Config,
    options: BuildOptions,
    side: str,
    embedding: layers.TokenEmbedding,
    token_ids: keras.KerasTensor,
) -> keras.KerasTensor:
    """Apply the token and position embeddings of one side, `(B, T)` to `(B, T, D)`."""
    x = embedding(token_ids)
    name = f"{side}_position"
    if kind == "marian":
        x = layers.SinusoidalPositionEmbedding(interleaved=False, name=name)(x)
    else:
        length = config["max_position_embeddings"]
        x = layers.PositionEmbedding(length, name=name)(x)
        norm = keras.layers.LayerNormalization(epsilon=1e-5, name=f"{side}_norm")
        x = norm(x)
    rate = _dropout_rate(config, options, "dropout")
    return keras.layers.Dropout(rate, name=f"{side}_dropout")(x)


def _block(
    config: Config, options: BuildOptions, side: str, i: int
) -> layers.TransformerEncoder | layers.TransformerDecoder:
    """Return a post-norm block of the encoder or the decoder."""
    stack = _STACKS[side]
    heads = config[f"{stack}_attention_heads"]
    intermediate_dim = config[f"{stack}_ffn_dim"]
    attention_dropout = _dropout_rate(config, options, "attention_dropout")
    parts: dict[str, Any] = {
        "attention": layers.MultiHeadSelfAttention(
            heads, dropout=attention_dropout, name="self_attention"
        ),
        "feed_forward": layers.FeedForward(
            intermediate_dim,
            activation=get_activation(config["activation_function"]),
            dropout=_dropout_rate(config, options, "activation_dropout"),
            name="feed_forward",
        ),
    }
    block_class = layers.TransformerEncoder
    if side == "target":
        block_class = layers.TransformerDecoder
        parts["cross_attention"] = layers.CrossAttention(
            heads, dropout=attention_dropout, name="cross_attention"
        )
    dropout = _dropout_rate(config, options, "dropout")
    return block_class(
        intermediate_dim, heads, dropout=dropout, name=f"{stack}_{i}", **parts
    )


def _build(
    kind: str, config: Config, task: str, options: BuildOptions
) -> tuple[dict[str, keras.KerasTensor], keras.KerasTensor]:
    """Return the inputs and the output of a model."""
    has_head = task == "translation"
    source_embedding, target_embedding = _embeddings(config, has_head)
    source = ids_input("source")
    target = ids_input("target")
    padding_mask = ops.not_equal(source, config["pad_token_id"])
    encoded = _embed(kind, config, options, "source", source_embedding, source)
    for i in range(config["encoder_layers"]):
        block = _block(config, options, "source", i)
        encoded = block(encoded, padding_mask=padding_mask)
    x = _embed(kind, config, options, "target", target_embedding, target)
    for i in range(config["decoder_layers"]):
        block = _block(config, options, "target", i)
        x = block(x, encoded, encoder_padding_mask=padding_mask)
    if has_head:
        x = OutputBias(name="logits")(target_embedding(x, reverse=True))
    return {"source": source, "target": target}, x


# From keras_attn layers to the modules of `transformers`.
_BLOCK_MODULES = {
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


def _weight_map(model: keras.Model, config: Config, task: str) -> list[Entry]:
    modules = {
        "embedding": "model.shared",
        "target_embedding/reverse_embeddings": "lm_head.weight",
        "logits/bias": "final_logits_bias",
    }
    # The bias is stored as a matrix with one row.
    layouts: dict[str, Layout] = {
        "logits/bias": Matrix(num_input_axes=0, transposed=False)
    }
    for side, stack in _STACKS.items():
        module = f"model.{stack}"
        modules[f"{side}_embedding"] = f"{module}.embed_tokens"
        modules[f"{side}_position"] = f"{module}.embed_positions"
        modules[f"{side}_norm"] = f"{module}.layernorm_embedding"
        layouts[f"{side}_position/embeddings"] = SkippedRows(_NUM_UNUSED_POSITIONS)
        num_blocks = config[f"{stack}_layers"]
        modules |= block_modules(
            f"{stack}_", f"{module}.layers.", num_blocks, _BLOCK_MODULES
        )
    return map_weights(model, modules, layouts=layouts)


def _family(kind: str, tasks: dict[str, str]) -> Family:
    return Family(
        kind,
        tasks,
        functools.partial(_build, kind),
        _weight_map,
        base_prefix="model.",
        head_prefixes=(
            *("final_logits_bias", "lm_head."),
            # Copies of the shared embedding, and an unused one if nothing is shared.
            *("encoder.embed_tokens.", "decoder.embed_tokens.", "shared."),
        ),
        # Marian's sinusoidal positions; learned positions have an entry.
        ignored_suffixes=("embed_positions.weight", "coder.version"),
        new_layers=("logits",),
        # A file can store the shared embedding under any of these names.
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
