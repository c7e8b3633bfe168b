"""What every multi-head attention layer has: heads, and their projections."""

from keras import constraints, initializers, ops, regularizers

from keras_attn.layers._internal import arguments
from keras_attn.layers._internal.heads_dense import HeadsDense
from keras_attn.layers._internal.normalization import (
    check_normalization,
    make_normalization,
)
from keras_attn.layers.attention.head_positions import Position
from keras_attn.layers.attention.stepped_attention import SteppedAttention
from keras_attn.ops import dot_product_attention, kv_cache, masks
from keras_attn.ops.attention.dot_product import KERNELS

__all__ = ["MultiHeadBase"]


class MultiHeadBase(SteppedAttention):
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
        *,
        num_key_value_heads=None,
        position=None,
        sliding_window=None,
        num_global_tokens=0,
        qk_norm=None,
        scale=None,
        logit_soft_cap=None,
        use_sinks=False,
        use_gate=False,
        use_output_bias=None,
        **kwargs,
    ):
        super().__init__(dropout, seed, **kwargs)
        self.num_heads = arguments.positive_int("num_heads", num_heads)
        self.num_key_value_heads = arguments.positive_int(
            "num_key_value_heads", num_key_value_heads, optional=True
        )
        if self.num_heads % (self.num_key_value_heads or 1):
            raise ValueError(
                "`num_heads` must be a multiple of `num_key_value_heads`. "
                f"Received: {num_heads=}, {num_key_value_heads=}"
            )
        self.key_dim = arguments.positive_int("key_dim", key_dim, optional=True)
        self.value_dim = arguments.positive_int("value_dim", value_dim, optional=True)
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
        self._position = Position(position)
        self.position_parts = self._position.parts  # that Keras tracks them
        self.sliding_window, self.num_global_tokens = sliding_window, num_global_tokens
        self._pattern = None
        if sliding_window is not None:
            self._pattern = masks.window(sliding_window, num_global_tokens)
        elif num_global_tokens:
            raise ValueError(
                "`num_global_tokens` are those beside a window: give `window` as well. "
                f"Received: {num_global_tokens=}, {sliding_window=}"
            )
        if qk_norm is not None:
            qk_norm = check_normalization("qk_norm", qk_norm)
        # In a function, lest Keras track a layer that is a pattern to copy.
        self._head_normalization = lambda: qk_norm
        for name, value in ("scale", scale), ("logit_soft_cap", logit_soft_cap):
            if value is not None:
                arguments.number(name, value, 0, what="a number above 0 or None")
        self.scale, self.logit_soft_cap = scale, logit_soft_cap
        self.use_sinks = arguments.boolean("use_sinks", use_sinks)
        self.use_gate = arguments.boolean("use_gate", use_gate)
        self.use_output_bias = use_output_bias

    @property
    def position(self):
        return self._position.given

    @property
    def qk_norm(self):
        return self._head_normalization()

    def _build_parts(self, query_shape, value_shape, key_shape):
        self._check_shapes(query_shape, value_shape, key_shape)
        hidden_dim = query_shape[-1]
        if self.key_dim is None and hidden_dim % self.num_heads:
            raise ValueError(
                "The width of the query must be a multiple of `num_heads`, unless "
                f"`key_dim` is given. Received: width={hidden_dim}, "
                f"num_heads={self.num_heads}"
            )
        key_dim = self.key_dim or hidden_dim // self.num_heads
        value_dim = self.value_dim or key_dim
        self._scale = key_dim**-0.5 if self.scale is None else self.scale
        self.head_dims = (key_dim, value_dim)
        heads = self.num_heads
        kv_heads = self.cache_heads = self.num_key_value_heads or heads
        outputs_shape = (*query_shape[:2], heads, value_dim)
        self._query_dense = self._dense(
            "query", query_shape, query_shape[-1:], (heads, key_dim)
        )
        self._key_dense = self._dense(
            "key", key_shape, key_shape[-1:], (kv_heads, key_dim)
        )
        self._value_dense = self._dense(
            "value", value_shape, value_shape[-1:], (kv_heads, value_dim)
        )
        self._output_dense = self._dense(
            "attention_output",
            outputs_shape,
            (heads, value_dim),
            (self.output_dim or hidden_dim,),
            self.use_output_bias,
        )
        self._gate_dense = None
        if self.use_gate:
            self._gate_dense = self._dense(
                "gate", query_shape, query_shape[-1:], (heads, value_dim)
            )
        self._query_norm = self._key_norm = None
        if self.qk_norm is not None:
            self._query_norm, self._key_norm = (
                self._norm(name, (*query_shape[:2], count, key_dim))
                for name, count in (("query_norm", heads), ("key_norm", kv_heads))
            )
        self.sinks = None
        if self.use_sinks:
            self.sinks = self.add_weight(
                name="sinks", shape=(heads,), initializer="zeros"
            )
        self._position.build(heads, (*query_shape[:2], heads, key_dim))

    def _dense(self, name, shape, inputs_dims, outputs_dims, use_bias=None):
        dense = HeadsDense(
            inputs_dims,
            outputs_dims,
            use_bias=self.use_bias if use_bias is None else use_bias,
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

    def _norm(self, name, shape):
        layer = make_normalization(self.qk_norm, 1e-6, name, self.dtype_policy)
        layer.build(shape)
        return layer

    def _project_query(self, query):
        query = self._query_dense(query)
        return query if self._query_norm is None else self._query_norm(query)

    def _project_key(self, key):
        key = self._key_dense(key)
        return key if self._key_norm is None else self._key_norm(key)

    def _project_value(self, value):
        return self._value_dense(value)

    def _project_output(self, attended):
        return self._output_dense(attended)

    def _place(self, heads, start_index):
        return self._position.rotate(heads, start_index)

    def _gate(self, attended, query):
        if self._gate_dense is None:
            return attended
        return attended * ops.sigmoid(self._gate_dense(query))

    def _attention(self, query, key, value, mask=None, **kwargs):
        kernel = self.attention_kernel
        if kwargs["return_weights"] or "key_positions" in kwargs:
            kernel = "full"  # only this one has weights to return, or reads a ring
        elif kernel == "fused" and kwargs["dropout"] > 0:
            kernel = "auto"  # in training it has none to drop
        return dot_product_attention(
            query,
            key,
            value,
            mask=masks.join(mask, self._pattern),
            bias=self._position.bias(self.num_heads),
            scale=self._scale,
            logit_soft_cap=self.logit_soft_cap,
            sinks=self.sinks,
            kernel=kernel,
            **kwargs,
        )

    def _ring(self):
        if self._pattern is None:
            return None
        return kv_cache.Ring(self.sliding_window, self.num_global_tokens)

    def _check_context(self):
        """Raise where queries and keys are not positions of one sequence."""
        if self.position is not None or self.sliding_window is not None:
            raise ValueError(
                "positions and windows are of queries and keys of one sequence; a "
                "context has none in common with the tokens that look at it. "
                f"Received: position={self.position}, sliding_window={self.sliding_window}"
            )

    def _weights_shape(self, batch, length, total):
        return (batch, self.num_heads, length, total)

    def _output_dim(self, query_dim, value_dim):
        return self.output_dim or query_dim

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "use_bias": self.use_bias,
            "output_dim": self.output_dim,
            "attention_kernel": self.attention_kernel,
            "kernel_initializer": initializers.serialize(self.kernel_initializer),
            "bias_initializer": initializers.serialize(self.bias_initializer),
            "kernel_regularizer": regularizers.serialize(self.kernel_regularizer),
            "bias_regularizer": regularizers.serialize(self.bias_regularizer),
            "kernel_constraint": constraints.serialize(self.kernel_constraint),
            "bias_constraint": constraints.serialize(self.bias_constraint),
            "num_key_value_heads": self.num_key_value_heads,
            "position": self._position.serialize(),
            "sliding_window": self.sliding_window,
            "num_global_tokens": self.num_global_tokens,
            "qk_norm": arguments.serialize(self.qk_norm),
            "scale": self.scale,
            "logit_soft_cap": self.logit_soft_cap,
            "use_sinks": self.use_sinks,
            "use_gate": self.use_gate,
            "use_output_bias": self.use_output_bias,
        }
