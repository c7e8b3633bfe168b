"""The state of a training run in one file, to resume the run after an interruption."""

import io
import json
import os
import time

import keras
import numpy as np


def write_atomically(path, content):
    """Write bytes to a file that has its old content until the new one is complete."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


class TrainingState(keras.callbacks.Callback):
    """Callback that saves all that training depends on after each epoch.

    A run that is killed at any time and started again repeats the interrupted epoch.
    Its result is that of a run without the interruption, to the last bit if the ops of
    the device are deterministic. In addition to the weights and the variables of the
    optimizer, the file contains the states of the seed generators that dropout uses;
    Keras's own files of weights omit them. The data of an epoch must depend only on its
    number, see `first_epoch` of `keras_attn.text.translation_dataset`.

    List it after the callbacks that add to the logs or stop training.

    Args:
        path: `pathlib.Path` of the file, which is read if it exists.
        log_path: `pathlib.Path` of a JSON Lines file of the metrics of each epoch.

    Attributes:
        epoch: Number of completed epochs; pass it to `fit` as `initial_epoch`.
        finished: Whether the training was completed or stopped.
        rows: List of dicts, the metrics of the completed epochs.
        seconds: Training time, as measured by `StopAfter`.
    """

    def __init__(self, path, log_path):
        super().__init__()
        self.path = path
        self.log_path = log_path
        state = {"epoch": 0, "finished": False, "rows": [], "seconds": 0.0}
        self._values = None
        if path.exists():
            with np.load(path, allow_pickle=False) as arrays:
                state = json.loads(str(arrays["state"]))
                count = len(arrays.files) - 1
                self._values = [arrays[f"variable_{i}"] for i in range(count)]
        self.epoch = state["epoch"]
        self.finished = state["finished"]
        self.rows = state["rows"]
        self.seconds = state["seconds"]

    def _variables(self):
        optimizer = self.model.optimizer
        if not optimizer.built:
            optimizer.build(self.model.trainable_variables)
        # Unlike `weights`, `variables` contains the states of the seed generators.
        return [*self.model.variables, *optimizer.variables]

    def on_train_begin(self, logs=None):
        if self._values is None:
            return
        variables = self._variables()
        shapes = [tuple(variable.shape) for variable in variables]
        if shapes != [value.shape for value in self._values]:
            raise ValueError(
                "Expected the training state of this model; remove the file to train "
                f"from the beginning. Received: path={str(self.path)!r}"
            )
        for variable, value in zip(variables, self._values):
            variable.assign(value)
        self._values = None
        self._write_log()  # in case the process was killed before it did

    def on_epoch_end(self, epoch, logs=None):
        row = {"epoch": epoch + 1, **{k: float(v) for k, v in (logs or {}).items()}}
        self.epoch = epoch + 1
        self.rows.append(row)
        self.finished = self.model.stop_training or self.epoch == self.params["epochs"]
        self._write_state()
        self._write_log()

    def _write_state(self):
        arrays = {
            f"variable_{i}": keras.ops.convert_to_numpy(variable)
            for i, variable in enumerate(self._variables())
        }
        names = ("epoch", "finished", "rows", "seconds")
        state = json.dumps({name: getattr(self, name) for name in names})
        buffer = io.BytesIO()
        np.savez(buffer, state=state, **arrays)
        write_atomically(self.path, buffer.getvalue())

    def _write_log(self):
        lines = "".join(json.dumps(row) + "\n" for row in self.rows)
        write_atomically(self.log_path, lines.encode())


class StopAfter(keras.callbacks.Callback):
    """Early stopping after a given training time, without the time of validation.

    Args:
        minutes: The training time.
        state: A `TrainingState`, so that a resumed run continues from its `seconds`.
            List it after this callback.
    """

    def __init__(self, minutes, state):
        super().__init__()
        self.max_seconds = minutes * 60
        self.state = state

    def on_epoch_begin(self, epoch, logs=None):
        self.began = time.monotonic() - self.state.seconds

    def on_train_batch_end(self, batch, logs=None):
        self.state.seconds = time.monotonic() - self.began
        if self.state.seconds >= self.max_seconds:
            self.model.stop_training = True
