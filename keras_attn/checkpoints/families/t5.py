"""T5, version 1.0 and version 1.1, which includes Flan-T5."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_attn import layers
from keras_attn._types import Tensor
from keras_attn.checkpoints.activations import get_activation
from keras_attn.checkpoints.family import (
    BuildOptions,
    Family,
    ids_input,
    untied_head_overrides,
)
from keras_attn.checkpoints.folder import Config, Folder
from keras_attn.checkpoints.weight_map import Entry, map_weights

__all__ = ["FAMILIES"]

_HEAD = "lm_head.weight"
# A file can store the shared embedding under any of these names.
_EMBEDDINGS = (
    *("shared.weight", "decoder.embed_tokens.weight"),
    "encoder.embed_tokens.weight",
)


def _config_overrides(folder: Folder) -> dict[str, Any]:
    """Return whether the head is tied and whether the decoder's output is scaled.

    The tensors decide whether the head is tied, because newer configs always set
    `tie_word_embeddings`. Older configs omit
    `scale_decoder_outputs`, and `tie_word_embeddings` implies it.
    """
    config = folder.config
    tied = config.get("tie_word_embeddings", True)
    scaled = config.get("scale_decoder_outputs", tied)
    overrides = {"tie_word_embeddings": tied, "scale_decoder_outputs": scaled}
    return overrides | untied_head_overrides(_HEAD, *_EMBEDDINGS)(folder)


def _num_blocks(config: Config, stack: str) -> int:
    num_blocks = config.get("num_decoder_layers") if stack == "decoder" else None
    return config["num_layers"] if num_blocks is None else num_blocks


def _activation(config: Config) -> tuple[Any, bool]:
    """Return the activation, and whether the feed-forward network is gated."""
    gate, _, name = config.get("feed_forward_proj", "relu").rpartition("-")
    # T5's "gated-gelu" is the tanh approximation of GELU.
    name = "gelu_new" if gate and name == "gelu" else name
    return get_activation(name), bool(gate)


def _dropout_rate(config: Config, options: BuildOptions) -> float:
    return config["dropout_rate"] if options.dropout is None else options.dropout


def _attention(
    config: Config,
    options: BuildOptions,
    layer_class: Callable[..., keras.layers.Layer],
    name: str,
    **kwargs: Any,
) -> keras.layers.Layer:
    """Return an attention layer without biases and without scaling of the scores."""
    return layer_class(
        config["num_heads"],
        config["d_kv"],
        dropout=_dropout_rate(config, options),
        use_bias=False,
        scale=1.0,
        name=name,
        **kwargs,
    )


def _wide_dtype() -> str | None:
    """Return the dtype of the sums of the blocks, None for the default.

    In published models they exceed the largest float16 number. `transformers` keeps
    them in float32, too.
    """
    is_float16 = keras.config.dtype_policy().compute_dtype == "float16"
    return "float32" if is_float16 else None


def _block(
    config: Config,
    options: BuildOptions,
    stack: str,
    i: int,
    position: layers.RelativePositionBias,
) -> layers.TransformerEncoder | layers.TransformerDecoder:
    """Return a pre-norm block of the encoder or the decoder."""
    is_decoder = stack == "decoder"
    activation, gated = _activation(config)
    dropout = _dropout_rate(config, options)
    parts: dict[str, Any] = {
        "attention": _attention(
            config,
            options,
            layers.MultiHeadSelfAttention,
            "self_attention",
            position=position,
        ),
        "feed_forward": layers.FeedForward(
            config["d_ff"],
            activation=activation,
            dropout=dropout,
            use_bias=False,
            gated=gated,
            dtype=_wide_dtype(),
            name="feed_forward",
        ),
    }
    if is_decoder:
        name = "cross_attention"
        parts[name] = _attention(config, options, layers.CrossAttention, name)
    block_class = layers.TransformerDecoder if is_decoder else layers.TransformerEncoder
    return block_class(
        config["d_ff"],
        config["num_heads"],
        dropout=dropout,
        layer_norm_epsilon=config["layer_norm_epsilon"],
        normalize_first=True,
        normalization="rms_norm",
        dtype=_wide_dtype(),
        name=f"{stack}_{i}",
        **parts,
    )


def _apply_stack(
    config: Config,
    options: BuildOptions,
    stack: str,
    x: keras.KerasTensor,
    *encoded: keras.KerasTensor,
    **masks: Tensor,
) -> keras.KerasTensor:
    """Apply the encoder or the decoder.

    Its blocks share one relative position bias.
    """
    position = layers.RelativePositionBias(
        config["relative_attention_num_buckets"],
        config.get("relative_attention_max_distance", 128),
        bidirectional=stack == "encoder",
        name="distance",
    )
    dropout, epsilon = _dropout_rate(config, options), config["layer_norm_epsilon"]
    x = keras.layers.Dropout(dropout, name=f"{stack}_embedding_dropout")(x)
    for i in range(_num_blocks(config, stack)):
        x = _block(config, options, stack, i, position)(x, *encoded, **masks)
    x = keras.layers.RMSNormalization(
        epsilon=epsilon, dtype=_wide_dtype(), name=f"{stack}_norm"
    )(x)
    return keras.layers.Dropout(dropout, name=f"{stack}_dropout")(x)


def _build(
    config: Config, task: str, options: BuildOptions
) -> tuple[dict[str, keras.KerasTensor], keras.KerasTensor]:
    """Return the inputs and the output of a model."""
    has_head = task == "translation"
    embedding = layers.TokenEmbedding(
        config["vocab_size"],
        config["d_model"],
        padding_id=None,  # targets start with the padding token
        tie_weights=config["tie_word_embeddings"] or not has_head,
        name="embedding",
    )
    source = ids_input("source")
    target = ids_input("target")
    padding_mask = ops.not_equal(source, config["pad_token_id"])
    encoded = _apply_stack(
        config, options, "encoder", embedding(source), padding_mask=padding_mask
    )
    x = _apply_stack(
        config,
        options,
        "decoder",
        embedding(target),
        encoded,
        encoder_padding_mask=padding_mask,
    )
    if has_head:
        if config["scale_decoder_outputs"]:
            x = keras.layers.Rescaling(config["d_model"] ** -0.5, name="scale")(x)
        x = embedding(x, reverse=True)
    return {"source": source, "target": target}, x


# From keras_attn layers to the modules of `transformers`.
_SELF_ATTENTION = ("self_attention", "SelfAttention")
_CROSS_ATTENTION = ("cross_attention", "EncDecAttention")
_PROJECTIONS = {"query": "q", "key": "k", "value": "v", "attention_output": "o"}
_DENSE = {"gate": "wi_0", "intermediate": "wi_1", "output": "wo"}


def _weight_map(model: keras.Model, config: Config, task: str) -> list[Entry]:
    modules = {
        "embedding": "shared",
        "embedding/reverse_embeddings": _HEAD,
    }
    _, gated = _activation(config)
    dense = _DENSE if gated else _DENSE | {"intermediate": "wi"}
    for stack in ("encoder", "decoder"):
        attentions = [_SELF_ATTENTION] + [_CROSS_ATTENTION] * (stack == "decoder")
        modules[f"{stack}_norm"] = f"{stack}.final_layer_norm"
        modules[f"{stack}_0/self_attention/distance"] = (
            f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias"
        )
        for i in range(_num_blocks(config, stack)):
            block = f"{stack}_{i}"
            for number, (layer, name) in enumerate(attentions):
                module = f"{stack}.block.{i}.layer.{number}"
                modules[f"{block}/{layer}_layer_norm"] = f"{module}.layer_norm"
                for part, projection in _PROJECTIONS.items():
                    modules[f"{block}/{layer}/{part}"] = f"{module}.{name}.{projection}"
            module = f"{stack}.block.{i}.layer.{len(attentions)}"
            modules[f"{block}/feedforward_layer_norm"] = f"{module}.layer_norm"
            for part, name in dense.items():
                modules[f"{block}/feed_forward/{part}"] = (
                    f"{module}.DenseReluDense.{name}"
                )
    return map_weights(model, modules)


FAMILIES = [
    Family(
        "t5",
        {"hidden_states": "T5Model", "translation": "T5ForConditionalGeneration"},
        _build,
        _weight_map,
        config_overrides=_config_overrides,
        aliases=tuple((_EMBEDDINGS[0], other) for other in _EMBEDDINGS[1:]),
        head_prefixes=("lm_head.", "encoder.embed_tokens.", "decoder.embed_tokens."),
        ignored_suffixes=("EncDecAttention.relative_attention_bias.weight",),
    )
]
