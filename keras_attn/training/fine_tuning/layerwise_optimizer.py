"""Optimizer with a separate learning rate for each part of a model."""

import functools
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

import keras
from keras import ops

from keras_attn._keras_internals import (
    Untracked,
    is_decayed,
    overridden_methods,
    update_variables,
)
from keras_attn._types import Tensor

__all__ = ["LayerwiseOptimizer"]

# Settings that `keras.optimizers.Optimizer` implements for every optimizer, outside of
# its update, with their defaults.
_SHARED_SETTINGS = {
    "clipnorm": None,
    "clipvalue": None,
    "global_clipnorm": None,
    "use_ema": False,
    "ema_momentum": 0.99,
    "ema_overwrite_frequency": None,
    "loss_scale_factor": None,
    "gradient_accumulation_steps": None,
}


@keras.saving.register_keras_serializable(package="keras_attn")
class LayerwiseOptimizer(keras.optimizers.Optimizer):
    """Wrapper of an optimizer that scales the learning rate of each variable.

    The learning rate is one number or schedule, which callbacks can read and set. Each
    variable is updated with this rate times the factor of the variable. Its weight
    decay is scaled in the same way: a decay step uses the rate of the variable.
    Clipping by global norm uses the norm of all gradients.

    One copy of the optimizer updates the variables of each factor. Its update and its
    weight decay are the optimizer's own, so that all optimizers of Keras can be
    wrapped.

    Args:
        optimizer: The optimizer to wrap, or its name. It is copied by its config.
        factors: Dict that maps regular expressions to factors, numbers of at least 0.
            The first expression found in the path of a variable, such as
            `"encoder_0/norm/gamma"`, determines its factor. Without a match, the factor
            is 1.
        name: String. Name of the optimizer.

    Raises:
        ValueError: If `optimizer` wraps another optimizer or overrides other methods
            of `keras.optimizers.Optimizer` than those of its update; if a factor is not
            a number of at least 0; when built, if no expression matches a variable.

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
        wrapped: Any = keras.optimizers.get(optimizer)
        settings = wrapped.get_config()
        if not {*_SHARED_SETTINGS, "learning_rate"} <= set(settings):
            raise ValueError(
                "`optimizer` must be an optimizer that wraps no other optimizer; wrap "
                "the `LayerwiseOptimizer` instead. "
                f"Received: optimizer={optimizer}"
            )
        if overridden := overridden_methods(wrapped):
            raise ValueError(
                "`optimizer` may override only the methods of its update, such as "
                "`update_step`, since `LayerwiseOptimizer` itself clips, accumulates "
                f"and averages. Received: {type(wrapped).__name__}, which overrides "
                f"{overridden}"
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
        self._optimizer = Untracked(wrapped)
        # Some optimizers update a state of their own once per step, and some update all
        # variables together: each factor has its optimizer.
        copied = {**settings, **_SHARED_SETTINGS}
        self._optimizers = Untracked(
            {
                factor: type(wrapped).from_config(
                    {**copied, "learning_rate": functools.partial(self._rate, factor)}
                )
                for factor in dict.fromkeys([1.0, *map(float, factors.values())])
            }
        )

    def _rate(self, factor: float) -> Any:
        """Return the current learning rate of the variables with a factor."""
        rate = self.learning_rate
        return rate if factor == 1 else ops.multiply(rate, factor)

    @property
    def variables(self) -> list[keras.Variable]:
        variables = super().variables
        for optimizer in self._built_optimizers():
            variables += optimizer.variables
        return variables

    def _built_optimizers(self) -> list[Any]:
        """Return the optimizers that have variables to update."""
        return [x for x in self._optimizers.value.values() if x.built]

    def build(self, variables: list[keras.Variable]) -> None:
        if self.built:
            return
        factors = [self._factor(variable.path) for variable in variables]
        if self.factors and all(factor is None for factor in factors):
            raise ValueError(
                "`factors` must have a pattern that is found in the path of a "
                f"variable, such as '{variables[0].path}'. "
                f"Received: factors={dict(self.factors)}"
            )
        super().build(variables)
        self._factors = [1.0 if factor is None else factor for factor in factors]
        for factor, optimizer in self._optimizers.value.items():
            updated = [v for v, f in zip(variables, self._factors) if f == factor]
            if not updated:
                continue
            excluded = [v for v in updated if not is_decayed(self._optimizer.value, v)]
            if excluded:
                optimizer.exclude_from_weight_decay(var_list=excluded)
            optimizer.build(updated)

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
        for optimizer in self._built_optimizers():
            optimizer.iterations.assign(self.iterations)
        super().apply(grads, trainable_variables)

    def _backend_update_step(
        self,
        grads: list[Tensor],
        trainable_variables: list[keras.Variable],
        learning_rate: Tensor,
    ) -> None:
        groups: dict[float, tuple[list[Tensor], list[keras.Variable]]] = {}
        for gradient, variable in zip(grads, trainable_variables):
            factor = self._factors[self._get_variable_index(variable)]
            gradients, variables = groups.setdefault(factor, ([], []))
            gradients.append(gradient)
            variables.append(variable)
        for factor, (gradients, variables) in groups.items():
            update_variables(self._optimizers.value[factor], gradients, variables)

    def exclude_from_weight_decay(
        self,
        var_list: Iterable[keras.Variable] | None = None,
        var_names: Iterable[str] | None = None,
    ) -> None:
        for optimizer in (self._optimizer.value, *self._optimizers.value.values()):
            optimizer.exclude_from_weight_decay(var_list, var_names)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        optimizer = cast(
            dict[str, Any], keras.saving.serialize_keras_object(self._optimizer.value)
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
