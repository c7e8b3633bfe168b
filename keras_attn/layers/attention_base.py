"""What every attention layer does with its parts: attend, remember, step."""

import keras
from keras import ops

from keras_attn._keras_internals import implicit_mask
from keras_attn.layers import arguments
from keras_attn.layers.head_gates import gated
from keras_attn.ops import caches, masks
from keras_attn.ops.weighting import swap

__all__ = ["AttentionBase"]


class AttentionBase(keras.layers.Layer):
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
        )
        return self._attend_projected(
            query,
            self._project_key(key),
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
        **kwargs,
    ):
        """Attention to projected keys and values.

        Args:
            rows: how many rows they have, if not as many as the query: then so many
                queries share each.
        """
        query = self._project_query(query)
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
            **kwargs,
        )
        if return_weights:
            output, weights = attended
            output = self._project_output(gated(output, self))
            return output, self._weights(weights)
        if rows is not None:
            attended = ops.reshape(attended, (*shape[:3], attended.shape[3]))
        return self._project_output(gated(attended, self))

    def _output_spec(self, query, value, return_attention_scores):
        width = self._output_dim(query.shape[-1], value.shape[-1])
        output = keras.KerasTensor((*query.shape[:-1], width), dtype=self.compute_dtype)
        if not return_attention_scores:
            return output
        shape = self._weights_shape(*query.shape[:2], value.shape[1])
        return output, keras.KerasTensor(shape, dtype=self.compute_dtype)

    # Decoding step by step

    def cache_spec(self, batch_size, max_length, has_context=False):
        """What this layer remembers from one decoding step to the next.

        Args:
            batch_size: int.
            max_length: int, the number of positions there will be at most.
            has_context: bool, whether keys and values come from a fixed context
                (then nothing needs remembering).

        Returns:
            A dict of `keras.KerasTensor`s, shapes and dtypes of the cache. The first
            axis is the batch's, or several entries for each row of the batch.
        """
        if has_context:
            return {}
        key_dim, value_dim = self.head_dims
        # As products take them, head by head of row by row: else each step would
        # transpose it all, and XLA copy it.
        shape = (batch_size * self.cache_heads, max_length)
        return {
            "key": keras.KerasTensor((*shape, key_dim), dtype=self.compute_dtype),
            "value": keras.KerasTensor((*shape, value_dim), dtype=self.compute_dtype),
            "keep": keras.KerasTensor((batch_size, max_length), dtype="bool"),
        }

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
    ):
        """One step, or a run of them, of causal attention over what came before."""
        if not use_causal_mask:
            raise ValueError(
                f"Layer '{self.name}' attends to tokens that are not there yet while "
                "decoding; call it with `use_causal_mask=True`. "
                f"Received: {use_causal_mask=}"
            )
        refuse_attention_mask(self, attention_mask)
        if padding_mask is None:
            padding_mask = implicit_mask(value)
        if padding_mask is None:
            padding_mask = ops.ones(ops.shape(value)[:2], dtype="bool")
        padding_mask = ops.cast(padding_mask, "bool")
        key, value = self._project_key(key), self._project_value(value)
        cache = {
            "key": caches.write(cache["key"], _head_by_head(key), index),
            "value": caches.write(cache["value"], _head_by_head(value), index),
            "keep": caches.write(cache["keep"], padding_mask, index),
        }
        mask = masks.build(cache["keep"], use_causal_mask=True)
        output = self._attend_projected(
            query,
            self._row_by_row(cache["key"]),
            self._row_by_row(cache["value"]),
            mask,
            query_start=index,
            heads_first=True,
        )
        return output, cache

    def _row_by_row(self, x):
        """`(B * N, L, H)` to `(B, N, L, H)`."""
        rows = ops.shape(x)[0] // self.cache_heads
        return ops.reshape(x, (rows, self.cache_heads, *x.shape[1:]))

    def _project_context(self, value, key, padding_mask=None):
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


def refuse_attention_mask(layer, attention_mask):
    """Raise where a decoding step is given a mask over all target positions."""
    if attention_mask is not None:
        raise ValueError(
            f"Layer '{layer.name}' was called with an explicit `attention_mask`, of "
            "which a decoding step has no row; causal and padding masks are "
            f"supported. Received: attention_mask of shape "
            f"{tuple(attention_mask.shape)}"
        )
