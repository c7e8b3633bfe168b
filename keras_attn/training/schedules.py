"""The learning rate of "Attention Is All You Need"."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_attn")
class InverseSquareRootSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Rises linearly for `warmup_steps`, then falls as one over the square root.

    `scale * hidden_dim**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)`, where
    `step` is at least 1. The peak, at `step == warmup_steps`, is
    `scale * (hidden_dim * warmup_steps)**-0.5`: 6.99e-4 with the defaults.

    Keras hands a schedule the number of batches seen, also when the optimizer
    accumulates gradients and updates once in several batches. Pass the same
    `gradient_accumulation_steps` here and the schedule counts updates, so that
    `warmup_steps` means updates as in the paper; leave it at 1 and warmup ends that
    many times too soon.

    Args:
        hidden_dim: Width of the model, a positive integer.
        warmup_steps: Number of updates until the peak, a positive integer.
        scale: Factor on the whole curve.
        gradient_accumulation_steps: That of the optimizer: batches per update.

    Call arguments:
        step: Integer scalar, the optimizer's `iterations`. The result is a float32
            scalar.

    Raises:
        ValueError: For a `hidden_dim`, `warmup_steps` or
            `gradient_accumulation_steps` below 1.

    Example:

    >>> schedule = InverseSquareRootSchedule(hidden_dim=512, warmup_steps=4000)
    >>> optimizer = keras.optimizers.Adam(
    ...     schedule, beta_1=0.9, beta_2=0.98, epsilon=1e-9
    ... )
    >>> round(float(schedule(4000)), 6)
    0.000699

    Reference:
        Vaswani et al., 2017, section 5.3, https://arxiv.org/abs/1706.03762
    """

    def __init__(
        self,
        hidden_dim=512,
        warmup_steps=4000,
        scale=1.0,
        gradient_accumulation_steps=1,
    ):
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

    def __call__(self, step):
        # Whole updates are counted in integers: float32 is exact to 2**24 only.
        updates = ops.floor_divide(
            ops.convert_to_tensor(step), self.gradient_accumulation_steps
        )
        step = ops.maximum(ops.cast(updates, "float32"), 1.0)
        return (self.scale * self.hidden_dim**-0.5) * ops.minimum(
            ops.rsqrt(step), step * self.warmup_steps**-1.5
        )

    def get_config(self):
        return {
            "hidden_dim": self.hidden_dim,
            "warmup_steps": self.warmup_steps,
            "scale": self.scale,
            "gradient_accumulation_steps": self.gradient_accumulation_steps,
        }
