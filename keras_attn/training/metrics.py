"""Metrics over tokens that exclude padding."""

from typing import Any

import keras
from keras import ops

from keras_attn._types import DTypeLike, Tensor
from keras_attn.training.padding_mask import check_dense, mask_padding

__all__ = ["MaskedAccuracy"]


@keras.saving.register_keras_serializable(package="keras_attn")
class MaskedAccuracy(keras.metrics.Metric):
    """Share of the real target tokens to which the model assigns the largest logit.

    The state consists of two weighted counts, of correct tokens and of all tokens, in
    float32. The value of an epoch is therefore a mean over all its tokens, not a mean
    of batch means. Padding is excluded from both counts; without any real token the
    value is 0. An implicit Keras mask on the logits is ignored.

    Args:
        padding_id: Int. Target id of padding.
        name: String. Name of the metric.
        dtype: Dtype of the state. Defaults to `None`, which selects float32, since the
            counts of an epoch are too large for half precision.

    Call arguments:
        y_true: Target ids, an integer tensor of shape (B, T). Other leading shapes are
            accepted.
        y_pred: Logits or probabilities of shape (B, T, V) and any float dtype.
        sample_weight: Optional weights of shape (B,) or (B, T).

    Raises:
        ValueError: If the shapes do not match.

    Example:
        >>> from keras_attn import training
        >>> metric = training.MaskedAccuracy()
        >>> targets = [[2, 1, 0]]  # the last token is padding
        >>> metric.update_state(targets, [[[0, 0, 9], [9, 0, 0], [9, 0, 0]]])
        >>> float(metric.result())
        0.5
    """

    def __init__(
        self,
        padding_id: int = 0,
        name: str = "accuracy",
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(name=name, dtype=dtype or "float32")
        self.padding_id = padding_id
        # By default, variables of a metric have the dtype `floatx`, not that of the
        # metric.
        kwargs = {"shape": (), "initializer": "zeros", "dtype": self.dtype}
        self.hits = self.add_variable(name="hits", **kwargs)
        self.tokens = self.add_variable(name="tokens", **kwargs)

    def update_state(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        check_dense(y_true)
        y_true, y_pred = ops.convert_to_tensor(y_true), ops.convert_to_tensor(y_pred)
        y_true, _, weights = mask_padding(
            y_true, y_pred, self.padding_id, sample_weight
        )
        is_hit = ops.equal(ops.cast(y_true, "int32"), ops.argmax(y_pred, axis=-1))
        hits = ops.sum(ops.where(is_hit, weights, 0.0))
        self.hits.assign_add(ops.cast(hits, self.hits.dtype))
        self.tokens.assign_add(ops.cast(ops.sum(weights), self.tokens.dtype))

    def result(self) -> Tensor:
        return ops.divide_no_nan(self.hits, self.tokens)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "padding_id": self.padding_id}
