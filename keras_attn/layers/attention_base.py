"""What every attention layer does with its parts: attend, remember, step."""

import keras
from keras import ops

from keras_attn._keras_internals import implicit_mask
from keras_attn.layers import arguments
from keras_attn.layers.head_gates import gated
from keras_attn.layers.kept_training import KeepsTraining
from keras_attn.ops import caches, masks
from keras_attn.ops.weighting import swap

__all__ = ["AttentionBase"]


class AttentionBase(KeepsTraining, keras.layers.Layer):
    """Base of the attention layers, which differ in projections and in the score.

    Constructor arguments: `dropout` and `seed`, which the subclasses document. A
    subclass sets, the latest in `_build_parts`:
        cache_heads: int N, how many heads keys and values have.
        head_dims: pair of ints, sizes of a head's key and value.
    """

    def __init__(self, dropout=0.0, seed=None, **kwargs):
        super().__init__(**kwargs)
        self.dropout = arguments.rate("dropout", dropout)
        self.seed = seed
        if dropout > 0:
            self.seed_generator = keras.random.SeedGenerator(seed)
        self.supports_masking = True

    def _build_parts(self, query_shape, value_shape, key_shape):
        raise NotImplementedError

    def _project_query(self, query):
        """`(B, T, D)` to heads `(B, T, N, H)`."""
        raise NotImplementedError

    def _project_key(self, key):
        """`(B, S, D'')` to heads `(B, S, N, H)`."""
        raise NotImplementedError

    def _project_value(self, value):
        """`(B, S, D')` to heads `(B, S, N, V)`."""
        raise NotImplementedError

    def _project_output(self, attended):
        """Heads `(B, T, N, V)` to `(B, T, output width)`."""
        raise NotImplementedError

    def _place(self, heads, start_index):
        """Heads of a query or key by their positions from `start_index` on."""
        return heads

    def _gate(self, attended, query):
        """`attended` `(B, T, N, V)`, as far as a gate made of the query lets it."""
        return attended

    def _attention(self, query, key, value, **kwargs):
        """`keras_attn.ops.dot_product_attention`, or what takes its arguments."""
        raise NotImplementedError

    def _output_dim(self, query_dim, value_dim):
        raise NotImplementedError

    def _weights_shape(self, batch, length, total):
        """Shape of the weights that the layer returns."""
        return (batch, self.cache_heads, length, total)

    def _weights(self, weights):
        """The weights that the layer returns, for `(B, N, T, S)`."""
        return weights

    def _check_shapes(self, query_shape, value_shape, key_shape):
        for name, shape in (
            ("query", query_shape),
            ("value", value_shape),
            ("key", key_shape),
        ):
            if len(shape) != 3:
                raise ValueError(
                    f"Attention takes tensors of shape (batch, length, features). "
                    f"Received: {name} of shape {tuple(shape)}"
                )
        if tuple(key_shape[1:2]) != tuple(value_shape[1:2]):
            raise ValueError(
                "`key` and `value` must be of one length. "
                f"Received: key of shape {tuple(key_shape)}, "
                f"value of shape {tuple(value_shape)}"
            )
        if None in (query_shape[-1], value_shape[-1], key_shape[-1]):
            raise ValueError(
                "The width of what attention takes must be known. Received: query of "
                f"shape {tuple(query_shape)}, value of shape {tuple(value_shape)}"
            )

    # Attending

    def _attend(
        self,
        query,
        value,
        key,
        padding_mask,
        attention_mask,
        use_causal_mask=False,
        return_attention_scores=False,
        training=None,
        segments=None,
    ):
        """Attention under the masks of a call, the implicit one of `value` included."""
        if padding_mask is None:
            padding_mask = implicit_mask(value)
        mask = masks.build(
            padding_mask,
            attention_mask,
            use_causal_mask,
            query.shape[1],
            value.shape[1],
            segments,
        )
        return self._attend_projected(
            query,
            self._place(self._project_key(key), 0),
            self._project_value(value),
            mask,
            return_weights=return_attention_scores,
            training=training,
        )

    def _attend_projected(
        self,
        query,
        key,
        value,
        mask,
        rows=None,
        return_weights=False,
        training=False,
        query_start=0,
        **kwargs,
    ):
        """Attention to projected keys and values.

        Args:
            rows: how many rows they have, if not as many as the query: then so many
                queries share each.
        """
        inputs = query
        query = self._place(self._project_query(query), query_start)
        shape = ops.shape(query)
        if rows is not None:
            # On plain numbers where they are known, or JAX could not compile it.
            least = max(rows, 1) if isinstance(rows, int) else ops.maximum(rows, 1)
            shared = shape[0] // least * shape[1]
            query = ops.reshape(query, (rows, shared, *shape[2:]))
        attended = self._attention(
            query,
            key,
            value,
            mask=mask,
            dropout=self.dropout if training else 0.0,
            seed=self.seed_generator if self.dropout > 0 else None,
            return_weights=return_weights,
            query_start=query_start,
            **kwargs,
        )
        attended, weights = attended if return_weights else (attended, None)
        if rows is not None:
            attended = ops.reshape(attended, (*shape[:3], attended.shape[3]))
        attended = self._gate(gated(attended, self), inputs)
        output = self._project_output(attended)
        return (output, self._weights(weights)) if return_weights else output

    def _output_spec(self, query, value, return_attention_scores):
        width = self._output_dim(query.shape[-1], value.shape[-1])
        output = keras.KerasTensor((*query.shape[:-1], width), dtype=self.compute_dtype)
        if not return_attention_scores:
            return output
        shape = self._weights_shape(*query.shape[:2], value.shape[1])
        return output, keras.KerasTensor(shape, dtype=self.compute_dtype)

    # Decoding step by step

    def cache_spec(self, batch_size, max_length, has_context=False, has_segments=False):
        """What this layer remembers from one decoding step to the next.

        With a window that is not everything, but a ring of the last positions.

        Args:
            batch_size: int.
            max_length: int, the number of positions there will be at most.
            has_context: bool, whether keys and values come from a fixed context
                (then nothing needs remembering).
            has_segments: bool, whether the call is given `segments`.

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
        if has_segments:
            spec["segments"] = keras.KerasTensor((batch_size, length), dtype="int32")
        return spec

    def _ring(self):
        """The `keras_attn.ops.caches.Ring` that a cache need be no longer than."""
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
        segments=None,
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
        if segments is not None:
            new["segments"] = ops.cast(segments, "int32")
        ring = self._ring()
        if ring is None or cache["keep"].shape[1] < ring.size:
            cache = {n: caches.write(cache[n], new[n], index) for n in cache}
            seen, positions = cache, None
        else:
            seen, cache, positions = ring.write(cache, new, index)
        mask = masks.build(seen["keep"], use_causal_mask=True)
        if segments is not None:
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
            masks.build(context.get("keep")),
            rows=ops.shape(context["key"])[0],
            heads_first=True,
        )

    def get_config(self):
        return {**super().get_config(), "dropout": self.dropout, "seed": self.seed}


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
