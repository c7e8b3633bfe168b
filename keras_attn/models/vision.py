"""Vision Transformers."""

from typing import Any

import keras

from keras_attn import layers
from keras_attn._types import ActivationLike, DTypeLike
from keras_attn.layers._internal.arguments import is_int, positive_int
from keras_attn.models.half_precision import check_dtype, functional_model
from keras_attn.models.initial_values import QKV_GAIN, output_gain

__all__ = ["vision_transformer"]


def vision_transformer(
    image_size: int | tuple[int, int],
    num_classes: int | None,
    patch_size: int = 16,
    num_layers: int = 12,
    hidden_dim: int = 768,
    *,
    intermediate_dim: int = 3072,
    num_heads: int = 12,
    dropout: float = 0.0,
    pooling: str = "token",
    num_channels: int = 3,
    activation: ActivationLike = "gelu",
    layer_norm_epsilon: float = 1e-6,
    name: str = "vision_transformer",
    dtype: DTypeLike | None = None,
    qkv_bias: bool = True,
) -> keras.Model:
    """Return a Vision Transformer that classifies images.

    The defaults are the paper's ViT-Base with patches of 16 x 16 pixels.

    Initial values: the query, key and value projections are those of Xavier for one
    matrix of the three, and the last layer of each residual branch is divided by the
    square root of the number of branches, as in GPT-2; see `docs/training.md`.

    The image is split into patches, in row-major order. Each patch is projected to a
    vector, to which a learned position embedding is added. With `pooling="token"` a
    class token precedes the patches, and its final hidden state is classified. The
    class token and its position embedding are one weight, the first row of the layer
    `"position"`: to copy the weights of a model that has both, assign their sum.

    Args:
        image_size: int or pair of ints `(height, width)`, in pixels.
        num_classes: int, number of classes. None: the model has no head and ends with
            the final normalization.
        patch_size: int, side of a patch in pixels. Must divide the height and the
            width.
        num_layers: int, number of encoder blocks.
        hidden_dim: int, model width.
        intermediate_dim: int, width of the hidden layer of the feed-forward networks.
        num_heads: int, number of attention heads per layer. Must divide `hidden_dim`.
        dropout: float in [0, 1), dropout rate.
        pooling: `"token"` classifies the class token, `"mean"` the mean over all
            patches, without a class token.
        num_channels: int, number of channels of the images.
        activation: activation of the feed-forward networks, a name or a function.
        layer_norm_epsilon: float, epsilon of the normalization layers.
        name: str, name of the model.
        dtype: dtype or dtype policy of the layers.
        qkv_bias: bool, whether the projections of query, key and value have biases.

    Returns:
        A `keras.Model` from images, float `(B, height, width, num_channels)`, to logits
        `(B, num_classes)`. The name of the input is `"image"`. Without a head, the
        output is `(B, T, hidden_dim)`, with one position per patch after that of the
        class token, if there is one.

    Raises:
        ValueError: if a size is not positive, if `patch_size` does not divide the
            height and the width, if `num_heads` does not divide `hidden_dim`, if
            `pooling` is not supported, or if `dtype` is a quantized policy.

    Example:
        >>> import numpy as np
        >>> from keras_attn import models
        >>> model = models.vision_transformer(
        ...     8,
        ...     10,
        ...     patch_size=4,
        ...     num_layers=1,
        ...     hidden_dim=8,
        ...     intermediate_dim=16,
        ...     num_heads=2,
        ... )
        >>> tuple(model(np.ones((1, 8, 8, 3), "float32")).shape)
        (1, 10)

    Reference:
        Dosovitskiy et al. 2020, "An Image is Worth 16x16 Words"
        (https://arxiv.org/abs/2010.11929); the mean over patches: appendix D.3.
    """
    check_dtype(dtype)
    patch_size = positive_int("patch_size", patch_size)
    height, width = _height_and_width(image_size, patch_size)
    num_classes = positive_int("num_classes", num_classes, optional=True)
    num_layers = positive_int("num_layers", num_layers)
    hidden_dim = positive_int("hidden_dim", hidden_dim)
    num_channels = positive_int("num_channels", num_channels)
    if pooling not in ("token", "mean"):
        raise ValueError(
            f"`pooling` must be 'token' or 'mean'. Received: pooling={pooling!r}"
        )

    # `Any`: the inferred type of `keras.Input` includes a list.
    image: Any = keras.Input((height, width, num_channels), name="image")
    x = _embed_patches(image, patch_size, hidden_dim, pooling == "token", dtype)
    x = keras.layers.Dropout(dropout, dtype=dtype, name="dropout")(x)
    gains: dict[str, Any] = {
        "qkv_gain": QKV_GAIN,
        "output_gain": output_gain(num_layers, 2, normalize_first=True),
    }
    for i in range(num_layers):
        attention = None
        if not qkv_bias:
            attention = layers.MultiHeadSelfAttention(
                num_heads,
                dropout=dropout,
                use_bias=False,
                use_output_bias=True,
                dtype=dtype,
                name="self_attention",
                **gains,
            )
        x = layers.TransformerEncoder(
            intermediate_dim,
            num_heads,
            dropout=dropout,
            activation=activation,
            layer_norm_epsilon=layer_norm_epsilon,
            normalize_first=True,
            attention=attention,
            dtype=dtype,
            name=f"encoder_{i}",
            **gains,
        )(x)
    x = keras.layers.LayerNormalization(
        epsilon=layer_norm_epsilon, dtype=dtype, name="norm"
    )(x)
    if num_classes is None:
        return functional_model(image, x, name)
    if pooling == "token":
        x = x[:, 0]  # (B, D)
    else:
        x = keras.layers.GlobalAveragePooling1D(
            data_format="channels_last", dtype=dtype, name="mean"
        )(x)
    logits = keras.layers.Dense(num_classes, dtype=dtype, name="logits")(x)
    return functional_model(image, logits, name)


