"""An optimizer with a learning rate for each part of a model."""

import math
import re

import keras
from keras import ops

from keras_attn._keras_internals import is_decayed

__all__ = ["LayerwiseOptimizer"]

# What all optimizers of Keras have and do by themselves, around the steps of each kind.
_SHARED = (
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
    """Another optimizer, whose learning rate is multiplied variable by variable.

    The rate is one number or schedule, which callbacks see and may set; a variable
    learns at that rate times its factor. Its weight decay follows: it is decayed by
    the decay times its own rate. Clipping by a global norm is over all gradients.

    Args:
        optimizer: the optimizer to multiply the rate of, or its name. It is taken
            over: give it to nothing else.
        factors: dict from regular expression to factor, a number of 0 or more. The
            first one found in a variable's path, as `"encoder_0/norm/gamma"`, holds for
            it; without any it learns at the full rate.
        name: of the optimizer.

    Raises:
        ValueError: for an optimizer that wraps another, or factors that are no numbers
            of 0 or more; when it meets the model, if none is for a variable of it.

    Example:
        >>> optimizer = LayerwiseOptimizer(
        ...     keras.optimizers.AdamW(2e-5), layerwise_decay(model, 0.9)
        ... )
        >>> model.compile(optimizer, loss)

    Reference:
        Howard and Ruder 2018, "Universal Language Model Fine-tuning for Text
        Classification", section 3.2 (https://arxiv.org/abs/1801.06146).
    """

    def __init__(self, optimizer, factors, name=None):
        optimizer = keras.optimizers.get(optimizer)
        settings = optimizer.get_config()
        if not {*_SHARED, "learning_rate"} <= set(settings):
            raise ValueError(
                "`optimizer` must be one that wraps no other; wrap this one instead. "
                f"Received: optimizer={optimizer}"
            )
        for pattern, factor in factors.items():
            if not isinstance(factor, (int, float)) or not 0 <= factor < math.inf:
                raise ValueError(
                    "A factor must be a number of 0 or more. "
                    f"Received: factors[{pattern!r}]={factor!r}"
                )
        learning_rate = settings["learning_rate"]
        if isinstance(learning_rate, dict):
            learning_rate = keras.saving.deserialize_keras_object(learning_rate)
        super().__init__(
            learning_rate, name=name, **{key: settings[key] for key in _SHARED}
        )
        self.factors = dict(factors)
        optimizer.use_ema = False
        optimizer.gradient_accumulation_steps = None
        # In a function, or Keras would write its variables twice.
        self._optimizer = lambda: optimizer

    @property
    def variables(self):
        return [*super().variables, *self._optimizer().variables]

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        self._optimizer().build(variables)
        found = [self._factor(variable.path) for variable in variables]
        if self.factors and all(factor is None for factor in found):
            raise ValueError(
                "`factors` must hold a pattern that is found in the path of a "
                f"variable, as '{variables[0].path}'. "
                f"Received: factors={dict(self.factors)}"
            )
        self._factors = [1.0 if factor is None else factor for factor in found]

    def _factor(self, path):
        """That of the first pattern found, or None."""
        matching = (self.factors[p] for p in self.factors if re.search(p, path))
        return next(matching, None)

    def apply(self, grads, trainable_variables=None):
        # How many steps it has taken is what Adam's first steps are corrected by.
        self._optimizer().iterations.assign(self.iterations)
        super().apply(grads, trainable_variables)

    def update_step(self, gradient, variable, learning_rate):
        optimizer = self._optimizer()
        factor = self._factors[self._get_variable_index(variable)]
        rate = ops.multiply(learning_rate, factor)
        if optimizer.weight_decay and is_decayed(optimizer, variable):
            decay = ops.cast(rate * optimizer.weight_decay, variable.dtype)
            self.assign_sub(variable, variable * decay)
        optimizer.update_step(gradient, variable, rate)

    def exclude_from_weight_decay(self, var_list=None, var_names=None):
        self._optimizer().exclude_from_weight_decay(var_list, var_names)

    def get_config(self):
        config = super().get_config()
        optimizer = keras.saving.serialize_keras_object(self._optimizer())
        for key in ("learning_rate", *_SHARED):
            optimizer["config"][key] = config[key]
        return {
            "name": config["name"],
            "optimizer": optimizer,
            "factors": dict(self.factors),
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        optimizer = keras.saving.deserialize_keras_object(
            config["optimizer"], custom_objects=custom_objects
        )
        return cls(**{**config, "optimizer": optimizer})
