"""Schedule, loss and metric in `model.fit`: compiled, saved, and on every backend."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from train_small_model import data, small_model, train

# Raised when Keras reads a TensorFlow variable, which supports NumPy 2 only in part.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")

ROOT = Path(__file__).parents[2]


def run_in_subprocess(mode: str, backend: str) -> dict[str, Any]:
    env = dict(os.environ, KERAS_BACKEND=backend, TF_CPP_MIN_LOG_LEVEL="3")
    env["PYTHONPATH"] = str(ROOT)
    script = Path(__file__).with_name("train_small_model.py")
    process = subprocess.run(
        [sys.executable, str(script), mode], env=env, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout.splitlines()[-1])


def by_numpy(model: keras.Model) -> tuple[float, float]:
    """Compute the loss and accuracy of the trained model in float64."""
    logits, targets = data()
    logits = model.predict(logits, verbose=0).astype("float64")
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    real = targets != 0
    probs = 0.9 * np.eye(logits.shape[-1])[targets] + 0.1 / logits.shape[-1]
    loss = -(probs * log_probs).sum(-1)[real].mean()
    return loss, (logits.argmax(-1) == targets)[real].mean()


@pytest.fixture(scope="module")
def trained() -> tuple[keras.Model, dict[str, list[float]]]:
    return train(False, epochs=20)


@pytest.mark.slow
def test_fit_decreases_the_loss_and_evaluate_equals_numpy(
    trained: tuple[keras.Model, dict[str, list[float]]],
) -> None:
    model, history = trained
    assert history["loss"][-1] < history["loss"][0] - 0.2
    logs = model.evaluate(*data(), batch_size=8, verbose=0, return_dict=True)
    loss, accuracy = by_numpy(model)
    assert logs["loss"] == pytest.approx(loss, rel=1e-5)
    assert logs["accuracy"] == pytest.approx(accuracy)


@pytest.mark.slow
def test_compiled_equals_uncompiled(
    trained: tuple[keras.Model, dict[str, list[float]]],
) -> None:
    compiled, history = train(True, epochs=20)
    np.testing.assert_allclose(history["loss"], trained[1]["loss"], rtol=1e-5)
    np.testing.assert_allclose(history["accuracy"], trained[1]["accuracy"])
    for weight, expected in zip(compiled.weights, trained[0].weights, strict=True):
        np.testing.assert_allclose(weight, expected, atol=1e-5)


def test_compiled_model_is_saved_and_loaded(tmp_path: Path) -> None:
    model, _ = train(False, epochs=2)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    for trained_model in (model, loaded):
        trained_model.fit(*data(), epochs=2, batch_size=8, verbose=0)
    assert loaded.loss.get_config() == model.loss.get_config()
    schedule = loaded.optimizer.get_config()["learning_rate"]
    assert schedule["class_name"] == "InverseSquareRootSchedule"
    logs = [m.evaluate(*data(), verbose=0, return_dict=True) for m in (model, loaded)]
    assert logs[0] == pytest.approx(logs[1])
    assert set(logs[1]) == {"loss", "accuracy"}


def test_batch_of_padding_changes_no_weight() -> None:
    model = small_model(True, keras.optimizers.SGD(1.0))
    logits, targets = data()
    before = model.get_weights()
    logs = model.train_on_batch(logits, targets * 0, return_dict=True)
    assert logs == {"loss": 0.0, "accuracy": 0.0}
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.slow
@pytest.mark.subprocess
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_training_is_equal_on_all_backends(
    backend: str, trained: tuple[keras.Model, dict[str, list[float]]]
) -> None:
    results = run_in_subprocess("jit" if backend == "jax" else "eager", backend)
    assert results["backend"] == backend
    assert results["empty"] == 0
    model, history = trained
    np.testing.assert_allclose(results["loss"], history["loss"], rtol=1e-5)
    np.testing.assert_allclose(results["accuracy"], history["accuracy"], rtol=1e-6)
    np.testing.assert_allclose(results["weights"], model.get_weights()[0], atol=1e-5)


@pytest.mark.slow
@pytest.mark.subprocess
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="tf.distribute")
def test_two_replicas_equal_one() -> None:
    """All examples have the same number of tokens: the mean of the means is exact."""
    results = run_in_subprocess("two replicas", "tensorflow")
    model, history = train(False, keras.optimizers.SGD(0.1), epochs=4)
    np.testing.assert_allclose(results["weights"], model.get_weights()[0], atol=1e-5)
    np.testing.assert_allclose(results["loss"], history["loss"], rtol=1e-5)
