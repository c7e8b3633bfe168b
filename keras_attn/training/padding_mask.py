"""Padding mask and token weights, shared by the loss and the metric."""

from typing import cast

import keras
from keras import ops

from keras_attn._keras_internals import has_class_weight
from keras_attn._types import Tensor

__all__ = ["check_dense", "mask_padding"]


def check_dense(targets: Tensor) -> None:
    """Raise a ValueError if targets are a ragged tensor of TensorFlow."""
    if hasattr(targets, "nested_row_splits"):
        raise ValueError(
            "`y_true` must be a dense tensor (B, T); `targets.to_tensor()` pads a "
            f"ragged one with zeros. Received: a ragged tensor of shape {targets.shape}"
        )


def mask_padding(
    targets: Tensor,
    logits: Tensor,
    padding_id: int,
    sample_weight: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the targets as integers, their padding mask and the token weights.

    The padding mask depends on the targets alone. An implicit Keras mask on the logits
    is the mask of the model's input and is ignored.

    Args:
        targets: Token ids of shape (B, T).
        logits: Tensor of shape (B, T, V).
        padding_id: Int. Target id of padding.
        sample_weight: `None`, or a tensor of shape (B,), (B, 1) or (B, T).

    Returns:
        A tuple `(targets, mask, weights)`: integers (B, T); bools (B, T), True for a
        real token; float32 (B, T), 0 at padding.

    Raises:
        ValueError: If the shapes do not match, or if the weights are those that Keras
            computes from `class_weight` for targets (B, T).
    """
    # Under `tf.distribute`, Keras builds a model with float placeholders as targets.
    if "int" not in keras.backend.standardize_dtype(targets.dtype):
        targets = ops.cast(targets, "int32")
    shapes_match = len(logits.shape) == len(targets.shape) + 1 and all(
        t is None or p is None or t == p
        for t, p in zip(targets.shape, logits.shape, strict=False)
    )
    if not shapes_match:
        raise ValueError(
            "Expected integer targets (B, T) and logits (B, T, V). Received: "
            f"y_true.shape={tuple(targets.shape)}, y_pred.shape={tuple(logits.shape)}"
        )
    mask = ops.not_equal(targets, padding_id)
    weights = ops.cast(mask, "float32")
    if sample_weight is not None:
        token_weights = cast(
            Tensor, ops.cast(ops.convert_to_tensor(sample_weight), "float32")
        )
        if len(token_weights.shape) > len(targets.shape):
            raise ValueError(
                "`sample_weight` must have shape (B,) or (B, T). Received: "
                f"sample_weight.shape={tuple(token_weights.shape)}"
            )
        if (
            len(token_weights.shape) == 1 < len(targets.shape)
            and targets.shape[1] != 1
            and has_class_weight()
        ):
            raise ValueError(
                "`class_weight` is not supported for targets (B, T): Keras computes "
                "one weight per batch element from it, which belongs to no token. Pass "
                "`sample_weight` of shape (B, T) instead, such as `weights[targets]` "
                "for an array with the weight of each token id. "
                f"Received: class_weight, y_true.shape={tuple(targets.shape)}"
            )
        while len(token_weights.shape) < len(targets.shape):
            token_weights = cast(Tensor, ops.expand_dims(token_weights, -1))
        # `where` instead of a product: a weight of NaN at padding must not spread.
        weights = ops.where(mask, token_weights, 0.0)
    return targets, mask, weights
