"""The KV cache of a self-attention layer."""

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from keras_attn._types import Tensor
from keras_attn.ops import kv_cache
from keras_attn.ops.attention.softmax import transpose_heads

__all__ = ["KeyValueCache"]


class KeyValueCache:
    """Shapes and updates of the keys and values that decoding keeps.

    With a sliding window the cache is a ring buffer of the last positions (and of the
    first ones that are global).

    Args:
        num_key_value_heads: int K, number of key/value heads.
        key_dim: int H, size of a key head.
        value_dim: int V, size of a value head.
        ring: the `RingBuffer` of a sliding window, or None to keep all positions.
    """

    def __init__(
        self,
        num_key_value_heads: int,
        key_dim: int,
        value_dim: int,
        ring: kv_cache.RingBuffer | None = None,
    ) -> None:
        self.num_key_value_heads = num_key_value_heads
        self.key_dim = key_dim
        self.value_dim = value_dim
        self.ring = ring

    def spec(
        self,
        batch_size: int,
        max_length: int,
        dtype: str | None,
        has_segment_ids: bool = False,
    ) -> dict[str, keras.KerasTensor]:
        """Return shapes and dtypes of the cache.

        Args:
            batch_size: int B.
            max_length: int, the largest number of positions.
            dtype: dtype of keys and values.
            has_segment_ids: bool, whether segment ids are cached as well.

        Returns:
            A dict of `keras.KerasTensor`s: `"key"` `(B * K, L, H)`, `"value"`
            `(B * K, L, V)`, `"padding_mask"` bool `(B, L)`, and `"segment_ids"`
            int32 `(B, L)`.
        """
        length = max_length if self.ring is None else min(max_length, self.ring.size)
        # The layout of the matrix products. In another one, each step would transpose
        # the whole cache, and XLA would copy it instead of updating it in place.
        shape = (batch_size * self.num_key_value_heads, length)
        spec = {
            "key": keras.KerasTensor((*shape, self.key_dim), dtype=dtype),
            "value": keras.KerasTensor((*shape, self.value_dim), dtype=dtype),
            "padding_mask": keras.KerasTensor((batch_size, length), dtype="bool"),
        }
        if has_segment_ids:
            spec["segment_ids"] = keras.KerasTensor((batch_size, length), dtype="int32")
        return spec

    def update(
        self,
        cache: Mapping[str, Tensor],
        key: Tensor,
        value: Tensor,
        padding_mask: Tensor | None,
        segment_ids: Tensor | None,
        index: Tensor,
    ) -> tuple[dict[str, Tensor], Mapping[str, Tensor], Tensor | None]:
        """Write new positions.

        Args:
            cache: dict of tensors, see `spec`.
            key: `(B, T, K, H)`, keys of the new positions.
            value: `(B, T, K, V)`, values of the new positions.
            padding_mask: bool `(B, T)` of the new positions, or None.
            segment_ids: int `(B, T)` of the new positions, or None.
            index: int32 scalar tensor, the first new position.

        Returns:
            A tuple `(visible, cache, positions)`: the entries that the new positions
            may attend to, with keys and values as `(B, K, L, ...)`; the updated cache;
            and int32 `(L,)`, the positions of the visible entries, or None if they are
            `0, 1, ...`.
        """
        if padding_mask is None:
            padding_mask = ops.ones(ops.shape(value)[:2], dtype="bool")
        else:  # Padding may hold NaN or infinity.
            keep = ops.expand_dims(ops.cast(padding_mask, "bool"), (2, 3))
            key = ops.where(keep, key, ops.zeros_like(key))
            value = ops.where(keep, value, ops.zeros_like(value))
        new = {
            "key": _merge_heads(key),
            "value": _merge_heads(value),
            "padding_mask": ops.cast(padding_mask, "bool"),
        }
        if segment_ids is not None:
            new["segment_ids"] = ops.cast(segment_ids, "int32")
        positions: Any = None
        num_entries = cache["padding_mask"].shape[1]
        if self.ring is None or num_entries < self.ring.size:
            cache = {n: kv_cache.write(cache[n], new[n], index) for n in cache}
            visible = dict(cache)
        else:
            visible, cache, positions = self.ring.write(cache, new, index)
            visible = dict(visible)
        for name in ("key", "value"):
            visible[name] = self._split_heads(visible[name])
        return visible, cache, positions

    def _split_heads(self, x: Tensor) -> Tensor:
        """Reshape `(B * K, L, H)` to `(B, K, L, H)`."""
        heads = self.num_key_value_heads
        return ops.reshape(x, (ops.shape(x)[0] // heads, heads, *x.shape[1:]))


def _merge_heads(x: Tensor) -> Tensor:
    """Transpose and reshape `(B, T, K, H)` to `(B * K, T, H)`."""
    batch, length, heads, size = ops.shape(x)
    return ops.reshape(transpose_heads(x), (batch * heads, length, size))
