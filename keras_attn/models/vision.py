"""Models of images."""

import keras

from keras_attn import layers
from keras_attn.layers._internal.arguments import is_int, positive_int

__all__ = ["vision_transformer"]


def vision_transformer(
    image_size,
    num_classes,
    patch_size=16,
    num_layers=12,
    hidden_dim=768,
    intermediate_dim=3072,
    num_heads=12,
    dropout=0.0,
    pooling="token",
    num_channels=3,
    activation="gelu",
    layer_norm_epsilon=1e-6,
    name="vision_transformer",
    dtype=None,
    *,
    qkv_bias=True,
):
    """The Vision Transformer, which classifies an image by its patches.

    The defaults are the paper's ViT-Base with patches of 16 x 16.

    An image becomes a row of patches, line by line, each projected to a vector that
    gets a learned one for its position. With `pooling="token"` a class token stands
    before them, whose final vector is the image's. Its learned vector and that of its
    position would only ever be added up, so they are one weight here, the first of
    layer `"position"`: a model that has two is copied by putting their sum there.

    Args:
        image_size: int, or a pair of ints, height and width, in pixels.
        num_classes: int, number of classes. None: no head, the model ends with the
            last normalization.
        patch_size: int, pixels along a patch's sides; must divide both of the image's.
        num_layers: int, number of encoder blocks.
        hidden_dim: int, model width.
        intermediate_dim: int, width of the feed-forward networks' middle.
        num_heads: int, attention heads of each layer; must divide `hidden_dim`.
        dropout: float in [0, 1).
        pooling: `"token"`, or `"mean"` for the mean over all patches, with no class
            token.
        num_channels: int, channels of an image.
        activation: of the feed-forward networks.
        layer_norm_epsilon: float, epsilon of the normalization layers.
        name, dtype: of the model and of its layers.
        qkv_bias: bool, whether queries, keys and values are projected with biases.

    Returns:
        A `keras.Model` from floats `(B, height, width, num_channels)`, its input
        `"image"`, to logits `(B, num_classes)`; without a head, to
        `(B, positions, hidden_dim)`, the class token first, if there is one.

    Raises:
        ValueError: for sizes that are not positive, an image that the patches or a
            width that the heads do not divide, another `pooling`.

    Example:
        >>> model = vision_transformer(32, 10, patch_size=4, num_layers=2)
        >>> model(keras.random.normal((1, 32, 32, 3))).shape
        (1, 10)

    Reference:
        Dosovitskiy et al. 2020, "An Image is Worth 16x16 Words"
        (https://arxiv.org/abs/2010.11929); the mean over patches: appendix D.3.
    """
    patch_size = positive_int("patch_size", patch_size)
    height, width = _sides(image_size, patch_size)
    num_classes = positive_int("num_classes", num_classes, optional=True)
    num_layers = positive_int("num_layers", num_layers)
    hidden_dim = positive_int("hidden_dim", hidden_dim)
    num_channels = positive_int("num_channels", num_channels)
    if pooling not in ("token", "mean"):
        raise ValueError(
            f"`pooling` must be 'token' or 'mean'. Received: pooling={pooling!r}"
        )
    length = (height // patch_size) * (width // patch_size)

    image = keras.Input((height, width, num_channels), name="image")
    x = keras.layers.Conv2D(
        hidden_dim,
        patch_size,
        strides=patch_size,
        data_format="channels_last",
        dtype=dtype,
        name="patches",
    )(image)
    x = keras.layers.Reshape((length, hidden_dim), dtype=dtype, name="row")(x)
    if pooling == "token":
        length += 1
        # Zeros, to which the learned vector of the first position is added.
        x = keras.layers.ZeroPadding1D(
            (1, 0), data_format="channels_last", dtype=dtype, name="class_token"
        )(x)
    x = layers.PositionEmbedding(length, dtype=dtype, name="position")(x)
    x = keras.layers.Dropout(dropout, dtype=dtype, name="dropout")(x)
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
        )(x)
    x = keras.layers.LayerNormalization(
        epsilon=layer_norm_epsilon, dtype=dtype, name="norm"
    )(x)
    if num_classes is None:
        return keras.Model(image, x, name=name)
    if pooling == "token":
        x = x[:, 0]
    else:
        x = keras.layers.GlobalAveragePooling1D(
            data_format="channels_last", dtype=dtype, name="mean"
        )(x)
    logits = keras.layers.Dense(num_classes, dtype=dtype, name="logits")(x)
    return keras.Model(image, logits, name=name)


def _sides(image_size, patch_size):
    """Height and width, of an int or a pair; an error if patches do not fill them."""
    sides = (image_size, image_size) if is_int(image_size) else image_size
    if (
        not isinstance(sides, (tuple, list))
        or len(sides) != 2
        or not all(is_int(side) and side > 0 for side in sides)
    ):
        raise ValueError(
            "`image_size` must be a positive int or a pair of them, height and width. "
            f"Received: image_size={image_size!r}"
        )
    if any(side % patch_size for side in sides):
        raise ValueError(
            "`patch_size` must divide the height and the width of the image. "
            f"Received: patch_size={patch_size}, image_size={image_size!r}"
        )
    return tuple(map(int, sides))
