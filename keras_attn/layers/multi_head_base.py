"""What every multi-head attention layer has: heads, and their projections."""

from keras import constraints, initializers, regularizers

from keras_attn.layers import arguments
from keras_attn.layers.attention_base import AttentionBase
from keras_attn.layers.heads_dense import HeadsDense
from keras_attn.ops import dot_product_attention
from keras_attn.ops.attention import KERNELS

__all__ = ["MultiHeadBase"]


class MultiHeadBase(AttentionBase):
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
        super().__init__(dropout, seed, **kwargs)
        self.num_heads = arguments.positive_int("num_heads", num_heads)
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
        self.scale = key_dim**-0.5
        self.head_dims = (key_dim, value_dim)
        heads = self.cache_heads = self.num_heads
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

    def _project_query(self, query):
        return self._query_dense(query)

    def _project_key(self, key):
        return self._key_dense(key)

    def _project_value(self, value):
        return self._value_dense(value)

    def _project_output(self, attended):
        return self._output_dense(attended)

    def _attention(self, query, key, value, **kwargs):
        weights_needed = kwargs["return_weights"] or kwargs["dropout"] > 0
        return dot_product_attention(
            query,
            key,
            value,
            scale=self.scale,
            # Only the full one has weights to return or to drop.
            kernel="full" if weights_needed else self.attention_kernel,
            **kwargs,
        )

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
        }
