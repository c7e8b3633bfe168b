"""BERT, RoBERTa and DistilBERT: one encoder with three sets of parameter names."""

import functools
from typing import Any

import keras
from keras import ops

from keras_attn import layers
from keras_attn.checkpoints.activations import get_activation
from keras_attn.checkpoints.family import (
    BuildOptions,
    Family,
    ModelInputs,
    ids_input,
    untied_head_overrides,
)
from keras_attn.checkpoints.folder import Config, Folder
from keras_attn.checkpoints.weight_map import (
    Entry,
    SkippedRows,
    block_modules,
    map_weights,
)
from keras_attn.layers.embedding.output_bias import OutputBias
from keras_attn.layers.embedding.pooling import TokenPooling

__all__ = ["FAMILIES"]

# From config entries of BERT and RoBERTa to those of DistilBERT.
_DISTILBERT_ENTRIES = {
    "hidden_size": "dim",
    "intermediate_size": "hidden_dim",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "hidden_act": "activation",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "classifier_dropout": "seq_classif_dropout",
}


# Values of entries that a config can omit.
_DEFAULTS = {
    "layer_norm_eps": 1e-12,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "type_vocab_size": 2,
}


def _config_overrides(kind: str, folder: Folder) -> dict[str, Any]:
    if folder.config.get("is_decoder"):
        raise ValueError(
            "A causal decoder of this family is not supported. "
            f"Received: model_type={kind!r}, is_decoder=True"
        )
    head = _HEADS[kind]["embedding/reverse_embeddings"]
    embedding = f"{kind}.embeddings.word_embeddings.weight"
    return untied_head_overrides(head, embedding)(folder)


def _complete_config(kind: str, config: Config) -> Config:
    """Return a config with the entries of BERT and with default values."""
    if kind == "distilbert":
        config = Config(config)
        optional = {*_DEFAULTS, "classifier_dropout"}
        config.update(
            (name, config[distilbert_name])
            for name, distilbert_name in _DISTILBERT_ENTRIES.items()
            if distilbert_name in config or name not in optional
        )
        config.update(layer_norm_eps=1e-12, type_vocab_size=0)
    return Config({**_DEFAULTS, **config})


def _build(
    kind: str, config: Config, task: str, options: BuildOptions
) -> tuple[ModelInputs, keras.KerasTensor]:
    """Return the inputs and the output of a model.

    The model consists of embeddings, post-norm encoder blocks and the head of the task.
    """
    config = _complete_config(kind, config)
    epsilon = config["layer_norm_eps"]
    dropout: Any = options.dropout
    attention_dropout: Any = dropout
    if dropout is None:
        dropout = config["hidden_dropout_prob"]
        attention_dropout = config["attention_probs_dropout_prob"]

    token_ids = inputs = ids_input("token_ids")
    embedding = layers.TokenEmbedding(
        config["vocab_size"],
        config["hidden_size"],
        padding_id=_padding_id(config),
        tie_weights=task != "masked_language_model"
        or config.get("tie_word_embeddings", True),
        name="embedding",
    )
    x = embedding(token_ids)
    length = config["max_position_embeddings"] - _num_unused_positions(kind, config)
    x = layers.PositionEmbedding(length, name="position")(x)
    if config["type_vocab_size"]:
        token_type_ids = ops.zeros_like(token_ids)
        if options.use_token_type_ids:
            token_type_ids = ids_input("token_type_ids")
            inputs = {"token_ids": token_ids, "token_type_ids": token_type_ids}
        x = layers.PositionEmbedding(config["type_vocab_size"], name="token_type")(
            x, positions=token_type_ids
        )
    x = keras.layers.LayerNormalization(epsilon=epsilon, name="norm")(x)
    x = keras.layers.Dropout(dropout, name="dropout")(x)
    for i in range(config["num_hidden_layers"]):
        x = layers.TransformerEncoder(
            config["intermediate_size"],
            config["num_attention_heads"],
            dropout=dropout,
            attention=layers.MultiHeadSelfAttention(
                config["num_attention_heads"],
                dropout=attention_dropout,
                name="self_attention",
            ),
            activation=get_activation(config["hidden_act"]),
            layer_norm_epsilon=epsilon,
            name=f"encoder_{i}",
        )(x)
    if task == "sentence_embedding":
        x = _sentence_embedding(config, options, token_ids, x)
    elif task == "classification":
        x = _class_logits(kind, config, options, x)
    elif task == "masked_language_model":
        x = _token_logits(config, embedding, x)
    return inputs, x


def _sentence_embedding(
    config: Config,
    options: BuildOptions,
    token_ids: keras.KerasTensor,
    x: keras.KerasTensor,
) -> keras.KerasTensor:
    """Return one vector `(B, D)` per batch element."""
    assert options.pooling is not None
    padding_mask = ops.not_equal(token_ids, _padding_id(config))
    x = TokenPooling(options.pooling["pooling"], name="pooled")(x, padding_mask)
    if options.pooling["normalize"]:
        x = keras.layers.UnitNormalization(name="unit_norm")(x)
    return x


def _class_logits(
    kind: str, config: Config, options: BuildOptions, x: keras.KerasTensor
) -> keras.KerasTensor:
    """Return the logits `(B, num_classes)`, computed from the first token."""
    activation = "relu" if kind == "distilbert" else "tanh"
    dropout = options.dropout
    if dropout is None:
        dropout = config.get("classifier_dropout")
    if dropout is None:
        dropout = config["hidden_dropout_prob"]
    x = x[:, 0]
    if kind == "roberta":
        x = keras.layers.Dropout(dropout, name="first_dropout")(x)
    x = keras.layers.Dense(config["hidden_size"], activation, name="pooler")(x)
    x = keras.layers.Dropout(dropout, name="pooled_dropout")(x)
    return keras.layers.Dense(len(config["id2label"]), name="logits")(x)


