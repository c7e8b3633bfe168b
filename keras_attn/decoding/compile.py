"""Compiling a function of tensors on the backend at hand."""

import functools

import keras

__all__ = ["compiled", "uses_xla"]

# Compiling takes XLA about ten seconds; a parameter read at a step a tenth of a
# nanosecond less.
_WORTH_COMPILING = 1e8


def uses_xla(jit_compile, model, max_length):
    """What `jit_compile` comes to.

    Args:
        jit_compile: bool, or `"auto"`: whether the weights to be read for one text,
            parameters times tokens, are 100 million or more.
        model: the model to decode.
        max_length: int, how many tokens there will be at most.

    Returns:
        bool; always True on JAX, which knows nothing else, and False on PyTorch.

    Raises:
        ValueError: for another value.
    """
    if jit_compile not in (True, False, "auto"):
        raise ValueError(
            f"`jit_compile` must be a bool or 'auto'. Received: {jit_compile=}"
        )
    backend = keras.backend.backend()
    if backend != "tensorflow":
        return backend == "jax"
    if jit_compile == "auto":
        return model.count_params() * max_length >= _WORTH_COMPILING
    return bool(jit_compile)


def compiled(function, variables, jit_compile=False):
    """`function` as one compiled program that uses the variables' current values.

    Args:
        function: from nested tensors to nested tensors, written on `keras.ops`.
        variables: the Keras variables it reads.
        jit_compile: bool, whether TensorFlow compiles with XLA (JAX always does).

    Returns:
        A function of the same arguments.
    """
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        # In a partial, since TensorFlow takes all functions of one place in the source
        # for one function, and would warn that it is traced too often.
        return tf.function(
            functools.partial(function),
            autograph=False,  # as in `model.fit`; its reading of code takes seconds
            jit_compile=jit_compile,
            # XLA compiles each shape anew: it is told, then, what the shape is.
            reduce_retracing=not jit_compile,
        )
    if backend == "jax":
        import jax

        # The weights come in as arguments. As constants of the program they would
        # stay what they were at its first call.
        @jax.jit
        def with_values(values, *args):
            with keras.StatelessScope(state_mapping=zip(variables, values)):
                return function(*args)

        @functools.wraps(function)
        def run(*args):
            return with_values([variable.value for variable in variables], *args)

        return run
    import torch

    return torch.inference_mode()(function)
