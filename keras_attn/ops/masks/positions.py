"""Query and key positions, and functions that are evaluated at them."""

# Keras's functions are inferred to return None for a backend without them.
# pyright: reportOptionalOperand=false, reportOptionalSubscript=false

import collections.abc
import dataclasses
import typing

import numpy as np
from keras import ops

from keras_attn._types import Tensor

__all__ = ["Blocks", "CachedPositions", "PositionFunction", "Span"]


class Span(typing.NamedTuple):
    """A range of consecutive positions.

    Attributes:
        start: The first position, an int or an int32 scalar tensor.
        length: The number of positions, an int or an int32 scalar tensor.

    Example:
        >>> import keras
        >>> from keras_attn.ops import masks
        >>> positions = masks.Span(start=3, length=4).positions()
        >>> keras.ops.convert_to_numpy(positions).tolist()
        [3, 4, 5, 6]
    """

    start: int | Tensor
    length: int | Tensor

    def positions(self) -> Tensor:
        """Return the positions, int32 `(length,)`."""
        return ops.arange(self.length, dtype="int32") + self.start

    def take(self, tensor: Tensor, axis: int) -> Tensor:
        """Return the slice of `tensor` at these positions of `axis`.

        The last of several blocks may extend past the end of the axis: at positions
        past the end, the last entry of the axis is repeated.
        """
        if isinstance(self.start, int) and self.start == 0:
            length = tensor.shape[axis]
            if self.length is length and length is not None:
                return tensor
        last = ops.shape(tensor)[axis] - 1
        return ops.take(tensor, ops.minimum(self.positions(), last), axis=axis)


class CachedPositions(typing.NamedTuple):
    """The positions of the entries of a KV cache, in any order.

    Attributes:
        values: int32 `(length,)`, the position of each entry.
    """

    values: Tensor

    def positions(self) -> Tensor:
        """Return the positions, int32 `(length,)`."""
        return self.values

    def take(self, tensor: Tensor, axis: int) -> Tensor:
        """Return `tensor` unchanged: it is cached in the same order."""
        return tensor


class Blocks(typing.NamedTuple):
    """Consecutive blocks of positions, all of the same size.

    Attributes:
        starts: ints `(n,)`, the first position of each block: a NumPy array if they are
            known, otherwise a tensor.
        size: The number of positions in a block.
    """

    starts: np.ndarray | Tensor
    size: int

    @property
    def num_blocks(self) -> int | Tensor:
        """Number of blocks, an int if it is known."""
        return (
            ops.shape(self.starts)[0]
            if ops.is_tensor(self.starts)
            else len(self.starts)
        )

    @property
    def last(self) -> np.ndarray | Tensor:
        """Last position of each block."""
        return self.starts + (self.size - 1)

    def min_max(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return the minimum and the maximum of the values in each block.

        Args:
            values: ints or bools `(B, L)`, the values of the positions 0 to L - 1. The
                last one is repeated for the positions past the end.

        Returns:
            Two int32 tensors `(B, n)`.
        """
        values = ops.cast(values, "int32")
        count = self.num_blocks
        last = ops.shape(values)[1] - 1
        positions = ops.arange(count * self.size, dtype="int32")
        values = ops.take(values, ops.minimum(positions, last), axis=1)
        values = ops.reshape(values, (-1, count, self.size))
        return ops.min(values, axis=2), ops.max(values, axis=2)


class PositionFunction:
    """Base class of functions of pairs of a query position and a key position.

    Subclasses are frozen dataclasses. Their fields may be tensors. A custom gradient
    requires these as arguments, so they can be extracted and replaced.
    """

    def evaluate(self, query: Span, key: "Span | CachedPositions") -> Tensor:
        """Return the function of all pairs of T query and S key positions.

        Returns:
            A tensor that broadcasts to `(B, N, T, S)`.
        """
        raise NotImplementedError

    def tensors(self) -> list[Tensor]:
        """Return all tensors in the fields."""
        tensors = []
        self._map_tensors(tensors.append)
        return tensors

    def with_tensors(self, tensors: collections.abc.Iterable[Tensor]) -> typing.Self:
        """Return a copy in which `tensors` replace those of `self.tensors()`."""
        remaining = iter(tensors)
        return self._map_tensors(lambda _: next(remaining))

    def _map_tensors(
        self, function: collections.abc.Callable[[Tensor], Tensor]
    ) -> typing.Self:
        def mapped(value: typing.Any) -> typing.Any:
            if isinstance(value, PositionFunction):
                return value._map_tensors(function)
            if isinstance(value, tuple):
                return tuple(map(mapped, value))
            return function(value) if ops.is_tensor(value) else value

        values = {
            field.name: mapped(getattr(self, field.name))
            for field in dataclasses.fields(self)  # pyright: ignore[reportArgumentType]
        }
        return dataclasses.replace(self, **values)  # pyright: ignore[reportArgumentType,reportReturnType]
