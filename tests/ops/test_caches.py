"""Updates of fixed-size buffers, compared with NumPy slices."""

# Unpacked sequences, results of several types and invalid arguments.
# pyright: reportCallIssue=false

from typing import Any

import keras
import numpy as np
import pytest
from tensors import assert_equal, normal

from keras_attn._types import Tensor
from keras_attn.ops import kv_cache


def expected(buffer: np.ndarray, new: np.ndarray, index: int) -> np.ndarray:
    result = buffer.copy()
    result[:, index : index + new.shape[1]] = new[:, : buffer.shape[1] - index]
    return result


@pytest.mark.parametrize("length", [1, 3, 7])
@pytest.mark.parametrize("tail", [(), (3,), (3, 5)])
def test_against_slices(length: int, tail: tuple[int, ...]) -> None:
    buffer, new = normal(2, 7, *tail), normal(2, length, *tail, seed=1)
    for index in range(7 - length + 1):
        for position in (index, keras.ops.convert_to_tensor(index, dtype="int32")):
            tensors = map(keras.ops.convert_to_tensor, (buffer, new))
            written = kv_cache.write(*tensors, position)
            assert written.shape == buffer.shape
            assert_equal(written, expected(buffer, new, index))


@pytest.mark.every_backend
def test_other_dtypes() -> None:
    for dtype in ("bool", "int32"):
        buffer = np.zeros((2, 5), dtype)
        new = np.array([[1, 0], [1, 1]]).astype(dtype)
        written = kv_cache.write(*map(keras.ops.convert_to_tensor, (buffer, new)), 2)
        assert keras.backend.standardize_dtype(written.dtype) == dtype
        assert_equal(written, expected(buffer, new, 2))


def test_unknown_length() -> None:
    """Write in a model whose token axis is None, like a step model."""

    class Write(keras.layers.Layer):
        def call(self, inputs: Any) -> Tensor:
            return kv_cache.write(inputs["buffer"], inputs["new"], inputs["index"])

        def compute_output_spec(self, inputs: Any) -> keras.KerasTensor:
            return keras.KerasTensor(inputs["buffer"].shape, inputs["buffer"].dtype)

    inputs = {
        "buffer": keras.Input((7, 3), name="buffer"),
        "index": keras.Input(batch_shape=(), dtype="int32", name="index"),
        "new": keras.Input((None, 3), name="new"),
    }
    model = keras.Model(inputs, Write()(inputs))
    run = model
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        run = tf.function(model, reduce_retracing=True)
    buffer = normal(2, 7, 3)
    for length in (1, 2, 4, 1, 3):
        new = normal(2, length, 3, seed=length)
        tensors = {"buffer": buffer, "new": new, "index": np.int32(3)}
        tensors = {k: keras.ops.convert_to_tensor(tensors[k]) for k in sorted(tensors)}
        assert_equal(run(tensors), expected(buffer, new, 3))
