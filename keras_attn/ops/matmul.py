"""The product of rows with a kernel, and what makes it fast where rows are few.

A decoding step multiplies a handful of rows with every kernel of a model, and takes as
long as it takes to read the kernels. Compilers differ in how fast they read: XLA on
the CPU reads a kernel that stands on the left of the product, stored as
`(outputs, inputs)`, two to three times as fast as one that stands on the right. So a
compiled loop transposes kernels once, before its first step.

What comes before the loop (the encoder, the prompt) takes the kernels as they are: it
uses each but once, which does not repay a transpose of its own, and XLA makes one for
each place that asks for it.
"""

import contextvars
import math

from keras import ops

__all__ = ["KernelsTransposedOnce", "rows_by_kernel", "rows_by_transposed"]

_CURRENT = contextvars.ContextVar("kernels_transposed_once", default=None)


class KernelsTransposedOnce:
    """A context in which `rows_by_kernel` transposes each kernel at its first use.

    Enter it where a loop is traced, with the first use before the loop: the loop then
    finds the transposed kernels outside itself.

    Attributes:
        zero: a scalar that is 0 without the compiler's knowing it, for the loop's body
            to set; see `rows_by_transposed`. None before the loop, where the kernels
            are multiplied as they are.
    """

    def __init__(self):
        self.zero = None
        self._transposed = {}

    def __enter__(self):
        self._token = _CURRENT.set(self)
        return self

    def __exit__(self, *_):
        _CURRENT.reset(self._token)

    def transposed(self, owner, kernel, width):
        """`kernel` `(I, O)`, of the layer `owner`, as `(O, I)`; I is the `width`."""
        if id(owner) not in self._transposed:
            self._transposed[id(owner)] = _transposed(kernel, width)
        return self._transposed[id(owner)]


def rows_by_kernel(rows, kernel, bias, owner, length=None):
    """`rows` times `kernel`, plus `bias`.

    Args:
        rows: `(B * T, I)`.
        kernel: `(I, O)`, or with several axes in the place of I or of O.
        bias: `(O,)`, or None.
        owner: the layer the kernel is of.
        length: T where it is known. 1 is a decoding step.

    Returns:
        `(B * T, O)`.
    """
    kernels = _CURRENT.get()
    if kernels is not None:
        transposed = kernels.transposed(owner, kernel, rows.shape[1])
        if length == 1 and kernels.zero is not None:
            return rows_by_transposed(rows, transposed, bias)
    if len(kernel.shape) > 2:
        kernel = ops.reshape(kernel, (rows.shape[1], -1))
    outputs = ops.matmul(rows, kernel)
    return outputs if bias is None else ops.add(outputs, bias)


def rows_by_transposed(rows, transposed, bias=None):
    """`rows` `(R, I)` times the transpose of `transposed` `(O, I)`, plus `bias`."""
    outputs = ops.matmul(transposed, ops.transpose(rows))
    # Something has to stand between the product and its transpose, or XLA takes the
    # two for a product with the kernel on the right.
    if bias is not None:
        outputs = ops.add(outputs, ops.expand_dims(bias, 1))
    else:
        kernels = _CURRENT.get()
        if kernels is not None and kernels.zero is not None:
            outputs = ops.add(outputs, ops.cast(kernels.zero, outputs.dtype))
    return ops.transpose(outputs)


def _transposed(kernel, width):
    """`kernel`, whose first axes are of `width` entries, as a matrix `(O, width)`."""
    axes = range(len(kernel.shape))
    inputs = next(n for n in axes if math.prod(kernel.shape[: n + 1]) == width) + 1
    # As it is and then reshaped: the other way round XLA copies it twice.
    kernel = ops.transpose(kernel, (*axes[inputs:], *axes[:inputs]))
    return ops.reshape(kernel, (-1, width))
