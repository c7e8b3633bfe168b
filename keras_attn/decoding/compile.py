"""Compilation of functions of tensors on each backend."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import keras

__all__ = ["compile_function", "uses_xla"]

_Function = TypeVar("_Function", bound=Callable[..., Any])

# From this product of parameters and tokens on, `"auto"` compiles with XLA. That saves
# about half a nanosecond per parameter and token (docs/architecture.md), so 50 ms of a
# request at this limit. Compilation takes about ten seconds for a model of 6 layers: a
# few hundred requests of the same shapes save as much, and fewer with a larger model.
_MIN_PARAMETER_READS = 1e8

_IN_TRAINING = (
    "On the JAX backend the model has no weights while `fit`, `evaluate` or `predict` "
    "runs in another thread. Call it afterwards, or in `on_epoch_end` of a callback."
)


def uses_xla(jit_compile: bool | str, model: keras.Model, max_new_tokens: int) -> bool:
    """Return whether a decoding loop is compiled with XLA.

    Args:
        jit_compile: bool, or `"auto"`: whether the number of parameters times the
            number of tokens is at least 100 million.
        model: the model.
        max_new_tokens: int, the largest number of tokens.

    Returns:
        bool; always True on JAX, and always False on PyTorch.

    Raises:
        ValueError: for any other value.
    """
    if jit_compile not in (True, False, "auto"):
        raise ValueError(
            f"`jit_compile` must be a bool or 'auto'. Received: {jit_compile=}"
        )
    backend = keras.backend.backend()
    if backend != "tensorflow":
        return backend == "jax"
    if jit_compile == "auto":
        return model.count_params() * max_new_tokens >= _MIN_PARAMETER_READS
    return bool(jit_compile)


def compile_function(
    function: _Function, variables: Sequence[Any], jit_compile: bool = False
) -> _Function:
    """Return `function`, compiled on TensorFlow and JAX, without gradients on PyTorch.

    The result uses the current values of the variables at each call.

    Args:
        function: from nested tensors to nested tensors, written with `keras.ops`.
        variables: the Keras variables that it reads.
        jit_compile: bool, whether TensorFlow compiles with XLA (JAX always does).

    Returns:
        A function of the same arguments.
    """
    backend = keras.backend.backend()
    result: Any
    if backend == "tensorflow":
        import tensorflow as tf

        # A partial object, since TensorFlow identifies functions by their source line,
        # and would warn of too many retracings.
        result = tf.function(
            functools.partial(function),
            autograph=False,  # as in `model.fit`; reading the source takes seconds
            jit_compile=jit_compile,
            # XLA compiles each shape separately anyway.
            reduce_retracing=not jit_compile,
        )
        return result
    if backend == "jax":
        import jax

        # The weights are arguments. As constants of the program they would keep their
        # values of the first call.
        @jax.jit
        def with_values(values: Sequence[Any], *args: Any) -> Any:
            with keras.StatelessScope(state_mapping=zip(variables, values)):
                return function(*args)

        @functools.wraps(function)
        def run(*args: Any) -> Any:
            try:
                values = [variable.value for variable in variables]
            except TypeError as error:  # Keras holds the values outside the variables.
                raise RuntimeError(_IN_TRAINING) from error
            try:
                return with_values(values, *args)
            except (RuntimeError, ValueError) as error:
                if "deleted" in str(error):  # `fit` has given their memory away.
                    raise RuntimeError(_IN_TRAINING) from error
                raise

        result = run
        return result
    import torch

    result = torch.inference_mode()(function)
    return result
