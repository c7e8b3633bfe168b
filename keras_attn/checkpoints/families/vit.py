"""The Vision Transformer: the encoder over patches of an image."""

import numpy as np

from keras_attn.checkpoints.activations import named
from keras_attn.checkpoints.family import Family
from keras_attn.checkpoints.names import Entry, Layout, entries, numbered
from keras_attn.models import vision_transformer

__all__ = ["FAMILIES"]


def _build(config, task, options):
    """`models.vision_transformer`, with a head or without."""
    dropout = options.dropout
    model = vision_transformer(
        config["image_size"],
        len(config["id2label"]) if task == "classification" else None,
        patch_size=_side(config["patch_size"]),
        num_layers=config["num_hidden_layers"],
        hidden_dim=config["hidden_size"],
        intermediate_dim=config["intermediate_size"],
        num_heads=config["num_attention_heads"],
        dropout=config["hidden_dropout_prob"] if dropout is None else dropout,
        num_channels=config["num_channels"],
        activation=named(config["hidden_act"]),
        layer_norm_epsilon=config["layer_norm_eps"],
        qkv_bias=config.get("qkv_bias", True),
    )
    return model.input, model.output


def _side(patch_size):
    """The side of a patch: some configs give a pair of them."""
    if isinstance(patch_size, list) and len(set(patch_size)) == 1:
        return patch_size[0]
    return patch_size


class _Convolution(Layout):
    """The kernel of a convolution `(height, width, inputs, outputs)`, theirs
    `(outputs, inputs, height, width)`."""

    def shapes(self, ours):
        ((height, width, inputs, outputs),) = ours
        return ((outputs, inputs, height, width),)

    def rows_axis(self, shape):
        return 3

    def read(self, theirs, shapes):
        return (theirs[0].transpose(2, 3, 1, 0),)

    def write(self, ours):
        return (ours[0].transpose(3, 2, 0, 1),)


class _WithClassToken(Layout):
    """A table of positions whose first row is the class token's vector and that of its
    position added up, of which theirs are two tensors. Written, the token is zeros."""

    def shapes(self, ours):
        ((length, width),) = ours
        return (1, 1, width), (1, length, width)

    def read(self, theirs, shapes):
        # A sum of halves is none: float32 that loads them keeps all of it.
        token, table = (x[0].astype("float32") for x in theirs)
        return (np.concatenate([token + table[:1], table[1:]]),)

    def write(self, ours):
        (table,) = ours
        return np.zeros_like(table[None, :1]), table[None]


# Layers of ours and modules of theirs.
_AROUND = {
    "patches": "vit.embeddings.patch_embeddings.projection",
    "norm": "vit.layernorm",
    "logits": "classifier",
}
_BLOCK = {
    "self_attention_layer_norm": "layernorm_before",
    "self_attention/query": "attention.attention.query",
    "self_attention/key": "attention.attention.key",
    "self_attention/value": "attention.attention.value",
    "self_attention/attention_output": "attention.output.dense",
    "feedforward_layer_norm": "layernorm_after",
    "feed_forward/intermediate": "intermediate.dense",
    "feed_forward/output": "output.dense",
}
_POSITIONS = Entry(
    ("position/embeddings",),
    ("vit.embeddings.cls_token", "vit.embeddings.position_embeddings"),
    _WithClassToken(),
)


def _names(model, config, task):
    count = config["num_hidden_layers"]
    modules = _AROUND | numbered("encoder_", "vit.encoder.layer.", count, _BLOCK)
    layouts = {"patches/kernel": _Convolution()}
    return [_POSITIONS, *entries(model, modules, layouts=layouts)]


FAMILIES = [
    Family(
        "vit",
        {"hidden_states": "ViTModel", "classification": "ViTForImageClassification"},
        _build,
        _names,
        base="vit.",
        # The last two are of a model that learned to fill in patches.
        heads=("pooler.", "classifier.", "decoder.", "embeddings.mask_token"),
        fresh=("logits",),
    )
]
