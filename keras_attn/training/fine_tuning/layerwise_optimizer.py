"""Optimizer with a separate learning rate for each part of a model."""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import keras
from keras import ops

from keras_attn._keras_internals import is_decayed
from keras_attn._types import Tensor

__all__ = ["LayerwiseOptimizer"]

# Settings that `keras.optimizers.Optimizer` implements for every optimizer, outside of
# `update_step`.
_SHARED_SETTINGS = (
    "clipnorm",
    "clipvalue",
    "global_clipnorm",
    "use_ema",
    "ema_momentum",
    "ema_overwrite_frequency",
    "loss_scale_factor",
    "gradient_accumulation_steps",
)


@keras.saving.register_keras_serializable(package="keras_attn")
class LayerwiseOptimizer(keras.optimizers.Optimizer):
    """Wrapper of an optimizer that scales the learning rate of each variable.

    The learning rate is one number or schedule, which callbacks can read and set. Each
    variable is updated with this rate times the factor of the variable. Its weight
    decay is scaled in the same way: a decay step uses the rate of the variable.
    Clipping by global norm uses the norm of all gradients.

    Args:
        optimizer: The optimizer to wrap, or its name. The wrapper takes ownership: do
            not use the optimizer elsewhere.
        factors: Dict that maps regular expressions to factors, numbers of at least 0.
            The first expression found in the path of a variable, such as
            `"encoder_0/norm/gamma"`, determines its factor. Without a match, the factor
            is 1.
        name: String. Name of the optimizer.

    Raises:
        ValueError: If `optimizer` wraps another optimizer, or if a factor is not a
            number of at least 0; when built, if no expression matches a variable.

    Example:
        >>> import keras
        >>> from keras_attn import models, training
        >>> model = models.text_classifier(
        ...     20, 3, num_layers=2, hidden_dim=8, intermediate_dim=8, num_heads=2
        ... )
        >>> optimizer = training.LayerwiseOptimizer(
        ...     keras.optimizers.AdamW(2e-5), training.layerwise_decay(model, 0.9)
        ... )
        >>> model.compile(optimizer, "sparse_categorical_crossentropy")

    Reference:
        Howard and Ruder, 2018, "Universal Language Model Fine-tuning for Text
        Classification", section 3.2, https://arxiv.org/abs/1801.06146
    """

    def __init__(
        self,
        optimizer: keras.optimizers.Optimizer | str,
        factors: Mapping[str, float],
        name: str | None = None,
    ) -> None:
        optimizer = cast(keras.optimizers.Optimizer, keras.optimizers.get(optimizer))
        settings = optimizer.get_config()
        if not {*_SHARED_SETTINGS, "learning_rate"} <= set(settings):
            raise ValueError(
                "`optimizer` must be an optimizer that wraps no other optimizer; wrap "
                "the `LayerwiseOptimizer` instead. "
                f"Received: optimizer={optimizer}"
            )
        for pattern, factor in factors.items():
            if not isinstance(factor, (int, float)) or not 0 <= factor < math.inf:
                raise ValueError(
                    "A factor must be a finite number of at least 0. "
                    f"Received: factors[{pattern!r}]={factor!r}"
                )
        learning_rate = settings["learning_rate"]
        if isinstance(learning_rate, dict):
            learning_rate = keras.saving.deserialize_keras_object(learning_rate)
        super().__init__(
            learning_rate,
            name=name,
            **{key: settings[key] for key in _SHARED_SETTINGS},
        )
        self.factors = dict(factors)
        optimizer.use_ema = False
        optimizer.gradient_accumulation_steps = None
        # A function hides the optimizer from Keras's tracker, which would save its
        # variables twice.
        self._optimizer: Callable[[], Any] = lambda: optimizer

    @property
    def variables(self) -> list[keras.Variable]:
        return [*super().variables, *self._optimizer().variables]

    def build(self, variables: list[keras.Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        self._optimizer().build(variables)
        factors = [self._factor(variable.path) for variable in variables]
        if self.factors and all(factor is None for factor in factors):
            raise ValueError(
                "`factors` must have a pattern that is found in the path of a "
                f"variable, such as '{variables[0].path}'. "
                f"Received: factors={dict(self.factors)}"
            )
        self._factors = [1.0 if factor is None else factor for factor in factors]

    def _factor(self, path: str) -> float | None:
        """Return the factor of the first pattern found in `path`, or None."""
        matching = (self.factors[p] for p in self.factors if re.search(p, path))
        return next(matching, None)

    def apply(
        self,
        grads: list[Tensor],
        trainable_variables: list[keras.Variable] | None = None,
    ) -> None:
        # Adam's bias correction depends on the number of steps.
        self._optimizer().iterations.assign(self.iterations)
        super().apply(grads, trainable_variables)

    def update_step(
        self, gradient: Tensor, variable: keras.Variable, learning_rate: Tensor
    ) -> None:
        optimizer = self._optimizer()
        factor = self._factors[self._get_variable_index(variable)]
        rate = ops.multiply(learning_rate, factor)
        if optimizer.weight_decay and is_decayed(optimizer, variable):
            decay = ops.cast(rate * optimizer.weight_decay, variable.dtype)
            self.assign_sub(variable, variable * decay)
        optimizer.update_step(gradient, variable, rate)

    def exclude_from_weight_decay(
        self,
        var_list: Iterable[keras.Variable] | None = None,
        var_names: Iterable[str] | None = None,
    ) -> None:
        self._optimizer().exclude_from_weight_decay(var_list, var_names)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        optimizer = cast(
            dict[str, Any], keras.saving.serialize_keras_object(self._optimizer())
        )
        for key in ("learning_rate", *_SHARED_SETTINGS):
            optimizer["config"][key] = config[key]
        return {
            "name": config["name"],
            "optimizer": optimizer,
            "factors": dict(self.factors),
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> "LayerwiseOptimizer":
        optimizer = keras.saving.deserialize_keras_object(
            config["optimizer"], custom_objects=custom_objects
        )
        return cls(**{**config, "optimizer": optimizer})
