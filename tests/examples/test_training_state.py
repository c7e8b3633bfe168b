"""A training run that is killed and resumed equals an uninterrupted one.

A kill is simulated by an exception that nothing handles, at each step of the training
and at each step of writing the files, so each place is tried once, and quickly.
"""

import itertools
import json
import os

import keras
import numpy as np
import pytest
import training_state
from training_state import StopAfter, TrainingState, write_atomically

from keras_attn import layers, text, training

EPOCHS = 3
PAIRS = [(c, c + d) for c in "abcdef" for d in "abcd"]
TOKENIZER = text.CharacterTokenizer.train(["abcdef"])


class Kill(BaseException):
    """The end of the process."""


def small_model():
    """Return a model of translations that is traced quickly and has dropout."""
    source, target = (
        keras.Input((None,), dtype="int32", name=name) for name in ("source", "target")
    )
    embedding = layers.TokenEmbedding(TOKENIZER.vocabulary_size, 8)
    mean = keras.layers.GlobalAveragePooling1D(keepdims=True)(embedding(source))
    x = keras.layers.Dropout(0.3)(embedding(target) + mean)
    inputs = {"source": source, "target": target}
    return keras.Model(inputs, embedding(x, reverse=True))


def train(folder, *callbacks, epochs=EPOCHS, minutes=None):
    """Train from the state in `folder`, as a new process does; return all variables."""
    keras.utils.set_random_seed(1)
    state = TrainingState(folder / "state.npz", folder / "curve.jsonl")
    data = text.translation_dataset(
        PAIRS, TOKENIZER, batch_size=8, seed=1, first_epoch=state.epoch
    )
    model = small_model()
    model.compile("adam", training.MaskedCrossentropy(), jit_compile=False)
    stop = [StopAfter(minutes, state)] if minutes is not None else []
    model.fit(
        data,
        initial_epoch=state.epoch,
        epochs=state.epoch if state.finished else epochs,
        callbacks=[*callbacks, *stop, state],
        shuffle=False,
        verbose=0,
    )
    variables = [*model.variables, *model.optimizer.variables]
    return [keras.ops.convert_to_numpy(variable) for variable in variables], state


def curve(folder):
    lines = (folder / "curve.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("uninterrupted")
    values, _ = train(folder)
    return values, curve(folder)


def assert_equal(values, folder, uninterrupted):
    expected_values, expected_curve = uninterrupted
    assert len(values) == len(expected_values)
    for value, expected in zip(values, expected_values):
        np.testing.assert_array_equal(value, expected)
    assert curve(folder) == expected_curve
    assert {path.name for path in folder.iterdir()} == {"state.npz", "curve.jsonl"}


def kill_at(number, monkeypatch, module, name):
    """Let call `number` of a function of a module be the end of the process."""
    calls, function = itertools.count(), getattr(module, name)

    def killed(*arguments, **options):
        if next(calls) == number:
            raise Kill
        return function(*arguments, **options)

    monkeypatch.setattr(module, name, killed)


@pytest.mark.slow
@pytest.mark.parametrize("step", [0, 2, 4, 8])
def test_killed_at_a_training_step(step, tmp_path, uninterrupted):
    def kill(batch, logs):
        if next(steps) == step:
            raise Kill

    steps = itertools.count()
    with pytest.raises(Kill):
        train(tmp_path, keras.callbacks.LambdaCallback(on_train_batch_end=kill))
    assert (tmp_path / "state.npz").exists() == (step > 2)
    values, state = train(tmp_path)
    assert state.finished and state.epoch == EPOCHS
    assert_equal(values, tmp_path, uninterrupted)


# Each epoch calls `os.fsync` for the state, then for the log.
@pytest.mark.parametrize("call", range(2 * EPOCHS))
def test_killed_while_a_file_is_written(call, tmp_path, monkeypatch, uninterrupted):
    with monkeypatch.context() as patch:
        kill_at(call, patch, os, "fsync")
        with pytest.raises(Kill):
            train(tmp_path)
    assert (tmp_path / "state.npz").exists() == (call > 0)
    values, _ = train(tmp_path)
    assert_equal(values, tmp_path, uninterrupted)


def test_a_stopped_run_is_not_trained_further(tmp_path):
    values, state = train(tmp_path, minutes=0)
    assert state.finished and state.epoch == 1 and state.seconds > 0
    again, resumed = train(tmp_path)
    assert resumed.seconds == state.seconds and resumed.rows == state.rows
    for value, expected in zip(again, values):
        np.testing.assert_array_equal(value, expected)


def test_the_state_of_another_model_is_refused(tmp_path):
    train(tmp_path, epochs=1)
    state = TrainingState(tmp_path / "state.npz", tmp_path / "curve.jsonl")
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    with pytest.raises(ValueError, match="state of this model.*Received: path="):
        model.fit(np.ones((2, 2)), np.ones((2, 1)), callbacks=[state], verbose=0)


def test_a_file_is_replaced_atomically(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomically(path, b"old")
    with monkeypatch.context() as patch:
        kill_at(0, patch, training_state.os, "fsync")
        with pytest.raises(Kill):
            write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    write_atomically(path, b"newer")
    assert path.read_bytes() == b"newer"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