def _token_logits(
    config: Config, embedding: layers.TokenEmbedding, x: keras.KerasTensor
) -> keras.KerasTensor:
    """Return the logits `(B, T, V)` of the token at each position."""
    activation = get_activation(config["hidden_act"])
    x = keras.layers.Dense(config["hidden_size"], activation, name="head")(x)
    epsilon = config["layer_norm_eps"]
    x = keras.layers.LayerNormalization(epsilon=epsilon, name="head_norm")(x)
    return OutputBias(name="head_bias")(embedding(x, reverse=True))


def _padding_id(config: Config) -> int:
    return config.get("pad_token_id") or 0


def _num_unused_positions(kind: str, config: Config) -> int:
    # RoBERTa's positions start after the padding id.
    return config["pad_token_id"] + 1 if kind == "roberta" else 0


# From keras_attn layers to the modules of `transformers`.
_EMBEDDINGS = {
    "embedding": "word_embeddings",
    "position": "position_embeddings",
    "token_type": "token_type_embeddings",
    "norm": "LayerNorm",
}
_BERT_BLOCK = {
    "self_attention/query": "attention.self.query",
    "self_attention/key": "attention.self.key",
    "self_attention/value": "attention.self.value",
    "self_attention/attention_output": "attention.output.dense",
    "self_attention_layer_norm": "attention.output.LayerNorm",
    "feed_forward/intermediate": "intermediate.dense",
    "feed_forward/output": "output.dense",
    "feedforward_layer_norm": "output.LayerNorm",
}
_DISTILBERT_BLOCK = {
    "self_attention/query": "attention.q_lin",
    "self_attention/key": "attention.k_lin",
    "self_attention/value": "attention.v_lin",
    "self_attention/attention_output": "attention.out_lin",
    "self_attention_layer_norm": "sa_layer_norm",
    "feed_forward/intermediate": "ffn.lin1",
    "feed_forward/output": "ffn.lin2",
    "feedforward_layer_norm": "output_layer_norm",
}
_BLOCKS = {
    "bert": ("encoder.layer", _BERT_BLOCK),
    "roberta": ("encoder.layer", _BERT_BLOCK),
    "distilbert": ("transformer.layer", _DISTILBERT_BLOCK),
}
_HEADS = {
    "bert": {
        "embedding/reverse_embeddings": "cls.predictions.decoder.weight",
        "pooler": "bert.pooler.dense",
        "logits": "classifier",
        "head": "cls.predictions.transform.dense",
        "head_norm": "cls.predictions.transform.LayerNorm",
        "head_bias": "cls.predictions",
    },
    "roberta": {
        "embedding/reverse_embeddings": "lm_head.decoder.weight",
        "pooler": "classifier.dense",
        "logits": "classifier.out_proj",
        "head": "lm_head.dense",
        "head_norm": "lm_head.layer_norm",
        "head_bias": "lm_head",
    },
    "distilbert": {
        "embedding/reverse_embeddings": "vocab_projector.weight",
        "pooler": "pre_classifier",
        "logits": "classifier",
        "head": "vocab_transform",
        "head_norm": "vocab_layer_norm",
        "head_bias": "vocab_projector",
    },
}


def _weight_map(
    kind: str, model: keras.Model, config: Config, task: str
) -> list[Entry]:
    base = f"{kind}."
    modules = dict(_HEADS[kind])
    if not config.get("tie_word_embeddings", True):
        # The bias belongs to the projection if that is not tied.
        decoder = modules["embedding/reverse_embeddings"]
        modules["head_bias"] = decoder.removesuffix(".weight")
    modules.update({a: f"{base}embeddings.{b}" for a, b in _EMBEDDINGS.items()})
    blocks, block = _BLOCKS[kind]
    num_blocks = config.get("num_hidden_layers") or config["n_layers"]
    modules |= block_modules("encoder_", f"{base}{blocks}.", num_blocks, block)
    unused = _num_unused_positions(kind, config)
    layouts = {"position/embeddings": SkippedRows(unused)} if unused else {}
    return map_weights(model, modules, layouts=layouts)


def _family(kind: str, class_prefix: str) -> Family:
    tasks = {
        "hidden_states": "Model",
        "sentence_embedding": "Model",
        "masked_language_model": "ForMaskedLM",
        "classification": "ForSequenceClassification",
    }
    return Family(
        kind,
        {task: class_prefix + suffix for task, suffix in tasks.items()},
        functools.partial(_build, kind),
        functools.partial(_weight_map, kind),
        base_prefix=f"{kind}.",
        head_prefixes=(
            *("pooler.", "cls.", "classifier.", "lm_head.", "qa_outputs."),
            *("pre_classifier.", "vocab_", "embeddings.position_ids"),
        ),
        new_layers=("pooler", "logits"),
        aliases=(
            (".LayerNorm.weight", ".LayerNorm.gamma"),
            (".LayerNorm.bias", ".LayerNorm.beta"),
        ),
        config_overrides=functools.partial(_config_overrides, kind),
    )


FAMILIES = [
    _family("bert", "Bert"),
    _family("roberta", "Roberta"),
    _family("distilbert", "DistilBert"),
]
