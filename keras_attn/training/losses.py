"""Losses over tokens that exclude padding."""

from typing import Any

import keras
from keras import ops

from keras_attn._types import Tensor
from keras_attn.training.padding_mask import check_dense, mask_padding

__all__ = ["MaskedCrossentropy"]

_REDUCTIONS = ("mean", "mean_with_sample_weight", "sum", "none")


@keras.saving.register_keras_serializable(package="keras_attn")
class MaskedCrossentropy(keras.losses.Loss):
    """Cross-entropy between token ids and logits, with padding excluded.

    Padding tokens add nothing to the sum of the losses and are not counted by the mean.
    For a target `t` and log-probabilities `p` of `V` classes, the loss of a token is
    `-(1 - label_smoothing) * p[t] - label_smoothing * mean(p)`: the smoothed mass is
    spread over all `V` classes, as in the paper and in PyTorch's `CrossEntropyLoss`.
    The loss is computed in float32 for logits of any float dtype, without one-hot
    targets. If a batch contains only padding, its loss is 0 and its gradients are zero.
    An implicit Keras mask on the logits is ignored.

    **Gradient accumulation, replicas, epochs.** Keras averages micro-batches (and
    replicas) with equal weights, independent of the number of tokens in each. With
    "mean", a token of a nearly empty batch therefore weighs more than a token of a full
    batch. To give every token the same weight, use `reduction="sum"` with a fixed
    `normalizer`, about the number of real tokens in one micro-batch: the gradient is
    then that of the one large batch, divided by
    `gradient_accumulation_steps * normalizer`.

    Args:
        label_smoothing: Float in [0, 1). Probability mass moved from the target to the
            uniform distribution.
        padding_id: Int. Target id of padding.
        reduction: One of "mean", "mean_with_sample_weight", "sum" and "none". "mean"
            divides the sum by the number of real tokens, "mean_with_sample_weight" by
            the sum of their weights, "sum" by `normalizer`. "none" (or `None`) returns
            the losses, (B, T), with 0 at padding.
        normalizer: Positive float. Divisor of the sum if `reduction="sum"`.
        name: String. Name of the loss.

    Call arguments:
        y_true: Target ids, an integer tensor of shape (B, T). Other leading shapes are
            accepted.
        y_pred: Logits of shape (B, T, V) and any float dtype.
        sample_weight: Optional weights of shape (B,) or (B, T). For a weight per token
            id, pass `weights[targets]`; the `class_weight` of `fit` is refused, since
            Keras computes one weight per batch element from it.

    Raises:
        ValueError: If an argument is outside its range; when called, if the shapes do
            not match, if the targets are ragged, or for a `class_weight`.

    Example:
        >>> import numpy as np
        >>> from keras_attn import training
        >>> loss = training.MaskedCrossentropy()
        >>> targets = np.array([[2, 1, 0]])  # the last token is padding
        >>> logits = np.zeros((1, 3, 4), "float32")  # 4 equally probable classes
        >>> round(float(loss(targets, logits)), 4)  # log(4)
        1.3863

    References:
        Vaswani et al., 2017, section 5.4, https://arxiv.org/abs/1706.03762
        Szegedy et al., 2015, section 7, https://arxiv.org/abs/1512.00567
    """

    def __init__(
        self,
        label_smoothing: float = 0.0,
        padding_id: int = 0,
        reduction: str | None = "mean",
        normalizer: float = 1.0,
        name: str = "masked_crossentropy",
    ) -> None:
        reduction = "none" if reduction is None else reduction
        if reduction not in _REDUCTIONS:
            raise ValueError(
                f"`reduction` must be one of {_REDUCTIONS}. "
                f"Received: reduction={reduction!r}"
            )
        if not 0 <= label_smoothing < 1:
            raise ValueError(
                "`label_smoothing` must be at least 0 and less than 1. "
                f"Received: label_smoothing={label_smoothing}"
            )
        if normalizer <= 0 or (normalizer != 1 and reduction != "sum"):
            raise ValueError(
                '`normalizer` must be positive and requires reduction="sum". '
                f"Received: normalizer={normalizer}, reduction={reduction!r}"
            )
        super().__init__(name=name, reduction=reduction, dtype="float32")
        self.label_smoothing = label_smoothing
        self.padding_id = padding_id
        self.normalizer = normalizer

    # `Loss.__call__` is replaced because it converts the ids to floats, multiplies by
    # the mask of the logits, and counts padding in the mean.
    def __call__(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> Tensor:
        check_dense(y_true)
        y_true, y_pred = ops.convert_to_tensor(y_true), ops.convert_to_tensor(y_pred)
        _, mask, weights = mask_padding(y_true, y_pred, self.padding_id, sample_weight)
        losses = self.call(y_true, y_pred) * weights
        if self.reduction == "none":
            return losses
        total = ops.sum(losses)
        if self.reduction == "sum":
            return total / self.normalizer  # pyright: ignore[reportOptionalOperand]
        if self.reduction == "mean":
            count = ops.sum(ops.cast(mask, "float32"))
        else:
            count = ops.sum(weights)
        return _scale_for_replicas(ops.divide_no_nan(total, count))

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Compute the loss of each token.

        Args:
            y_true: Target ids, an integer tensor of shape (B, T).
            y_pred: Logits of shape (B, T, V).

        Returns:
            Float32 tensor of shape (B, T), 0 at padding.
        """
        y_true, mask, _ = mask_padding(y_true, y_pred, self.padding_id)
        # A padding id outside the vocabulary, such as -100, is no valid index.
        ids = ops.where(mask, y_true, ops.zeros_like(y_true))
        log_probs = ops.log_softmax(ops.cast(y_pred, "float32"), axis=-1)
        target_log_probs = ops.take_along_axis(
            log_probs, ops.expand_dims(ids, -1), axis=-1
        )
        losses = -ops.squeeze(target_log_probs, -1)  # pyright: ignore[reportOptionalOperand]
        # Skip the term if it is 0: a logit of -inf, for a forbidden class, makes the
        # mean of the log-probabilities infinite.
        if self.label_smoothing:
            uniform = -ops.mean(log_probs, axis=-1)  # pyright: ignore[reportOptionalOperand]
            losses += self.label_smoothing * (uniform - losses)
        return ops.where(mask, losses, 0.0)

    def get_config(self) -> dict[str, Any]:
        return {
            "label_smoothing": self.label_smoothing,
            "padding_id": self.padding_id,
            "reduction": self.reduction,
            "normalizer": self.normalizer,
            "name": self.name,
        }


class _ReplicaMean(keras.losses.Loss):
    """Mean of `y_pred`, divided by the number of `tf.distribute` replicas.

    Keras sums the gradients of the replicas and therefore divides every mean loss by
    their number. The function that does so is not public, but every `Loss` applies it.
    """

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        return y_pred


def _scale_for_replicas(loss: Tensor) -> Tensor:
    """Divide a scalar by the number of replicas."""
    vector = ops.reshape(loss, (1,))
    return _ReplicaMean(name="replica_mean", dtype="float32")(vector, vector)
