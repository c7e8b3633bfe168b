"""What the loss and the metric share: which predictions count, and how much."""

import keras
from keras import ops


def real_tokens(targets, logits, padding_id, sample_weight=None):
    """The targets as integers, whether each counts, and with what weight.

    The targets alone decide what is padding. The implicit Keras mask that an output
    may carry is the mask of the model's input, and is not looked at.

    Args:
        targets: Token ids (B, T).
        logits: Tensor (B, T, V).
        padding_id: The target that does not count.
        sample_weight: None, or a tensor (B,), (B, 1) or (B, T).

    Returns:
        `(targets, mask, weights)`: integers (B, T); bool (B, T), True for a real
        token; float32 (B, T), 0 at padding.

    Raises:
        ValueError: For shapes that do not fit.
    """
    # Keras builds a model under `tf.distribute` with float stand-ins for the targets.
    if "int" not in keras.backend.standardize_dtype(targets.dtype):
        targets = ops.cast(targets, "int32")
    fits = len(logits.shape) == len(targets.shape) + 1 and all(
        t is None or p is None or t == p
        for t, p in zip(targets.shape, logits.shape, strict=False)
    )
    if not fits:
        raise ValueError(
            "Expected integer targets (B, T) and logits (B, T, V). Received: "
            f"y_true.shape={tuple(targets.shape)}, y_pred.shape={tuple(logits.shape)}"
        )
    mask = ops.not_equal(targets, padding_id)
    weights = ops.cast(mask, "float32")
    if sample_weight is not None:
        sample_weight = ops.cast(ops.convert_to_tensor(sample_weight), "float32")
        if len(sample_weight.shape) > len(targets.shape):
            raise ValueError(
                "`sample_weight` must have shape (B,) or (B, T). Received: "
                f"sample_weight.shape={tuple(sample_weight.shape)}"
            )
        while len(sample_weight.shape) < len(targets.shape):
            sample_weight = ops.expand_dims(sample_weight, -1)
        # Selected, not multiplied: a weight of NaN at padding must not spread.
        weights = ops.where(mask, sample_weight, 0.0)
    return targets, mask, weights
