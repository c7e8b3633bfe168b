"""Accuracy over tokens that leaves padding out."""

import keras
from keras import ops

from keras_attn.training.masked_tokens import real_tokens


@keras.saving.register_keras_serializable(package="keras_attn")
class MaskedAccuracy(keras.metrics.Metric):
    """Share of real target tokens that have the largest logit.

    The state is a weighted count of hits and of tokens, kept in float32, so an
    epoch's value is over all its tokens and not a mean of batches. Padding counts in
    neither; with no token at all the value is 0. An implicit Keras mask on the logits
    changes nothing.

    Args:
        padding_id: The target id that is padding.
        name: Name of the metric.
        dtype: Dtype of the state; None is float32, since the counts of an epoch are
            too large for half precision.

    Call arguments:
        y_true: Integer tensor (B, T). Other leading shapes work the same.
        y_pred: Logits or probabilities (B, T, V), any float dtype.
        sample_weight: Optional, (B,) or (B, T).

    Raises:
        ValueError: For shapes that do not fit.

    Example:

    >>> metric = MaskedAccuracy()
    >>> metric.update_state([[2, 1, 0]], [[[0, 0, 9], [9, 0, 0], [9, 0, 0]]])
    >>> float(metric.result())
    0.5
    """

    def __init__(self, padding_id=0, name="accuracy", dtype=None):
        super().__init__(name=name, dtype=dtype or "float32")
        self.padding_id = padding_id
        # Without a dtype a metric's variables would follow `floatx` all the same.
        kwargs = {"shape": (), "initializer": "zeros", "dtype": self.dtype}
        self.hits = self.add_variable(name="hits", **kwargs)
        self.tokens = self.add_variable(name="tokens", **kwargs)

    def update_state(self, y_true, y_pred, sample_weight=None):
        y_true, y_pred = ops.convert_to_tensor(y_true), ops.convert_to_tensor(y_pred)
        y_true, _, weights = real_tokens(y_true, y_pred, self.padding_id, sample_weight)
        hit = ops.equal(ops.cast(y_true, "int32"), ops.argmax(y_pred, axis=-1))
        hits = ops.sum(ops.where(hit, weights, 0.0))
        self.hits.assign_add(ops.cast(hits, self.hits.dtype))
        self.tokens.assign_add(ops.cast(ops.sum(weights), self.tokens.dtype))

    def result(self):
        return ops.divide_no_nan(self.hits, self.tokens)

    def get_config(self):
        return {**super().get_config(), "padding_id": self.padding_id}
