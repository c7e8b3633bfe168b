"""Functional models whose layers compute or are stored in half precision."""

import math
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import keras
from keras import ops

from keras_attn._keras_internals import inner_layers
from keras_attn._types import DTypeLike

__all__ = ["HalfPrecisionModel", "check_dtype", "functional_model"]

# Number of bits of the significand, of which 1 is implicit.
_PRECISION = {"bfloat16": 8, "float16": 11}


def check_dtype(dtype: DTypeLike | None) -> None:
    """Raise a ValueError if a dtype policy of a whole model is quantized."""
    policy = keras.dtype_policies.get(dtype)
    if policy.quantization_mode is not None:
        raise ValueError(
            "`dtype` must be a dtype or a dtype policy of floats, since only some of "
            "the layers of a model can be quantized. Build the model with one, such "
            f"as dtype='float32', and call `model.quantize({policy.quantization_mode!r}"
            f")`. Received: dtype={policy.name!r}"
        )


def functional_model(inputs: Any, outputs: Any, name: str | None) -> keras.Model:
    """Return a Functional model, a `HalfPrecisionModel` if a layer has half precision.

    Args:
        inputs, outputs, name: arguments of `keras.Model`.
    """
    model = keras.Model(inputs, outputs, name=name)
    dtypes = {
        dtype
        for _, layer in inner_layers(model)
        for dtype in (layer.compute_dtype, layer.variable_dtype)
    }
    if dtypes.isdisjoint(_PRECISION):
        return model
    return HalfPrecisionModel(inputs, outputs, name=name)


@keras.saving.register_keras_serializable(package="keras_attn")
class HalfPrecisionModel(keras.Model):
    """A Functional model that scales its loss if a layer is mixed_float16.

    Keras decides this by the global dtype policy at the time the model is constructed,
    loaded or cloned; this class decides it by the layers: if any computes in float16
    with float32 variables, the dtype policy of the model is set to `"mixed_float16"`.

    `fit` warns if trainable weights are stored in half precision.

    Args:
        inputs, outputs, name: arguments of `keras.Model`.
        **kwargs: further arguments of `keras.Model`.
    """

    def __init__(
        self, inputs: Any, outputs: Any, name: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(inputs, outputs, name=name, **kwargs)
        if any(
            (layer.compute_dtype, layer.variable_dtype) == ("float16", "float32")
            for _, layer in inner_layers(self)
        ):
            self.dtype_policy = "mixed_float16"

    # Called by `fit` and `train_on_batch`, on each backend.
    def make_train_function(self, force: bool = False) -> Any:
        if force or self.train_function is None:
            _warn_of_half_precision(self)
        return super().make_train_function(force)


def _warn_of_half_precision(model: keras.Model) -> None:
    """Warn if weights that are to be trained are stored in half precision."""
    for dtype, bits in _PRECISION.items():
        paths = [w.path for w in model.trainable_weights if w.dtype == dtype]
        if not paths:
            continue
        rounded = [
            f"{name}={value} is rounded to {_rounded(value, dtype):g}"
            for name, value in dict(_numbers(model.optimizer.get_config())).items()
            if 0 < value < 1 and _rounded(value, dtype) in (0, 1)
        ]
        constants = f", and {' and '.join(rounded)}" if rounded else ""
        warnings.warn(
            f"{len(paths)} weights of dtype {dtype}, such as '{paths[0]}', are trained "
            f"with {_description(model.optimizer)}. In {dtype}, an update of less than "
            f"about 1/{2**bits} of a weight is lost{constants}: the model may learn "
            "little or nothing. Build or load it with dtype='mixed_bfloat16', which "
            "keeps the weights in float32.",
            stacklevel=3,
        )


def _description(optimizer: Any) -> str:
    inner = getattr(optimizer, "inner_optimizer", None)
    name = type(optimizer).__name__
    return name if inner is None else f"{name}({type(inner).__name__})"


def _numbers(config: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the names and values of the floats of a config, at any depth."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _numbers(value)
        elif isinstance(value, float) and math.isfinite(value):
            yield name, value


def _rounded(value: float, dtype: str) -> float:
    return float(ops.cast(ops.convert_to_tensor(value, dtype=dtype), "float32"))
