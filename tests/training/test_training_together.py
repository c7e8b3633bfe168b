"""Schedule, loss and metric in `model.fit`: compiled, saved, on every backend."""

import json
import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from train_small_model import data, small_model, train

# TensorFlow's variables know NumPy 2 only in part; Keras reads and saves them so.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")

ROOT = Path(__file__).parents[2]


def in_a_process(mode, backend):
    env = dict(os.environ, KERAS_BACKEND=backend, TF_CPP_MIN_LOG_LEVEL="3")
    env["PYTHONPATH"] = str(ROOT)
    script = Path(__file__).with_name("train_small_model.py")
    done = subprocess.run(
        [sys.executable, str(script), mode], env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def by_hand(model):
    """Loss and accuracy of the trained model, from the definition in float64."""
    logits, targets = data()
    logits = model.predict(logits, verbose=0).astype("float64")
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    real = targets != 0
    wanted = 0.9 * np.eye(logits.shape[-1])[targets] + 0.1 / logits.shape[-1]
    loss = -(wanted * log_probs).sum(-1)[real].mean()
    return loss, (logits.argmax(-1) == targets)[real].mean()


@pytest.fixture(scope="module")
def trained():
    return train(False, epochs=20)


def test_fit_learns_and_evaluate_agrees_with_the_definition(trained):
    model, history = trained
    assert history["loss"][-1] < history["loss"][0] - 0.2
    logs = model.evaluate(*data(), batch_size=8, verbose=0, return_dict=True)
    loss, accuracy = by_hand(model)
    assert logs["loss"] == pytest.approx(loss, rel=1e-5)
    assert logs["accuracy"] == pytest.approx(accuracy)


def test_compiled_equals_uncompiled(trained):
    compiled, history = train(True, epochs=20)
    np.testing.assert_allclose(history["loss"], trained[1]["loss"], rtol=1e-5)
    np.testing.assert_allclose(history["accuracy"], trained[1]["accuracy"])
    for weight, expected in zip(compiled.weights, trained[0].weights, strict=True):
        np.testing.assert_allclose(weight, expected, atol=1e-5)


def test_a_compiled_model_is_saved_and_loaded_whole(tmp_path):
    model, _ = train(False, epochs=2)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    for part in (model, again):
        part.fit(*data(), epochs=2, batch_size=8, verbose=0)
    assert again.loss.get_config() == model.loss.get_config()
    schedule = again.optimizer.get_config()["learning_rate"]
    assert schedule["class_name"] == "InverseSquareRootSchedule"
    logs = [m.evaluate(*data(), verbose=0, return_dict=True) for m in (model, again)]
    assert logs[0] == pytest.approx(logs[1])
    assert set(logs[1]) == {"loss", "accuracy"}


def test_a_batch_of_padding_moves_no_weight():
    model = small_model(True, keras.optimizers.SGD(1.0))
    logits, targets = data()
    before = model.get_weights()
    logs = model.train_on_batch(logits, targets * 0, return_dict=True)
    assert logs == {"loss": 0.0, "accuracy": 0.0}
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_other_backends_train_alike(backend, trained):
    got = in_a_process("jit" if backend == "jax" else "eager", backend)
    assert got["backend"] == backend
    assert got["empty"] == 0
    model, history = trained
    np.testing.assert_allclose(got["loss"], history["loss"], rtol=1e-5)
    np.testing.assert_allclose(got["accuracy"], history["accuracy"], rtol=1e-6)
    np.testing.assert_allclose(got["weights"], model.get_weights()[0], atol=1e-5)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="tf.distribute")
def test_two_replicas_take_the_steps_of_one():
    """Every row holds as many tokens, so the halves' means average to the whole's."""
    got = in_a_process("two replicas", "tensorflow")
    model, history = train(False, keras.optimizers.SGD(0.1), epochs=4)
    np.testing.assert_allclose(got["weights"], model.get_weights()[0], atol=1e-5)
    np.testing.assert_allclose(got["loss"], history["loss"], rtol=1e-5)
