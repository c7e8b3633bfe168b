"""Type aliases for annotations.

Keras has no public type for a tensor, so `Tensor` documents intent and is not checked.
"""

from typing import Any, TypeAlias

import keras

__all__ = ["ActivationLike", "DTypeLike", "InitializerLike", "Model", "Shape", "Tensor"]

# A tensor of the backend, a NumPy array or a `keras.KerasTensor`.
Tensor: TypeAlias = Any
# A `keras.Model`. Any object is accepted by a type checker, since the result of
# `keras.saving.load_model` has no useful type.
Model: TypeAlias = keras.Model | Any
# One entry per axis, None for a length that is not known.
Shape: TypeAlias = tuple[int | None, ...]
# A dtype name or a `keras.DTypePolicy`.
DTypeLike: TypeAlias = Any
# A name, a config or an object that `keras.initializers.get` accepts.
InitializerLike: TypeAlias = Any
# A name or a function that `keras.activations.get` accepts.
ActivationLike: TypeAlias = Any
