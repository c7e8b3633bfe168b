"""Random values for the weights of a model, for the time of a check."""

import contextlib
import math
from collections.abc import Iterable, Iterator
from typing import Any

import keras
import numpy as np

__all__ = ["random_weights"]

_GROUP_INDICES = "g_idx"  # Floats in Keras's layers with int4 and GPTQ kernels.


@contextlib.contextmanager
def random_weights(variables: Iterable[Any], seed: int = 0) -> Iterator[None]:
    """Use random values for all float variables inside a context.

    The variables themselves do not change. Vectors and scalars get values around one,
    so that gates, scales and zero-initialized weights have an effect, and matrices
    values that keep activations of order one. Variables that hold indices keep their
    values.

    Args:
        variables: Keras variables.
        seed: int.
    """
    rng = np.random.default_rng(seed)
    unique = {id(variable): variable for variable in variables}.values()
    mapping = [
        (variable, _random_value(variable, rng))
        for variable in unique
        if "float" in keras.backend.standardize_dtype(variable.dtype)
        and variable.name != _GROUP_INDICES
    ]
    with keras.StatelessScope(state_mapping=mapping):
        yield


def _random_value(variable: Any, rng: np.random.Generator) -> Any:
    shape = tuple(variable.shape)
    values = rng.normal(size=shape)
    if len(shape) < 2:
        values = 0.5 + 0.5 * np.abs(values)
    else:
        values *= max(math.prod(shape[:-1]) ** -0.5, 0.1)
    return keras.ops.convert_to_tensor(values, dtype=variable.dtype)
