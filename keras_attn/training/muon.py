"""The Muon optimizer for models with attention."""

import math
import re
from typing import Any

import keras
from keras import ops

from keras_attn._graph import functional
from keras_attn._types import Model, Tensor

__all__ = ["Muon"]


@keras.saving.register_keras_serializable(package="keras_attn")
class Muon(keras.optimizers.Muon):
    """Muon that updates the projections of attention as matrices.

    Muon replaces the momentum of a matrix by the nearest orthogonal matrix.
    `keras.optimizers.Muon` does so for variables with two axes. The kernels of
    attention have three, `(D, N, H)` for query, key and value and `(N, H, D)` for the
    output, so that it trains them with AdamW, and their biases `(N, H)` have two, so
    that it makes these orthogonal. Here each kernel is a matrix `(D, N H)` or
    `(N H, D)`, and biases are trained with AdamW, as are embeddings, the projection to
    logits and all other variables.

    Args:
        learning_rate: Float, schedule or function, as for any Keras optimizer. The
            update of a matrix has a root mean square of about `rms_rate` times the
            rate, so that rates of AdamW can be used.
        exclude_layers: List of regular expressions; variables whose path matches one
            are trained with AdamW.
        **kwargs: The other arguments of `keras.optimizers.Muon`.

    Example:
        >>> from keras_attn import models, training
        >>> model = models.causal_language_model(
        ...     20, num_layers=1, hidden_dim=8, intermediate_dim=16, num_heads=2
        ... )
        >>> optimizer = training.Muon.for_model(model, learning_rate=1e-3)
        >>> model.compile(optimizer, training.MaskedCrossentropy())

    Reference:
        Jordan et al., 2024, https://kellerjordan.github.io/posts/muon/; the scale of
        the update: Liu et al., 2025, https://arxiv.org/abs/2502.16982
    """

    def __init__(
        self,
        learning_rate: Any = 1e-3,
        *,
        exclude_layers: list[str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate, exclude_layers=exclude_layers, **kwargs)

    @classmethod
    def for_model(
        cls, model: Model, learning_rate: Any = 1e-3, **kwargs: Any
    ) -> "Muon":
        """Return an optimizer that trains the output layers of a model with AdamW.

        Args:
            model: A Functional model.
            learning_rate: See the class.
            **kwargs: Other arguments of the class. `exclude_layers` is extended.

        Raises:
            ValueError: If the model is not Functional.
        """
        functional.check_functional(model)
        outputs = {id(tensor) for tensor in model.outputs}
        variables = [
            variable
            for call in functional.read_graph(model).calls
            if any(id(tensor) in outputs for tensor in call.outputs)
            for variable in getattr(call.operation, "trainable_variables", ())
        ]
        paths = [f"^{re.escape(variable.path)}$" for variable in variables]
        excluded = [*(kwargs.pop("exclude_layers", None) or ()), *paths]
        return cls(learning_rate, exclude_layers=excluded, **kwargs)

    def _should_use_adamw(self, variable: Any) -> bool:
        if variable.name == "bias":
            return True
        if len(variable.shape) == 2:
            return super()._should_use_adamw(variable)
        is_kernel = variable.name == "kernel" and len(variable.shape) == 3
        return not is_kernel or any(
            re.search(pattern, variable.path) for pattern in self.exclude_layers
        )

    def lr_adjust(self, x: Tensor) -> Tensor:
        shape = tuple(x.shape)
        return ops.reshape(
            super().lr_adjust(ops.reshape(x, _matrix_shape(shape))), shape
        )

    def zeropower_via_newtonschulz5(self, x: Tensor, steps: int) -> Tensor:
        shape = tuple(x.shape)
        matrix = ops.reshape(x, _matrix_shape(shape))
        return ops.reshape(super().zeropower_via_newtonschulz5(matrix, steps), shape)


def _matrix_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the shape of the matrix that a kernel is: the one nearest to a square.

    Of the kernels of attention, it has the axes of heads and of their width as one.
    """
    sizes = [(math.prod(shape[:i]), math.prod(shape[i:])) for i in range(1, len(shape))]
    return min(sizes, key=lambda size: max(size) / min(size))
