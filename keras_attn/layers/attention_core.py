"""What every multi-head attention layer has: projections, heads, cache."""

import keras
from keras import constraints, initializers, ops, regularizers

from keras_attn._keras_internals import implicit_mask
from keras_attn.layers import arguments
from keras_attn.layers.heads_dense import HeadsDense
from keras_attn.ops import caches, dot_product_attention, masks
from keras_attn.ops.attention import KERNELS

__all__ = ["AttentionCore"]


class AttentionCore(keras.layers.Layer):
    """Base of the multi-head attention layers, which differ in their `call` alone.

    Constructor arguments: those of `MultiHeadAttention`, which documents them.
    """

    def __init__(
        self,
        num_heads,
        key_dim=None,
        value_dim=None,
        dropout=0.0,
        use_bias=True,
        output_dim=None,
        attention_kernel="auto",
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        kernel_regularizer=None,
        bias_regularizer=None,
        kernel_constraint=None,
        bias_constraint=None,
        seed=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads = arguments.positive_int("num_heads", num_heads)
        self.key_dim = arguments.positive_int("key_dim", key_dim, optional=True)
        self.value_dim = arguments.positive_int("value_dim", value_dim, optional=True)
        self.dropout = arguments.rate("dropout", dropout)
        self.use_bias = use_bias
        self.output_dim = arguments.positive_int(
            "output_dim", output_dim, optional=True
        )
        if attention_kernel not in KERNELS:
            raise ValueError(
                f"`attention_kernel` must be one of {KERNELS}. "
                f"Received: {attention_kernel=}"
            )
        self.attention_kernel = attention_kernel
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.bias_initializer = initializers.get(bias_initializer)
        self.kernel_regularizer = regularizers.get(kernel_regularizer)
        self.bias_regularizer = regularizers.get(bias_regularizer)
        self.kernel_constraint = constraints.get(kernel_constraint)
        self.bias_constraint = constraints.get(bias_constraint)
        self.seed = seed
        if dropout > 0:
            self.seed_generator = keras.random.SeedGenerator(seed)
        self.supports_masking = True

    # Building

    def _build_heads(self, query_shape, value_shape, key_shape):
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
        hidden_dim = query_shape[-1]
        if None in (hidden_dim, value_shape[-1], key_shape[-1]):
            raise ValueError(
                "The width of what attention takes must be known. Received: query of "
                f"shape {tuple(query_shape)}, value of shape {tuple(value_shape)}"
            )
        if self.key_dim is None and hidden_dim % self.num_heads:
            raise ValueError(
                "The width of the query must be a multiple of `num_heads`, unless "
                f"`key_dim` is given. Received: width={hidden_dim}, "
                f"num_heads={self.num_heads}"
            )
        key_dim = self.key_dim or hidden_dim // self.num_heads
        value_dim = self.value_dim or key_dim
        self.scale = key_dim**-0.5
        self.head_dims = (key_dim, value_dim)
        heads = self.num_heads
        self._query_dense = self._dense(
            "query", query_shape, query_shape[-1:], (heads, key_dim)
        )
        self._key_dense = self._dense(
            "key", key_shape, key_shape[-1:], (heads, key_dim)
        )
        self._value_dense = self._dense(
            "value", value_shape, value_shape[-1:], (heads, value_dim)
        )
        self._output_dense = self._dense(
            "attention_output",
            (*query_shape[:2], heads, value_dim),
            (heads, value_dim),
            (self.output_dim or hidden_dim,),
        )

    def _dense(self, name, shape, inputs_dims, outputs_dims):
        dense = HeadsDense(
            inputs_dims,
            outputs_dims,
            use_bias=self.use_bias,
            kernel_initializer=arguments.clone_initializer(self.kernel_initializer),
            bias_initializer=arguments.clone_initializer(self.bias_initializer),
            kernel_regularizer=self.kernel_regularizer,
            bias_regularizer=self.bias_regularizer,
            kernel_constraint=self.kernel_constraint,
            bias_constraint=self.bias_constraint,
            dtype=self.dtype_policy,
            name=name,
        )
        dense.build(shape)
        return dense

    # Attending

    def _attend(
        self, query, value, key, mask, return_attention_scores=False, training=None
    ):
        return self._attend_projected(
            query,
            self._key_dense(key),
            self._value_dense(value),
            mask,
            return_weights=return_attention_scores,
            dropout=self.dropout if training else 0.0,
        )

    def _attend_projected(self, query, key, value, mask, rows=None, **kwargs):
        """Attention to projected keys and values.

        Args:
            rows: how many rows they have, if not as many as the query: then so many
                queries share each.
        """
        query = self._query_dense(query)
        shape = ops.shape(query)
        if rows is not None:
            # On plain numbers where they are known, or JAX could not compile it.
            least = max(rows, 1) if isinstance(rows, int) else ops.maximum(rows, 1)
            shared = shape[0] // least * shape[1]
            query = ops.reshape(query, (rows, shared, *shape[2:]))
        attended = dot_product_attention(
            query,
            key,
            value,
            mask=mask,
            scale=self.scale,
            seed=self.seed_generator if self.dropout > 0 else None,
            kernel=self._kernel_for(**kwargs),
            **kwargs,
        )
        if kwargs.get("return_weights"):
            output, weights = attended
            return self._output_dense(output), weights
        if rows is not None:
            attended = ops.reshape(attended, (*shape[:3], attended.shape[3]))
        return self._output_dense(attended)

    def _kernel_for(self, return_weights=False, dropout=0.0, **_):
        """The layer's kernel, save where only the full one can serve a call."""
        return "full" if return_weights or dropout > 0 else self.attention_kernel

    def _output_spec(self, query, value, return_attention_scores):
        shape = (*query.shape[:-1], self.output_dim or query.shape[-1])
        output = keras.KerasTensor(shape, dtype=self.compute_dtype)
        if not return_attention_scores:
            return output
        batch, length = query.shape[:2]
        weights = (batch, self.num_heads, length, value.shape[1])
        return output, keras.KerasTensor(weights, dtype=self.compute_dtype)

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
        shape = (batch_size * self.num_heads, max_length)
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
        key, value = self._key_dense(key), self._value_dense(value)
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
        rows = ops.shape(x)[0] // self.num_heads
        return ops.reshape(x, (rows, self.num_heads, *x.shape[1:]))

    def _project_context(self, value, key, padding_mask=None):
        context = {
            "key": _heads_first(self._key_dense(key)),
            "value": _heads_first(self._value_dense(value)),
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
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "dropout": self.dropout,
            "use_bias": self.use_bias,
            "output_dim": self.output_dim,
            "attention_kernel": self.attention_kernel,
            "kernel_initializer": initializers.serialize(self.kernel_initializer),
            "bias_initializer": initializers.serialize(self.bias_initializer),
            "kernel_regularizer": regularizers.serialize(self.kernel_regularizer),
            "bias_regularizer": regularizers.serialize(self.bias_regularizer),
            "kernel_constraint": constraints.serialize(self.kernel_constraint),
            "bias_constraint": constraints.serialize(self.bias_constraint),
            "seed": self.seed,
        }


def _heads_first(x):
    """`(B, T, N, H)` to `(B, N, T, H)`."""
    return ops.transpose(x, (0, 2, 1, 3))


def _head_by_head(x):
    """`(B, T, N, H)` to `(B * N, T, H)`."""
    rows, length, heads, size = ops.shape(x)
    return ops.reshape(_heads_first(x), (rows * heads, length, size))


def refuse_attention_mask(layer, attention_mask):
    """Raise where a decoding step is given a mask over all target positions."""
    if attention_mask is not None:
        raise ValueError(
            f"Layer '{layer.name}' was called with an explicit `attention_mask`, of "
            "which a decoding step has no row; causal and padding masks are "
            f"supported. Received: attention_mask of shape "
            f"{tuple(attention_mask.shape)}"
        )
