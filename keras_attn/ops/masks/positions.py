"""Rules over query and key positions, and the positions they are read at."""

import dataclasses
import typing

from keras import ops

__all__ = ["Blocks", "Held", "Rule", "Span"]


class Span(typing.NamedTuple):
    """A run of consecutive positions.

    Attributes:
        start: first position, a Python int or an int32 scalar tensor.
        length: number of positions, a Python int or an int32 scalar tensor.
    """

    start: typing.Any
    length: typing.Any

    def positions(self):
        """The positions as an int32 tensor of shape `(length,)`."""
        return ops.arange(self.length, dtype="int32") + self.start

    def of(self, tensor, axis):
        """The slice of `tensor` at these positions of `axis`.

        Positions past its end, which the last of several blocks may have, give its
        last entry.
        """
        if isinstance(self.start, int) and self.start == 0:
            length = tensor.shape[axis]
            if self.length is length and length is not None:
                return tensor
        last = ops.shape(tensor)[axis] - 1
        return ops.take(tensor, ops.minimum(self.positions(), last), axis=axis)


class Held(typing.NamedTuple):
    """Positions in any order, as those of the entries of a cache.

    Attributes:
        where: int32 tensor `(length,)`, the position of each entry.
    """

    where: typing.Any

    def positions(self):
        """The positions as an int32 tensor of shape `(length,)`."""
        return self.where

    def of(self, tensor, axis):
        """`tensor` itself: it is held in the same order."""
        return tensor


class Blocks(typing.NamedTuple):
    """Runs of consecutive positions, all of one size, that follow one another.

    Attributes:
        starts: `(n,)` ints, an array of NumPy where they are known, else a tensor.
        size: int.
    """

    starts: typing.Any
    size: int

    @property
    def count(self):
        """How many there are, an int where it is known."""
        return (
            ops.shape(self.starts)[0]
            if ops.is_tensor(self.starts)
            else len(self.starts)
        )

    @property
    def last(self):
        """Last position of each."""
        return self.starts + (self.size - 1)

    def extremes(self, values):
        """Least and largest of the values in each block.

        Args:
            values: ints or bools `(B, L)`, of these positions, or of fewer.

        Returns:
            A pair of int32 tensors `(B, n)`.
        """
        values = ops.cast(values, "int32")
        count = self.count
        last = ops.shape(values)[1] - 1
        where = ops.arange(count * self.size, dtype="int32")
        values = ops.take(values, ops.minimum(where, last), axis=1)
        values = ops.reshape(values, (-1, count, self.size))
        return ops.min(values, axis=2), ops.max(values, axis=2)


class Rule:
    """Base of what says something of each pair of a query and a key position.

    Rules are frozen dataclasses. What they hold may be tensors, which a gradient must
    see as arguments: they can be taken out and put back.
    """

    def evaluate(self, query, key):
        """The rule over two spans.

        Args:
            query: `Span` of T query positions.
            key: `Span` or `Held` of S key positions.

        Returns:
            A tensor that broadcasts to `(batch, heads, T, S)`.
        """
        raise NotImplementedError

    def tensors(self):
        """The tensors that the rule holds, as a list."""
        found = []
        self._map_tensors(found.append)
        return found

    def with_tensors(self, tensors):
        """A rule that holds `tensors` in the place of `self.tensors()`."""
        left = iter(tensors)
        return self._map_tensors(lambda _: next(left))

    def _map_tensors(self, function):
        def mapped(value):
            if isinstance(value, Rule):
                return value._map_tensors(function)
            if isinstance(value, tuple):
                return tuple(map(mapped, value))
            return function(value) if ops.is_tensor(value) else value

        values = {
            field.name: mapped(getattr(self, field.name))
            for field in dataclasses.fields(self)
        }
        return dataclasses.replace(self, **values)
