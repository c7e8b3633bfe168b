"""Writing into fixed-size buffers, against NumPy's slices."""

import keras
import numpy as np
import pytest
from tensors import assert_equal, normal

from keras_attn.ops import kv_cache


def expected(buffer, new, index):
    result = buffer.copy()
    result[:, index : index + new.shape[1]] = new[:, : buffer.shape[1] - index]
    return result


@pytest.mark.parametrize("length", [1, 3, 7])
@pytest.mark.parametrize("tail", [(), (3,), (3, 5)])
def test_against_slices(length, tail):
    buffer, new = normal(2, 7, *tail), normal(2, length, *tail, seed=1)
    for index in range(7 - length + 1):
        for place in (index, keras.ops.convert_to_tensor(index, dtype="int32")):
            tensors = map(keras.ops.convert_to_tensor, (buffer, new))
            found = kv_cache.write(*tensors, place)
            assert found.shape == buffer.shape
            assert_equal(found, expected(buffer, new, index))


@pytest.mark.every_backend
def test_other_dtypes():
    for dtype in ("bool", "int32"):
        buffer = np.zeros((2, 5), dtype)
        new = np.array([[1, 0], [1, 1]]).astype(dtype)
        found = kv_cache.write(*map(keras.ops.convert_to_tensor, (buffer, new)), 2)
        assert keras.backend.standardize_dtype(found.dtype) == dtype
        assert_equal(found, expected(buffer, new, 2))


def test_unknown_length():
    """As in a step model, whose token axis is None."""

    class Write(keras.layers.Layer):
        def call(self, inputs):
            return kv_cache.write(inputs["buffer"], inputs["new"], inputs["index"])

        def compute_output_spec(self, inputs):
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
        given = {"buffer": buffer, "new": new, "index": np.int32(3)}
        given = {key: keras.ops.convert_to_tensor(given[key]) for key in sorted(given)}
        assert_equal(run(given), expected(buffer, new, 3))
