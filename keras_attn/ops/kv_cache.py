"""Writing into the buffers of fixed size that decoding keeps."""

import typing

from keras import ops

__all__ = ["Ring", "put", "write"]


def write(buffer, new, index):
    """`buffer` with `new` in the place of positions `index, index + 1, ...`.

    In a loop that XLA compiles (always on JAX) the buffer is changed in place: what
    a step writes does not grow with the buffer.

    Args:
        buffer: `(B, L, ...)`.
        new: `(B, T, ...)` of the same dtype, T <= L.
        index: int32 scalar, position of the first new entry.

    Returns:
        A tensor like `buffer`.
    """
    zero = ops.zeros((), dtype="int32")
    start = [zero, ops.cast(index, "int32"), *[zero] * (len(buffer.shape) - 2)]
    return ops.slice_update(buffer, ops.stack(start), new)


def put(buffer, new, index):
    """`buffer` with one new entry a row, each at a position of its own.

    Args:
        buffer: `(B, L)`.
        new: `(B,)` of the same dtype.
        index: int32 `(B,)`.

    Returns:
        A tensor like `buffer`.
    """
    place = ops.arange(buffer.shape[1], dtype="int32")
    is_new = ops.equal(place, ops.expand_dims(index, 1))
    return ops.where(is_new, ops.expand_dims(new, 1), buffer)


class Ring(typing.NamedTuple):
    """A cache of the first few positions, and of the last ones in a ring.

    Attributes:
        window: int, how many of the last positions.
        num_first: int, how many of the first.
    """

    window: int
    num_first: int

    @property
    def size(self):
        """Number of entries."""
        return self.num_first + self.window

    def positions(self, last):
        """The position that each entry has once `last` is written, int32 `(size,)`.

        Of those in the ring the latest that falls there, which is not there yet where
        it is below `num_first`; nor is one of the first that is above `last`.
        """
        place = ops.arange(self.size, dtype="int32")
        latest = last - ops.mod(last - place, self.window)
        return ops.where(place < self.num_first, place, latest)

    def write(self, buffers, new, index):
        """Writes a run of positions, after reading what they may attend to.

        Args:
            buffers: dict of tensors `(R, size, ...)`, all zeros at first; `"keep"`
                says which entries are there.
            new: dict of tensors `(R, T, ...)`, of the positions from `index` on.
            index: int32 scalar tensor.

        Returns:
            A triple: a dict of what queries at the new positions may attend to,
            `(R, L, ...)`; a dict of the buffers after; and int32 `(L,)`, the positions
            of the former.
        """
        index = ops.cast(index, "int32")
        if new["keep"].shape[1] == 1:  # one position: in its place, and no copy
            place = self.num_first + ops.mod(index - self.num_first, self.window)
            place = ops.where(index < self.num_first, index, place)
            after = {name: write(buffers[name], new[name], place) for name in buffers}
            return after, after, self.positions(index)
        length = ops.shape(new["keep"])[1]
        seen = {n: ops.concatenate([buffers[n], new[n]], axis=1) for n in buffers}
        run = index + ops.arange(length, dtype="int32")
        positions = ops.concatenate([self.positions(index - 1), run])
        # Each entry from the run, if its position is in it, else as it was.
        wanted = self.positions(index + length - 1)
        first = self.num_first
        is_new = (wanted >= index) & (wanted < index + length)
        is_new &= (ops.arange(self.size, dtype="int32") < first) | (wanted >= first)
        source = ops.where(
            is_new,
            self.size + wanted - index,
            ops.arange(self.size, dtype="int32"),
        )
        after = {n: ops.take(x, source, axis=1) for n, x in seen.items()}
        return seen, after, positions
