"""BERT, RoBERTa and DistilBERT: one encoder, three ways to name its parts."""

import functools

import keras
from keras import ops

from keras_attn import layers
from keras_attn.checkpoints.activations import named
from keras_attn.checkpoints.family import Family, untied
from keras_attn.checkpoints.names import Dropped, entries, numbered
from keras_attn.layers.embedding.output_bias import OutputBias
from keras_attn.layers.embedding.pooling import TokenPooling

__all__ = ["FAMILIES"]

# DistilBERT's names for what is in BERT's config, which RoBERTa's is like.
_DISTILBERT = {
    "hidden_size": "dim",
    "intermediate_size": "hidden_dim",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "hidden_act": "activation",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "classifier_dropout": "seq_classif_dropout",
}


# What a config may leave out.
_USUAL = {
    "layer_norm_eps": 1e-12,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "type_vocab_size": 2,
}


def _settings(kind, folder):
    if folder.config.get("is_decoder"):
        raise ValueError(
            "A model of this family that is a decoder, where tokens see what comes "
            f"before them alone, is not supported. Received: {kind}, is_decoder=True"
        )
    head = _HEADS[kind]["embedding/reverse_embeddings"]
    return untied(head, f"{kind}.embeddings.word_embeddings.weight")(folder)


def _build(kind, config, task, options):
    """The paper's encoder, each branch normalized after its sum, and a head."""
    if kind == "distilbert":
        config = type(config)(config)
        optional = {*_USUAL, "classifier_dropout"}
        config.update(
            (ours, config[theirs])
            for ours, theirs in _DISTILBERT.items()
            if theirs in config or ours not in optional
        )
        config.update(layer_norm_eps=1e-12, type_vocab_size=0)
    config = type(config)({**_USUAL, **config})
    width, epsilon = config["hidden_size"], config["layer_norm_eps"]
    dropout = attention_dropout = options.dropout
    if dropout is None:
        dropout = config["hidden_dropout_prob"]
        attention_dropout = config["attention_probs_dropout_prob"]
    padding_id = config.get("pad_token_id") or 0

    tokens = inputs = keras.Input((None,), dtype="int32", name="tokens")
    embedding = layers.TokenEmbedding(
        config["vocab_size"],
        width,
        padding_id=padding_id,
        tie_weights=task != "masked_language_model"
        or config.get("tie_word_embeddings", True),
        name="embedding",
    )
    x = embedding(tokens)
    length = config["max_position_embeddings"] - _unread_positions(kind, config)
    x = layers.PositionEmbedding(length, name="position")(x)
    if config["type_vocab_size"]:
        segments = ops.zeros_like(tokens)
        if options.use_segments:
            segments = keras.Input((None,), dtype="int32", name="segments")
            inputs = {"tokens": tokens, "segments": segments}
        x = layers.PositionEmbedding(config["type_vocab_size"], name="segment")(
            x, positions=segments
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
            activation=named(config["hidden_act"]),
            layer_norm_epsilon=epsilon,
            name=f"encoder_{i}",
        )(x)
    if task == "sentence_embedding":
        keep = ops.not_equal(tokens, padding_id)
        x = TokenPooling(options.pooling["pooling"], name="pooled")(x, keep)
        if options.pooling["normalize"]:
            x = keras.layers.UnitNormalization(name="unit_norm")(x)
    elif task == "classification":
        activation = "relu" if kind == "distilbert" else "tanh"
        last_dropout = config.get("classifier_dropout")
        if options.dropout is not None or last_dropout is None:
            last_dropout = dropout
        x = x[:, 0]
        if kind == "roberta":
            x = keras.layers.Dropout(last_dropout, name="first_dropout")(x)
        x = keras.layers.Dense(width, activation, name="pooler")(x)
        x = keras.layers.Dropout(last_dropout, name="pooled_dropout")(x)
        x = keras.layers.Dense(len(config["id2label"]), name="logits")(x)
    elif task == "masked_language_model":
        x = keras.layers.Dense(width, named(config["hidden_act"]), name="head")(x)
        x = keras.layers.LayerNormalization(epsilon=epsilon, name="head_norm")(x)
        x = OutputBias(name="head_bias")(embedding(x, reverse=True))
    return inputs, x


def _unread_positions(kind, config):
    # RoBERTa counts from where it has put padding.
    return config["pad_token_id"] + 1 if kind == "roberta" else 0


# Layers of ours and modules of theirs.
_EMBEDDINGS = {
    "embedding": "word_embeddings",
    "position": "position_embeddings",
    "segment": "token_type_embeddings",
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


def _names(kind, model, config, task):
    base = f"{kind}."
    modules = dict(_HEADS[kind])
    if not config.get("tie_word_embeddings", True):
        # A head of its own has a bias of its own.
        decoder = modules["embedding/reverse_embeddings"]
        modules["head_bias"] = decoder.removesuffix(".weight")
    modules.update({a: f"{base}embeddings.{b}" for a, b in _EMBEDDINGS.items()})
    blocks, block = _BLOCKS[kind]
    count = config.get("num_hidden_layers") or config["n_layers"]
    modules |= numbered("encoder_", f"{base}{blocks}.", count, block)
    unread = _unread_positions(kind, config)
    layouts = {"position/embeddings": Dropped(unread)} if unread else {}
    return entries(model, modules, layouts=layouts)


def _family(kind, spelled):
    tasks = {
        "hidden_states": "Model",
        "sentence_embedding": "Model",
        "masked_language_model": "ForMaskedLM",
        "classification": "ForSequenceClassification",
    }
    return Family(
        kind,
        {task: spelled + end for task, end in tasks.items()},
        functools.partial(_build, kind),
        functools.partial(_names, kind),
        base=f"{kind}.",
        heads=(
            *("pooler.", "cls.", "classifier.", "lm_head.", "qa_outputs."),
            *("pre_classifier.", "vocab_", "embeddings.position_ids"),
        ),
        fresh=("pooler", "logits"),
        aliases=(
            (".LayerNorm.weight", ".LayerNorm.gamma"),
            (".LayerNorm.bias", ".LayerNorm.beta"),
        ),
        settings=functools.partial(_settings, kind),
    )


FAMILIES = [
    _family("bert", "Bert"),
    _family("roberta", "Roberta"),
    _family("distilbert", "DistilBert"),
]
