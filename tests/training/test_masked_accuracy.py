from typing import Any

import keras
import numpy as np
import pytest
from keras import ops

from keras_attn.training import MaskedAccuracy


def one_hot(ids: Any, classes: int = 5) -> np.ndarray:
    return np.eye(classes, dtype="float32")[np.array(ids)]


def test_counts_tokens_over_all_batches_without_padding() -> None:
    metric = MaskedAccuracy()
    metric.update_state(np.array([[1, 2, 0]]), one_hot([[1, 3, 0]]))
    assert float(metric.result()) == 0.5
    metric.update_state(
        np.array([[1, 2, 3], [4, 0, 0]]), one_hot([[1, 2, 3], [4, 0, 0]])
    )
    assert float(metric.result()) == pytest.approx(5 / 6)
    metric.reset_state()
    assert float(metric.result()) == 0


def test_equals_keras_accuracy_on_the_real_tokens() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(7, 13, 5)).astype("float32")
    targets = rng.integers(0, 5, (7, 13))
    weights = rng.random((7, 13)).astype("float32")
    real = targets != 0
    stock = keras.metrics.SparseCategoricalAccuracy()
    stock.update_state(targets[real], logits[real], weights[real])
    for dtype in ("float32", "float64"):
        metric = MaskedAccuracy()
        metric.update_state(targets, logits.astype(dtype), weights)
        assert float(metric.result()) == pytest.approx(float(stock.result()), rel=1e-6)


def test_weights_per_batch_element_and_custom_padding_id() -> None:
    metric = MaskedAccuracy(padding_id=-1)
    targets = np.array([[0, 1], [2, -1]])
    logits = one_hot([[0, 0], [2, 0]])
    metric.update_state(targets, logits, np.array([1.0, 3.0]))
    assert float(metric.result()) == pytest.approx((1 + 3) / (2 + 3))


def test_padding_alone_has_accuracy_zero_and_no_weight() -> None:
    metric = MaskedAccuracy()
    metric.update_state(np.zeros((2, 3), "int32"), one_hot(np.zeros((2, 3), int)))
    assert float(metric.result()) == 0
    metric.update_state(np.array([[1]]), one_hot([[1]]))
    assert float(metric.result()) == 1


@pytest.mark.parametrize("floatx", ["float16", "bfloat16"])
def test_counts_do_not_saturate_in_half_precision(floatx: str) -> None:
    before = keras.config.floatx()
    keras.config.set_floatx(floatx)
    try:
        metric = MaskedAccuracy()
        for _ in range(3):
            metric.update_state(
                np.ones((100, 700), "int32"), np.eye(2)[np.ones((100, 700), int)]
            )
        assert float(metric.tokens.value) == 210_000
        assert float(metric.result()) == 1
    finally:
        keras.config.set_floatx(before)


def test_implicit_mask_on_the_logits_changes_nothing() -> None:
    inputs = keras.Input((4,), dtype="int32")
    table = keras.layers.Embedding(
        5, 5, mask_zero=True, embeddings_initializer="identity"
    )
    model = keras.Model(inputs, table(inputs))
    model.compile(loss=lambda y, x: ops.mean(x), metrics=[MaskedAccuracy()])
    # The first two inputs are masked but their targets are real; for the last token
    # it is the other way round.
    source, targets = np.array([[0, 0, 3, 4]]), np.array([[1, 2, 3, 0]])
    logs = model.evaluate(source, targets, verbose=0, return_dict=True)
    assert logs["accuracy"] == pytest.approx(1 / 3)


def test_config_round_trip() -> None:
    metric = MaskedAccuracy(padding_id=3, name="acc")
    restored = keras.metrics.deserialize(keras.metrics.serialize(metric))
    assert type(restored) is MaskedAccuracy
    assert restored.get_config() == metric.get_config()


def test_one_hot_targets_raise() -> None:
    with pytest.raises(ValueError, match=r"y_true.shape=\(2, 3, 5\)"):
        MaskedAccuracy().update_state(np.ones((2, 3, 5)), ops.zeros((2, 3, 5)))
