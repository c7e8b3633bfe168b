"""T5, of its first version and of v1.1, which Flan is one of."""

import keras
from keras import ops

from keras_attn import layers
from keras_attn.checkpoints.activations import named
from keras_attn.checkpoints.family import Family, untied
from keras_attn.checkpoints.names import entries

__all__ = ["FAMILIES"]

_HEAD = "lm_head.weight"
# One matrix, of which a file may have any name.
_EMBEDDINGS = (
    *("shared.weight", "decoder.embed_tokens.weight"),
    "encoder.embed_tokens.weight",
)


def _settings(folder):
    """Whether the head is tied, by the tensors: newer configs always say that it is.

    Older ones say so of those alone whose decoder's output is scaled.
    """
    config = folder.config
    tied = config.get("tie_word_embeddings", True)
    scaled = config.get("scale_decoder_outputs", tied)
    settings = {"tie_word_embeddings": tied, "scale_decoder_outputs": scaled}
    return settings | untied(_HEAD, *_EMBEDDINGS)(folder)


def _number_of_blocks(config, stack):
    number = config.get("num_decoder_layers") if stack == "decoder" else None
    return config["num_layers"] if number is None else number


def _activation(config):
    """The activation, and whether there is a gate."""
    gate, _, name = config.get("feed_forward_proj", "relu").rpartition("-")
    # What its config calls gelu is computed by the hyperbolic tangent.
    return named("gelu_new" if gate and name == "gelu" else name), bool(gate)


def _build(config, task, options):
    """Normalized before each branch, no biases, distances in place of positions."""
    heads, epsilon = config["num_heads"], config["layer_norm_epsilon"]
    rate = config["dropout_rate"] if options.dropout is None else options.dropout
    activation, gated = _activation(config)

    def attention(layer_class, name, **position):
        return layer_class(
            heads,
            config["d_kv"],
            dropout=rate,
            use_bias=False,
            scale=1.0,
            name=name,
            **position,
        )

    def block(stack, i, position):
        is_decoder = stack == "decoder"
        parts = {
            "attention": attention(
                layers.MultiHeadSelfAttention, "self_attention", position=position
            ),
            "feed_forward": layers.FeedForward(
                config["d_ff"],
                activation=activation,
                dropout=rate,
                use_bias=False,
                gated=gated,
                name="feed_forward",
            ),
        }
        if is_decoder:
            name = "cross_attention"
            parts[name] = attention(layers.CrossAttention, name)
        block_class = (
            layers.TransformerDecoder if is_decoder else layers.TransformerEncoder
        )
        return block_class(
            config["d_ff"],
            heads,
            dropout=rate,
            layer_norm_epsilon=epsilon,
            normalize_first=True,
            normalization="rms_norm",
            name=f"{stack}_{i}",
            **parts,
        )

    def through(stack, x, *encoded, **masks):
        position = layers.RelativePositionBias(
            heads,
            config["relative_attention_num_buckets"],
            config.get("relative_attention_max_distance", 128),
            bidirectional=stack == "encoder",
            name="distance",
        )
        x = keras.layers.Dropout(rate, name=f"{stack}_embedding_dropout")(x)
        for i in range(_number_of_blocks(config, stack)):
            x = block(stack, i, position)(x, *encoded, **masks)
        x = keras.layers.RMSNormalization(epsilon=epsilon, name=f"{stack}_norm")(x)
        return keras.layers.Dropout(rate, name=f"{stack}_dropout")(x)

    has_head = task == "translation"
    embedding = layers.TokenEmbedding(
        config["vocab_size"],
        config["d_model"],
        padding_id=None,  # it is the token that targets begin with
        tie_weights=config["tie_word_embeddings"] or not has_head,
        name="embedding",
    )
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    keep = ops.not_equal(source, config["pad_token_id"])
    encoded = through("encoder", embedding(source), padding_mask=keep)
    x = through("decoder", embedding(target), encoded, encoder_padding_mask=keep)
    if has_head:
        if config["scale_decoder_outputs"]:
            x = keras.layers.Rescaling(config["d_model"] ** -0.5, name="scale")(x)
        x = embedding(x, reverse=True)
    return {"source": source, "target": target}, x


# Parts of ours and of theirs, which are numbered.
_SELF_ATTENTION = ("self_attention", "SelfAttention")
_CROSS_ATTENTION = ("cross_attention", "EncDecAttention")
_PROJECTIONS = {"query": "q", "key": "k", "value": "v", "attention_output": "o"}
_DENSE = {"gate": "wi_0", "intermediate": "wi_1", "output": "wo"}


def _names(model, config, task):
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
        for i in range(_number_of_blocks(config, stack)):
            ours = f"{stack}_{i}"
            for place, (own, name) in enumerate(attentions):
                theirs = f"{stack}.block.{i}.layer.{place}"
                modules[f"{ours}/{own}_layer_norm"] = f"{theirs}.layer_norm"
                for part, projection in _PROJECTIONS.items():
                    modules[f"{ours}/{own}/{part}"] = f"{theirs}.{name}.{projection}"
            theirs = f"{stack}.block.{i}.layer.{len(attentions)}"
            modules[f"{ours}/feedforward_layer_norm"] = f"{theirs}.layer_norm"
            for part, name in dense.items():
                modules[f"{ours}/feed_forward/{part}"] = (
                    f"{theirs}.DenseReluDense.{name}"
                )
    return entries(model, modules)


FAMILIES = [
    Family(
        "t5",
        {"hidden_states": "T5Model", "translation": "T5ForConditionalGeneration"},
        _build,
        _names,
        settings=_settings,
        aliases=tuple((_EMBEDDINGS[0], other) for other in _EMBEDDINGS[1:]),
        heads=("lm_head.", "encoder.embed_tokens.", "decoder.embed_tokens."),
        buffers=("EncDecAttention.relative_attention_bias.weight",),
    )
]
