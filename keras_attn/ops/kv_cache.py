"""Updates of the fixed-size buffers of a decoding loop."""

# Keras's functions are inferred to return None for a backend without them.
# pyright: reportOperatorIssue=false, reportOptionalOperand=false
# pyright: reportOptionalSubscript=false

import typing
from collections.abc import Mapping

from keras import ops

from keras_attn._types import Tensor

__all__ = ["RingBuffer", "scatter", "write"]


def write(buffer: Tensor, new: Tensor, index: int | Tensor) -> Tensor:
    """Return `buffer` with `new` at positions `index, index + 1, ...`.

    In a loop that is compiled with XLA (always on JAX) the buffer is updated in place:
    the cost of a decoding step does not grow with the length of the buffer.

    Args:
        buffer: `(B, L, ...)`.
        new: `(B, T, ...)` of the same dtype, with T <= L.
        index: int32 scalar, the position of the first new entry.

    Returns:
        A tensor of the shape and dtype of `buffer`.

    Example:
        >>> import keras
        >>> import numpy as np
        >>> from keras_attn.ops import kv_cache
        >>> cache = keras.ops.zeros((1, 4), dtype="int32")
        >>> cache = kv_cache.write(cache, np.array([[7, 8]], "int32"), 1)
        >>> keras.ops.convert_to_numpy(cache).tolist()
        [[0, 7, 8, 0]]
    """
    zero = ops.zeros((), dtype="int32")
    start = [zero, ops.cast(index, "int32"), *[zero] * (len(buffer.shape) - 2)]
    return ops.slice_update(buffer, ops.stack(start), new)


def scatter(buffer: Tensor, new: Tensor, index: Tensor) -> Tensor:
    """Return `buffer` with one new entry per batch element, each at its own position.

    Args:
        buffer: `(B, L)`.
        new: `(B,)` of the same dtype.
        index: int32 `(B,)`, the position of each new entry.

    Returns:
        A tensor of the shape and dtype of `buffer`.

    Example:
        >>> import keras
        >>> import numpy as np
        >>> from keras_attn.ops import kv_cache
        >>> tokens = keras.ops.zeros((2, 3), dtype="int32")
        >>> new, index = np.array([[5, 6], [0, 2]], "int32")
        >>> tokens = kv_cache.scatter(tokens, new, index)
        >>> keras.ops.convert_to_numpy(tokens).tolist()
        [[5, 0, 0], [0, 0, 6]]
    """
    positions = ops.arange(buffer.shape[1], dtype="int32")
    is_new = ops.equal(positions, ops.expand_dims(index, 1))
    return ops.where(is_new, ops.expand_dims(new, 1), buffer)


class RingBuffer(typing.NamedTuple):
    """A cache of the first positions and, in a ring buffer, of the last ones.

    Attributes:
        window: Number of last positions.
        num_global: Number of first positions, which are never overwritten.
    """

    window: int
    num_global: int

    @property
    def size(self) -> int:
        """Number of entries."""
        return self.num_global + self.window

    def positions(self, last: int | Tensor) -> Tensor:
        """Return the position of each entry after `last` is written, int32 `(size,)`.

        The position of an entry in the ring is the latest one that maps to it; if that
        is below `num_global`, the entry is still empty. An entry of the first positions
        is empty if its position is above `last`.
        """
        entries = ops.arange(self.size, dtype="int32")
        latest = last - ops.mod(last - entries, self.window)
        return ops.where(entries < self.num_global, entries, latest)

    def write(
        self,
        buffers: Mapping[str, Tensor],
        new: Mapping[str, Tensor],
        index: int | Tensor,
    ) -> tuple[dict[str, Tensor], dict[str, Tensor], Tensor]:
        """Write consecutive positions, after reading the entries they may attend to.

        Args:
            buffers: Tensors `(B, size, ...)`, initially zeros; `"padding_mask"` is that
                of the entries.
            new: Tensors `(B, T, ...)` of the positions from `index` on, under the same
                keys.
            index: int32 scalar.

        Returns:
            A tuple `(visible, buffers, positions)`: the entries that the new positions
            may attend to, a dict of `(B, L, ...)`; the updated buffers; the position of
            each visible entry, int32 `(L,)`.
        """
        index = ops.cast(index, "int32")
        mask = new["padding_mask"]
        if mask.shape[1] == 1:  # One position: update in place, without a copy.
            entry = self.num_global + ops.mod(index - self.num_global, self.window)
            entry = ops.where(index < self.num_global, index, entry)
            updated = {name: write(buffers[name], new[name], entry) for name in buffers}
            return updated, updated, self.positions(index)
        length = ops.shape(mask)[1]
        visible = {n: ops.concatenate([buffers[n], new[n]], axis=1) for n in buffers}
        new_positions = index + ops.arange(length, dtype="int32")
        positions = ops.concatenate([self.positions(index - 1), new_positions])
        # An entry is replaced if its position is one of the new ones.
        latest = self.positions(index + length - 1)
        is_new = (latest >= index) & (latest < index + length)
        is_new &= (ops.arange(self.size, dtype="int32") < self.num_global) | (
            latest >= self.num_global
        )
        source = ops.where(
            is_new,
            self.size + latest - index,
            ops.arange(self.size, dtype="int32"),
        )
        updated = {n: ops.take(x, source, axis=1) for n, x in visible.items()}
        return visible, updated, positions
