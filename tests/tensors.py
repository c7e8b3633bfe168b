"""Random arrays, weights and gradients, alike on every backend."""

import keras
import numpy as np
from keras import ops


def normal(*shape, seed=0, dtype="float32"):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def lengths_mask(lengths, total):
    """Bool `(batch, total)`, True for the first `lengths[row]` positions."""
    return np.arange(total)[None, :] < np.asarray(lengths)[:, None]


def fill_weights(layer, seed=0):
    """Random values in all weights, biases and normalizations included.

    Fresh biases are zeros and fresh scales ones, which hides what is done with them.
    """
    rng = np.random.default_rng(seed)
    for weight in layer.weights:
        fan_in = np.prod(weight.shape[:-1]) if len(weight.shape) > 1 else 4
        weight.assign(rng.normal(size=weight.shape) / np.sqrt(fan_in))
    return layer


def gradients(function, *arrays):
    """Gradients of `sum(function(*tensors))` in each of `arrays`, as NumPy arrays."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        tensors = [tf.constant(array) for array in arrays]
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            total = tf.reduce_sum(function(*tensors))
        found = tape.gradient(total, tensors)
    elif backend == "jax":
        import jax

        tensors = [jax.numpy.asarray(array) for array in arrays]
        total = jax.grad(lambda args: function(*args).sum())
        found = total(tensors)
    else:
        tensors = [ops.convert_to_tensor(array).requires_grad_() for array in arrays]
        function(*tensors).sum().backward()
        found = [tensor.grad for tensor in tensors]
    return [ops.convert_to_numpy(gradient) for gradient in found]


def array(tensor):
    return ops.convert_to_numpy(tensor)


def assert_close(found, expected, tolerance=1e-5):
    np.testing.assert_allclose(
        array(found), array(expected), rtol=tolerance, atol=tolerance
    )


def assert_equal(found, expected):
    np.testing.assert_array_equal(array(found), array(expected))
