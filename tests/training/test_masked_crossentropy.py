from typing import Any

import keras
import numpy as np
import pytest
import torch
from keras import ops

from keras_attn.training import MaskedCrossentropy

# Raised when Keras reads a TensorFlow variable, which supports NumPy 2 only in part.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")

B, T, V = 5, 7, 11


@pytest.fixture
def batch() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(B, T, V)).astype("float32") * 3
    targets = rng.integers(1, V, (B, T))
    for i, length in enumerate([7, 3, 1, 0, 5]):
        targets[i, length:] = 0
    return targets.astype("int32"), logits


def by_numpy(
    targets: np.ndarray, logits: np.ndarray, smoothing: float = 0.0, padding_id: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Compute losses (B, T) in float64 with one-hot targets, and the padding mask."""
    logits = logits.astype("float64")
    logits = logits - logits.max(-1, keepdims=True)
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    mask = targets != padding_id
    probs = np.eye(logits.shape[-1])[np.where(mask, targets, 0)]
    probs = (1 - smoothing) * probs + smoothing / logits.shape[-1]
    return -(probs * log_probs).sum(-1) * mask, mask


def gradient(
    loss: keras.losses.Loss, targets: np.ndarray, logits: np.ndarray, jit: bool = False
) -> np.ndarray:
    """Compute d loss / d logits by training a layer that is added to the logits."""
    model = keras.Sequential([keras.Input(logits.shape[1:], len(logits)), Shift()])
    model.compile(keras.optimizers.SGD(1.0), loss, jit_compile=jit)
    model.train_on_batch(logits, targets)
    return -model.get_weights()[0]


class Shift(keras.layers.Layer):
    """Layer that adds a trainable weight, initialized with zeros."""

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        self.shift = self.add_weight(shape=input_shape, initializer="zeros")

    def call(self, inputs: Any) -> Any:
        return inputs + self.shift


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
def test_value_and_gradient_equal_torch(
    batch: tuple[np.ndarray, np.ndarray], smoothing: float
) -> None:
    targets, logits = batch
    leaf = torch.tensor(logits, requires_grad=True)
    expected = torch.nn.CrossEntropyLoss(ignore_index=0, label_smoothing=smoothing)(
        leaf.reshape(-1, V), torch.tensor(targets).long().reshape(-1)
    )
    expected.backward()
    loss = MaskedCrossentropy(label_smoothing=smoothing)
    assert float(loss(targets, logits)) == pytest.approx(expected.item(), rel=1e-5)
    for jit in (False, True):
        np.testing.assert_allclose(
            gradient(loss, targets, logits, jit), leaf.grad.numpy(), atol=2e-7
        )


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_reductions_and_sample_weight(
    batch: tuple[np.ndarray, np.ndarray], smoothing: float
) -> None:
    targets, logits = batch
    losses, mask = by_numpy(targets, logits, smoothing)
    rng = np.random.default_rng(1)
    weights = {
        "none": (None, np.ones((B, T))),
        "(B,)": (examples := rng.random(B).astype("float32"), examples[:, None]),
        "(B, 1)": (examples[:, None], examples[:, None]),
        "(B, T)": (tokens := rng.random((B, T)).astype("float32"), tokens),
    }
    for sample_weight, weight in weights.values():
        weighted = losses * weight
        expected = {
            "mean": weighted.sum() / mask.sum(),
            "mean_with_sample_weight": weighted.sum() / (mask * weight).sum(),
            "sum": weighted.sum(),
            "none": weighted,
        }
        for reduction, value in expected.items():
            loss = MaskedCrossentropy(smoothing, reduction=reduction)
            output = ops.convert_to_numpy(loss(targets, logits, sample_weight))
            np.testing.assert_allclose(output, value, rtol=1e-5, atol=1e-6)


def test_normalizer_divides_the_sum(batch: tuple[np.ndarray, np.ndarray]) -> None:
    total = MaskedCrossentropy(reduction="sum")(*batch)
    loss = MaskedCrossentropy(reduction="sum", normalizer=40.0)
    assert float(loss(*batch)) == pytest.approx(float(total) / 40)


def test_padding_id_outside_the_vocabulary(
    batch: tuple[np.ndarray, np.ndarray],
) -> None:
    targets, logits = batch
    targets = np.where(targets == 0, -100, targets - 1)
    losses, mask = by_numpy(targets, logits, 0.1, padding_id=-100)
    loss = MaskedCrossentropy(0.1, padding_id=-100)(targets, logits)
    assert float(loss) == pytest.approx(losses.sum() / mask.sum(), rel=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_logits_are_reduced_in_float32(dtype: str) -> None:
    # With 2,000 classes and 300 tokens a half precision sum would be inaccurate.
    rng = np.random.default_rng(2)
    logits = ops.cast(rng.normal(size=(3, 101, 2003)), dtype)
    targets = rng.integers(1, 2003, (3, 101))
    exact = ops.convert_to_numpy(ops.cast(logits, "float32"))
    losses, mask = by_numpy(targets, exact, 0.1)
    loss = MaskedCrossentropy(0.1)(targets, logits)
    assert keras.backend.standardize_dtype(loss.dtype) == "float32"
    assert float(loss) == pytest.approx(losses.sum() / mask.sum(), rel=1e-5)


def test_large_logits_are_stable(batch: tuple[np.ndarray, np.ndarray]) -> None:
    targets, logits = batch
    logits = logits * 1e4 + 3e4
    losses, mask = by_numpy(targets, logits, 0.1)
    loss = MaskedCrossentropy(0.1)(targets, logits)
    assert float(loss) == pytest.approx(losses.sum() / mask.sum(), rel=1e-5)
    grads = gradient(MaskedCrossentropy(0.1), targets, logits)
    assert np.isfinite(grads).all()


@pytest.mark.parametrize("reduction", ["mean", "mean_with_sample_weight", "sum"])
@pytest.mark.parametrize("jit", [False, True])
def test_loss_and_gradient_of_padding_are_zero(
    batch: tuple[np.ndarray, np.ndarray], reduction: str, jit: bool
) -> None:
    _, logits = batch
    targets = np.zeros((B, T), "int32")
    loss = MaskedCrossentropy(0.1, reduction=reduction)
    assert float(loss(targets, logits)) == 0
    np.testing.assert_array_equal(gradient(loss, targets, logits, jit), 0)


def test_implicit_mask_on_the_logits_changes_nothing() -> None:
    """The mask of the inputs is not the mask of the targets."""
    inputs = keras.Input((T,), dtype="int32")
    hidden = keras.layers.Embedding(V, 4, mask_zero=True)(inputs)
    model = keras.Model(inputs, keras.layers.Dense(V)(hidden))
    model.compile(loss=MaskedCrossentropy(0.1), jit_compile=False)
    rng = np.random.default_rng(3)
    source = rng.integers(0, 3, (B, T))
    targets = rng.integers(0, 3, (B, T))
    assert (source == 0).any() and (targets == 0).any()
    losses, mask = by_numpy(targets, model.predict(source, verbose=0), 0.1)
    loss = model.evaluate(source, targets, batch_size=B, verbose=0)
    assert loss == pytest.approx(losses.sum() / mask.sum(), rel=1e-5)


def test_ids_stay_integers() -> None:
    """2**24 + 1 is not a float32: as a float, the padding id would equal 2**24."""
    targets = np.array([[2**24]], "int32")
    loss = MaskedCrossentropy(padding_id=2**24 + 1, reduction="none")
    mask = ops.convert_to_numpy(loss(targets % 1, np.zeros((1, 1, 3), "float32")))
    assert mask[0, 0] == pytest.approx(np.log(3))
    loss = MaskedCrossentropy(padding_id=2**24 + 1)
    assert float(loss(targets + 1, np.zeros((1, 1, 3), "float32"))) == 0


def _accumulated(
    loss: keras.losses.Loss, batches: list[tuple[np.ndarray, np.ndarray]]
) -> np.ndarray:
    """Return the mean gradient that Keras applies after accumulating `batches`."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((T,)), keras.layers.Embedding(V, V)])
    steps = len(batches) if len(batches) > 1 else None
    before = model.get_weights()[0]
    optimizer = keras.optimizers.SGD(1.0, gradient_accumulation_steps=steps)
    model.compile(optimizer, loss, jit_compile=False)
    for source, targets in batches:
        model.train_on_batch(source, targets)
    return before - model.get_weights()[0]


def test_gradient_accumulation_equals_the_large_batch() -> None:
    rng = np.random.default_rng(4)
    source, targets = rng.integers(1, V, (2, 6, T))
    targets[:, -2:] = 0
    halves = [(source[:3], targets[:3]), (source[3:], targets[3:])]
    full = [(source, targets)]
    # With the same number of tokens in each half, the mean is correct.
    mean = MaskedCrossentropy(0.1)
    np.testing.assert_allclose(
        _accumulated(mean, halves), _accumulated(mean, full), atol=1e-7
    )
    # With unequal halves, a sum with a fixed normalizer is correct, the mean is not.
    targets[:3, 1:] = 0
    tokens = (targets != 0).sum()
    fixed = MaskedCrossentropy(0.1, reduction="sum", normalizer=tokens / 2)
    expected = _accumulated(mean, full)
    np.testing.assert_allclose(_accumulated(fixed, halves), expected, atol=1e-7)
    assert abs(_accumulated(mean, halves) - expected).max() > 1e-3


def test_config_round_trip() -> None:
    loss = MaskedCrossentropy(0.2, -1, "sum", 12.0, name="xent")
    restored = keras.losses.deserialize(keras.losses.serialize(loss))
    assert type(restored) is MaskedCrossentropy
    assert restored.get_config() == loss.get_config()


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"label_smoothing": 1.0}, "Received: label_smoothing=1.0"),
        ({"label_smoothing": -0.1}, "Received: label_smoothing=-0.1"),
        ({"reduction": "batch"}, "Received: reduction='batch'"),
        ({"reduction": "sum", "normalizer": 0}, "Received: normalizer=0"),
        ({"normalizer": 2.0}, "Received: normalizer=2.0, reduction='mean'"),
    ],
)
def test_invalid_arguments_raise(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MaskedCrossentropy(**arguments)


@pytest.mark.parametrize(
    "targets, logits, weight, message",
    [
        (np.ones((2, 3, V), "int32"), (2, 3, V), None, r"y_true.shape=\(2, 3, 11\)"),
        (np.ones((2, 4), "int32"), (2, 3, V), None, r"y_pred.shape=\(2, 3, 11\)"),
        (np.ones((2, 3), "int32"), (2, 3, V), (2, 3, 1), r"weight.shape=\(2, 3, 1\)"),
    ],
)
def test_mismatched_shapes_raise(
    targets: np.ndarray, logits: tuple[int, ...], weight: Any, message: str
) -> None:
    weight = None if weight is None else np.ones(weight, "float32")
    with pytest.raises(ValueError, match=message):
        MaskedCrossentropy()(targets, np.zeros(logits, "float32"), weight)