def _embed_patches(
    image: keras.KerasTensor,
    patch_size: int,
    hidden_dim: int,
    has_class_token: bool,
    dtype: DTypeLike | None,
) -> keras.KerasTensor:
    """Project the patches of `(B, height, width, C)` to `(B, T, hidden_dim)`."""
    _, height, width, _ = image.shape
    length = (height // patch_size) * (width // patch_size)
    x = keras.layers.Conv2D(
        hidden_dim,
        patch_size,
        strides=patch_size,
        data_format="channels_last",
        dtype=dtype,
        name="patches",
    )(image)
    x = keras.layers.Reshape((length, hidden_dim), dtype=dtype, name="sequence")(x)
    if has_class_token:
        length += 1
        # Zeros, to which the learned embedding of the first position is added.
        x = keras.layers.ZeroPadding1D(
            (1, 0),  # pyright: ignore[reportArgumentType]
            data_format="channels_last",
            dtype=dtype,
            name="class_token",
        )(x)
    return layers.PositionEmbedding(length, dtype=dtype, name="position")(x)


def _height_and_width(
    image_size: int | tuple[int, int], patch_size: int
) -> tuple[int, int]:
    """Return the height and width, validated.

    Raises:
        ValueError: if `image_size` is not a positive int or a pair of them, or if
            `patch_size` does not divide it.
    """
    sides: Any = (image_size, image_size) if is_int(image_size) else image_size
    if (
        not isinstance(sides, (tuple, list))
        or len(sides) != 2
        or not all(is_int(side) and side > 0 for side in sides)
    ):
        raise ValueError(
            "`image_size` must be a positive int or a pair of positive ints, the "
            f"height and the width. Received: image_size={image_size!r}"
        )
    if any(side % patch_size for side in sides):
        raise ValueError(
            "`patch_size` must divide the height and the width of the image. "
            f"Received: patch_size={patch_size}, image_size={image_size!r}"
        )
    return int(sides[0]), int(sides[1])
