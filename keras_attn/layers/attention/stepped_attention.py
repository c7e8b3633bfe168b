"""What every attention layer does while decoding: remember, and attend to that."""

import keras
from keras import ops

from keras_attn._keras_internals import implicit_mask
from keras_attn.layers.attention.attention_base import AttentionBase
from keras_attn.ops import kv_cache, masks
from keras_attn.ops.attention.softmax import swap

__all__ = ["SteppedAttention", "require_causal_mask"]


class SteppedAttention(AttentionBase):
    """Base of the attention layers that work step by step as well."""

    def cache_spec(
        self, batch_size, max_length, has_context=False, has_segment_ids=False
    ):
        """What this layer remembers from one decoding step to the next.

        With a window that is not everything, but a ring of the last positions.

        Args:
            batch_size: int.
            max_length: int, the number of positions there will be at most.
            has_context: bool, whether keys and values come from a fixed context
                (then nothing needs remembering).
            has_segment_ids: bool, whether the call is given `segments`.

        Returns:
            A dict of `keras.KerasTensor`s, shapes and dtypes of the cache. The first
            axis is the batch's, or several entries for each row of the batch.
        """
        if has_context:
            return {}
        ring = self._ring()
        length = max_length if ring is None else min(max_length, ring.size)
        key_dim, value_dim = self.head_dims
        # As products take them, head by head of row by row: else each step would
        # transpose it all, and XLA copy it.
        shape = (batch_size * self.cache_heads, length)
        spec = {
            "key": keras.KerasTensor((*shape, key_dim), dtype=self.compute_dtype),
            "value": keras.KerasTensor((*shape, value_dim), dtype=self.compute_dtype),
            "keep": keras.KerasTensor((batch_size, length), dtype="bool"),
        }
        if has_segment_ids:
            spec["segments"] = keras.KerasTensor((batch_size, length), dtype="int32")
        return spec

    def _ring(self):
        """The `keras_attn.ops.kv_cache.Ring` that a cache need be no longer than."""
        return None

    def _cached_self_attention(
        self,
        query,
        value,
        key,
        padding_mask,
        attention_mask,
        use_causal_mask,
        cache,
        index,
        segment_ids=None,
    ):
        """One step, or a run of them, of causal attention over what came before."""
        require_causal_mask(self, use_causal_mask)
        refuse_attention_mask(self, attention_mask)
        if padding_mask is None:
            padding_mask = implicit_mask(value)
        if padding_mask is None:
            padding_mask = ops.ones(ops.shape(value)[:2], dtype="bool")
        new = {
            "key": _head_by_head(self._place(self._project_key(key), index)),
            "value": _head_by_head(self._project_value(value)),
            "keep": ops.cast(padding_mask, "bool"),
        }
        if segment_ids is not None:
            new["segments"] = ops.cast(segment_ids, "int32")
        ring = self._ring()
        if ring is None or cache["keep"].shape[1] < ring.size:
            cache = {n: kv_cache.write(cache[n], new[n], index) for n in cache}
            seen, positions = cache, None
        else:
            seen, cache, positions = ring.write(cache, new, index)
        mask = masks.combine(seen["keep"], use_causal_mask=True)
        if segment_ids is not None:
            mask &= masks.segments(new["segments"], seen["segments"], index)
        output = self._attend_projected(
            query,
            self._row_by_row(seen["key"]),
            self._row_by_row(seen["value"]),
            mask,
            query_start=index,
            heads_first=True,
            **({} if positions is None else {"key_positions": positions}),
        )
        return output, cache

    def _row_by_row(self, x):
        """`(B * N, L, H)` to `(B, N, L, H)`."""
        rows = ops.shape(x)[0] // self.cache_heads
        return ops.reshape(x, (rows, self.cache_heads, *x.shape[1:]))

    def _check_context(self):
        """Raise where this layer cannot attend to a fixed context."""

    def _project_context(self, value, key, padding_mask=None):
        self._check_context()
        context = {
            "key": swap(self._project_key(key)),
            "value": swap(self._project_value(value)),
        }
        if padding_mask is not None:
            context["keep"] = ops.cast(padding_mask, "bool")
        return context

    def _attend_to_context(self, query, context, attention_mask):
        refuse_attention_mask(self, attention_mask)
        return self._attend_projected(
            query,
            context["key"],
            context["value"],
            masks.combine(context.get("keep")),
            rows=ops.shape(context["key"])[0],
            heads_first=True,
        )


def _head_by_head(x):
    """`(B, T, N, H)` to `(B * N, T, H)`."""
    rows, length, heads, size = ops.shape(x)
    return ops.reshape(swap(x), (rows * heads, length, size))


def require_causal_mask(layer, use_causal_mask):
    """Raise where a decoding step would look at tokens to come."""
    if not use_causal_mask:
        raise ValueError(
            f"Layer '{layer.name}' attends to tokens that are not there yet while "
            "decoding; call it with `use_causal_mask=True`. "
            f"Received: {use_causal_mask=}"
        )


def refuse_attention_mask(layer, attention_mask):
    """Raise where a decoding step is given a mask over all target positions."""
    if attention_mask is not None:
        raise ValueError(
            f"Layer '{layer.name}' was called with an explicit `attention_mask`, of "
            "which a decoding step has no row; causal and padding masks are "
            f"supported. Received: attention_mask of shape "
            f"{tuple(attention_mask.shape)}"
        )
