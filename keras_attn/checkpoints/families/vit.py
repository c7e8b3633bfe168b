"""Vision Transformer: the encoder over the patches of an image."""

from typing import Any

import keras
import numpy as np

from keras_attn.checkpoints.activations import get_activation
from keras_attn.checkpoints.family import BuildOptions, Family, ModelInputs
from keras_attn.checkpoints.folder import Config
from keras_attn.checkpoints.weight_map import (
    Arrays,
    Entry,
    Layout,
    Shapes,
    block_modules,
    map_weights,
)
from keras_attn.models import vision_transformer

__all__ = ["FAMILIES"]


def _build(
    config: Config, task: str, options: BuildOptions
) -> tuple[ModelInputs, keras.KerasTensor]:
    """Return the input and the output of a `models.vision_transformer`."""
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
        activation=get_activation(config["hidden_act"]),
        layer_norm_epsilon=config["layer_norm_eps"],
        qkv_bias=config.get("qkv_bias", True),
    )
    return model.input, model.output  # pyright: ignore[reportReturnType]


def _side(patch_size: Any) -> Any:
    """Return the side of a patch, which some configs specify as a list of two."""
    if isinstance(patch_size, list) and len(set(patch_size)) == 1:
        return patch_size[0]
    return patch_size


class _Convolution(Layout):
    """A convolution weight `(height, width, inputs, outputs)`.

    It is stored as `(outputs, inputs, height, width)`.
    """

    def tensor_shapes(self, weight_shapes: Shapes) -> Shapes:
        ((height, width, inputs, outputs),) = weight_shapes
        return ((outputs, inputs, height, width),)

    def rows_axis(self, shape: tuple[int, ...]) -> int | None:
        return 3

    def to_weights(self, tensors: Arrays, shapes: Shapes) -> Arrays:
        return (tensors[0].transpose(2, 3, 1, 0),)

    def to_tensors(self, weights: Arrays) -> Arrays:
        return (weights[0].transpose(3, 2, 0, 1),)


class _ClassTokenPositions(Layout):
    """A position table whose first row includes the class token.

    The row is the sum of the class token and its position vector, which are stored as
    two tensors. When saving, the class token is zero.
    """

    def tensor_shapes(self, weight_shapes: Shapes) -> Shapes:
        ((length, width),) = weight_shapes
        return (1, 1, width), (1, length, width)

    def to_weights(self, tensors: Arrays, shapes: Shapes) -> Arrays:
        # A sum in half precision would be rounded.
        token, table = (x[0].astype("float32") for x in tensors)
        return (np.concatenate([token + table[:1], table[1:]]),)

    def to_tensors(self, weights: Arrays) -> Arrays:
        (table,) = weights
        return np.zeros_like(table[None, :1]), table[None]


# From keras_attn layers to the modules of `transformers`.
_OUTER_MODULES = {
    "patches": "vit.embeddings.patch_embeddings.projection",
    "norm": "vit.layernorm",
    "logits": "classifier",
}
_BLOCK_MODULES = {
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
    _ClassTokenPositions(),
)


def _weight_map(model: keras.Model, config: Config, task: str) -> list[Entry]:
    num_blocks = config["num_hidden_layers"]
    blocks = block_modules("encoder_", "vit.encoder.layer.", num_blocks, _BLOCK_MODULES)
    layouts = {"patches/kernel": _Convolution()}
    return [
        _POSITIONS,
        *map_weights(model, _OUTER_MODULES | blocks, layouts=layouts),
    ]


FAMILIES = [
    Family(
        "vit",
        {"hidden_states": "ViTModel", "classification": "ViTForImageClassification"},
        _build,
        _weight_map,
        base_prefix="vit.",
        # The last two belong to models for masked image modeling.
        head_prefixes=("pooler.", "classifier.", "decoder.", "embeddings.mask_token"),
        new_layers=("logits",),
    )
]
