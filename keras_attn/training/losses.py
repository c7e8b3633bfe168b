"""Crossentropy over tokens that leaves padding out."""

import keras
from keras import ops

from keras_attn.training.masked_tokens import real_tokens

_REDUCTIONS = ("mean", "mean_with_sample_weight", "sum", "none")


@keras.saving.register_keras_serializable(package="keras_attn")
class MaskedCrossentropy(keras.losses.Loss):
    """Crossentropy of next-token logits, with padding left out of sum and count.

    For a target `t` and log-probabilities `p` of `V` classes a token's loss is
    `-(1 - label_smoothing) * p[t] - label_smoothing * mean(p)`: the smoothed mass is
    spread over all `V` classes, as in the paper and in PyTorch's `CrossEntropyLoss`.
    Everything is computed in float32, whatever the dtype of the logits, and without a
    one-hot tensor of the targets. A batch of nothing but padding has loss 0 and zero
    gradients. An implicit Keras mask on the logits changes nothing.

    **Gradient accumulation, replicas, epochs.** Keras averages micro-batches (and
    replicas) with equal weights, however many tokens each holds, so under "mean" a
    token of a nearly empty batch weighs more than one of a full batch. To give every
    token the same weight use `reduction="sum"` with a fixed `normalizer`, about the
    number of real tokens in one micro-batch: the gradient is then that of the one
    large batch, divided by `gradient_accumulation_steps * normalizer`.

    Args:
        label_smoothing: Float in [0, 1): the mass taken from the target.
        padding_id: The target id that is padding.
        reduction: "mean" divides by the number of real tokens;
            "mean_with_sample_weight" by the sum of their weights; "sum" divides by
            `normalizer`; "none" gives the losses (B, T), 0 at padding.
        normalizer: Positive float that a "sum" is divided by.
        name: Name of the loss.

    Call arguments:
        y_true: Integer tensor (B, T). Other leading shapes work the same.
        y_pred: Logits (B, T, V), any float dtype.
        sample_weight: Optional, (B,) or (B, T).

    Raises:
        ValueError: For arguments outside the ranges above, or shapes that do not fit.

    Example:

    >>> loss = MaskedCrossentropy(label_smoothing=0.1)
    >>> model.compile("adam", loss, jit_compile=True)

    References:
        Vaswani et al., 2017, section 5.4, https://arxiv.org/abs/1706.03762
        Szegedy et al., 2015, section 7, https://arxiv.org/abs/1512.00567
    """

    def __init__(
        self,
        label_smoothing=0.0,
        padding_id=0,
        reduction="mean",
        normalizer=1.0,
        name="masked_crossentropy",
    ):
        reduction = "none" if reduction is None else reduction
        if reduction not in _REDUCTIONS:
            raise ValueError(
                f"`reduction` must be one of {_REDUCTIONS}. "
                f"Received: reduction={reduction!r}"
            )
        if not 0 <= label_smoothing < 1:
            raise ValueError(
                "`label_smoothing` must be at least 0 and below 1. "
                f"Received: label_smoothing={label_smoothing}"
            )
        if normalizer <= 0 or (normalizer != 1 and reduction != "sum"):
            raise ValueError(
                '`normalizer` must be positive, and goes with reduction="sum" only. '
                f"Received: normalizer={normalizer}, reduction={reduction!r}"
            )
        super().__init__(name=name, reduction=reduction, dtype="float32")
        self.label_smoothing = label_smoothing
        self.padding_id = padding_id
        self.normalizer = normalizer

    # Keras's own `__call__` is not used: it would turn the ids to floats, weigh by the
    # mask on the logits a second time, and divide by padding too.
    def __call__(self, y_true, y_pred, sample_weight=None):
        y_true, y_pred = ops.convert_to_tensor(y_true), ops.convert_to_tensor(y_pred)
        _, mask, weights = real_tokens(y_true, y_pred, self.padding_id, sample_weight)
        losses = self.call(y_true, y_pred) * weights
        if self.reduction == "none":
            return losses
        total = ops.sum(losses)
        if self.reduction == "sum":
            return total / self.normalizer
        if self.reduction == "mean":
            count = ops.sum(ops.cast(mask, "float32"))
        else:
            count = ops.sum(weights)
        return _replica_mean(ops.divide_no_nan(total, count))

    def call(self, y_true, y_pred):
        """The loss of each token, float32 (B, T), 0 at padding."""
        y_true, mask, _ = real_tokens(y_true, y_pred, self.padding_id)
        # A padding id outside the vocabulary (-100, say) must not be looked up.
        ids = ops.where(mask, y_true, ops.zeros_like(y_true))
        log_probs = ops.log_softmax(ops.cast(y_pred, "float32"), axis=-1)
        picked = ops.take_along_axis(log_probs, ops.expand_dims(ids, -1), axis=-1)
        losses = -ops.squeeze(picked, -1)
        # Without smoothing a class forbidden by a logit of -inf stays harmless.
        if self.label_smoothing:
            uniform = -ops.mean(log_probs, axis=-1)
            losses += self.label_smoothing * (uniform - losses)
        return ops.where(mask, losses, 0.0)

    def get_config(self):
        return {
            "label_smoothing": self.label_smoothing,
            "padding_id": self.padding_id,
            "reduction": self.reduction,
            "normalizer": self.normalizer,
            "name": self.name,
        }


class _ReplicaMean(keras.losses.Loss):
    """The mean of `y_pred`, divided by the number of `tf.distribute` replicas.

    Keras sums the gradients of replicas and so divides every mean loss beforehand; the
    function that does it has no public name, but a `Loss` applies it.
    """

    def call(self, y_true, y_pred):
        return y_pred


def _replica_mean(value):
    one = ops.reshape(value, (1,))
    return _ReplicaMean(name="replica_mean", dtype="float32")(one, one)
