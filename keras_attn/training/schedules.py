"""Learning rate schedules."""

from typing import Any

import keras
from keras import ops

from keras_attn._types import Tensor

__all__ = ["InverseSquareRootSchedule"]


@keras.saving.register_keras_serializable(package="keras_attn")
class InverseSquareRootSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Learning rate schedule of "Attention Is All You Need".

    The learning rate increases linearly for `warmup_steps` updates and then decreases
    with the inverse square root of the step:
    `scale * hidden_dim**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)`, where
    `step` is at least 1. The maximum, at `step == warmup_steps`, is
    `scale * (hidden_dim * warmup_steps)**-0.5`: 6.99e-4 with the defaults.

    Keras calls a schedule with the number of batches, even if the optimizer accumulates
    the gradients of several batches per update. Pass the same
    `gradient_accumulation_steps` to the schedule, so that it counts updates as in the
    paper; with the default of 1, the warmup would end too early by this factor.

    Args:
        hidden_dim: Positive int. Width of the model.
        warmup_steps: Positive int. Number of updates until the maximum.
        scale: Float. Factor of the learning rate.
        gradient_accumulation_steps: Positive int. Number of batches per update, as
            passed to the optimizer.

    Call arguments:
        step: Integer scalar, the `iterations` of the optimizer. The call returns a
            float32 scalar.

    Raises:
        ValueError: If `hidden_dim`, `warmup_steps` or `gradient_accumulation_steps` is
            less than 1.

    Example:
        >>> import keras
        >>> from keras_attn import training
        >>> schedule = training.InverseSquareRootSchedule(512, warmup_steps=4000)
        >>> optimizer = keras.optimizers.Adam(
        ...     schedule, beta_1=0.9, beta_2=0.98, epsilon=1e-9
        ... )
        >>> [round(float(schedule(step)), 6) for step in (1000, 4000, 16000)]
        [0.000175, 0.000699, 0.000349]

    Reference:
        Vaswani et al., 2017, section 5.3, https://arxiv.org/abs/1706.03762
    """

    def __init__(
        self,
        hidden_dim: int = 512,
        warmup_steps: int = 4000,
        scale: float = 1.0,
        gradient_accumulation_steps: int = 1,
    ) -> None:
        super().__init__()
        at_least_one = {
            "hidden_dim": hidden_dim,
            "warmup_steps": warmup_steps,
            "gradient_accumulation_steps": gradient_accumulation_steps,
        }
        for name, value in at_least_one.items():
            if value < 1:
                raise ValueError(
                    f"`{name}` must be at least 1. Received: {name}={value}"
                )
        self.hidden_dim = hidden_dim
        self.warmup_steps = warmup_steps
        self.scale = scale
        self.gradient_accumulation_steps = gradient_accumulation_steps

    def __call__(self, step: Tensor) -> Tensor:
        # Divide integers: float32 represents integers exactly only up to 2**24.
        updates = ops.floor_divide(
            ops.convert_to_tensor(step), self.gradient_accumulation_steps
        )
        step = ops.maximum(ops.cast(updates, "float32"), 1.0)
        return (self.scale * self.hidden_dim**-0.5) * ops.minimum(
            ops.rsqrt(step), step * self.warmup_steps**-1.5
        )

    def get_config(self) -> dict[str, Any]:
        return {
            "hidden_dim": self.hidden_dim,
            "warmup_steps": self.warmup_steps,
            "scale": self.scale,
            "gradient_accumulation_steps": self.gradient_accumulation_steps,
        }
