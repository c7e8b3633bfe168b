"""What every attention layer does with its parts: attend."""

import keras
from keras import ops

from keras_attn._keras_internals import implicit_mask
from keras_attn.layers._internal import arguments
from keras_attn.layers._internal.trainable_state import KeepsTraining
from keras_attn.layers.attention.head_gates import gated
from keras_attn.ops import masks

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
        segment_ids=None,
    ):
        """Attention under the masks of a call, the implicit one of `value` included."""
        if padding_mask is None:
            padding_mask = implicit_mask(value)
        mask = masks.combine(
            padding_mask,
            attention_mask,
            use_causal_mask,
            query.shape[1],
            value.shape[1],
            segment_ids,
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

    def get_config(self):
        return {**super().get_config(), "dropout": self.dropout, "seed": self.seed}
