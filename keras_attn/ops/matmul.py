"""Products of activations and weights, with a faster layout for decoding steps.

A decoding step multiplies a handful of rows with every weight of a model, so its time
is the time to read the weights. XLA on the CPU reads a weight that is the left operand
of the product, stored as `(outputs, inputs)`, two to three times as fast as one that is
the right operand. A compiled decoding loop therefore transposes its weights once,
before the first step.

The computation before the loop (the encoder, the prefill) uses the weights as they are:
it reads each of them only once, which does not repay a transpose, and XLA would compute
the transpose again at each use.
"""

# Keras's functions are inferred to return None for a backend without them.
# pyright: reportOptionalMemberAccess=false

import contextvars
import math
import types

from keras import ops

from keras_attn._types import Tensor

__all__ = ["TransposedWeights", "matmul_transposed_weight", "matmul_weight"]

_CURRENT: contextvars.ContextVar["TransposedWeights | None"] = contextvars.ContextVar(
    "transposed_weights", default=None
)


class TransposedWeights:
    """A context in which `matmul_weight` transposes each weight at its first use.

    Enter it while a loop is traced, and use each weight once before the loop: the
    transposed weights are then computed outside the loop.

    Attributes:
        opaque_zero: A scalar that is always 0, but not provably so for the compiler.
            The body of the loop sets it; see `matmul_transposed_weight`. `None` before
            the loop, where weights are multiplied as they are.
    """

    def __init__(self) -> None:
        self.opaque_zero: Tensor | None = None
        self._transposed: dict[int, Tensor] = {}

    def __enter__(self) -> "TransposedWeights":
        self._token = _CURRENT.set(self)
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> None:
        _CURRENT.reset(self._token)

    def get(self, owner: object, weight: Tensor, input_dim: int) -> Tensor:
        """Return the transpose `(O, I)` of a weight, computed at the first call.

        Args:
            owner: The layer of the weight; a layer has one weight here.
            weight: `(I, O)`, or with several axes for I or O.
            input_dim: I.
        """
        if id(owner) not in self._transposed:
            self._transposed[id(owner)] = _transpose(weight, input_dim)
        return self._transposed[id(owner)]


def matmul_weight(
    inputs: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    owner: object,
    length: int | None = None,
) -> Tensor:
    """Return `inputs @ weight + bias`.

    Args:
        inputs: `(B * T, I)`.
        weight: `(I, O)`, or with several axes for I or O.
        bias: `(O,)`, or `None`.
        owner: The layer of the weight.
        length: T if it is known. 1 is a decoding step.

    Returns:
        `(B * T, O)`.
    """
    transposed_weights = _CURRENT.get()
    if transposed_weights is not None:
        transposed = transposed_weights.get(owner, weight, inputs.shape[1])
        if length == 1 and transposed_weights.opaque_zero is not None:
            return matmul_transposed_weight(inputs, transposed, bias)
    if len(weight.shape) > 2:
        weight = ops.reshape(weight, (inputs.shape[1], -1))
    outputs = ops.matmul(inputs, weight)
    return outputs if bias is None else ops.add(outputs, bias)


def matmul_transposed_weight(
    inputs: Tensor, transposed: Tensor, bias: Tensor | None = None
) -> Tensor:
    """Return `inputs @ transpose(transposed) + bias`.

    Args:
        inputs: `(B * T, I)`.
        transposed: The transposed weight, `(O, I)`.
        bias: `(O,)`, or `None`.

    Returns:
        `(B * T, O)`.
    """
    outputs = ops.matmul(transposed, ops.transpose(inputs))
    # An operation between the product and its transpose is required: otherwise XLA
    # rewrites the two as a product with the weight on the right.
    if bias is not None:
        outputs = ops.add(outputs, ops.expand_dims(bias, 1))
    else:
        transposed_weights = _CURRENT.get()
        if transposed_weights is not None:
            zero = transposed_weights.opaque_zero
            if zero is not None:
                outputs = ops.add(outputs, ops.cast(zero, outputs.dtype))
    return ops.transpose(outputs)


def _transpose(weight: Tensor, input_dim: int) -> Tensor:
    """Return a weight whose first axes have `input_dim` entries as `(O, input_dim)`."""
    axes = range(len(weight.shape))
    num_input_axes = 1 + next(
        n for n in axes if math.prod(weight.shape[: n + 1]) == input_dim
    )
    # Transpose first, then reshape: in the other order XLA makes two copies.
    weight = ops.transpose(weight, (*axes[num_input_axes:], *axes[:num_input_axes]))
    return ops.reshape(weight, (-1, input_dim))
