"""Multi-head attention: the general layer, self-attention and cross-attention."""

from collections.abc import Collection, Mapping
from typing import Any

import keras
from keras import ops

from keras_attn._keras_internals import Untracked
from keras_attn._types import InitializerLike, Shape, Tensor
from keras_attn.layers._internal import arguments
from keras_attn.layers._internal.normalization import check_normalization
from keras_attn.layers.attention.attention_layer import (
    AttentionLayer,
    check_shapes,
    refuse_dependent_context,
)
from keras_attn.layers.attention.cache import KeyValueCache
from keras_attn.layers.attention.projections import build_projections
from keras_attn.layers.position.attention_position import AttentionPosition
from keras_attn.ops import dot_product_attention, kv_cache, masks
from keras_attn.ops.attention.dot_product import KERNELS

__all__ = [
    "KERAS_ALTERNATIVES",
    "CrossAttention",
    "MultiHeadAttention",
    "MultiHeadLayer",
    "MultiHeadSelfAttention",
]

# Constructor arguments of `keras.layers.MultiHeadAttention` that are not supported.
KERAS_ALTERNATIVES = {
    "attention_axes": "attention is over the second axis; reshape the inputs",
    "flash_attention": "use `attention_kernel='fused'`",
    "activity_regularizer": "add a `keras.layers.ActivityRegularization` layer",
}


class MultiHeadLayer(AttentionLayer):
    """Base of the multi-head attention layers, which differ in their call arguments.

    Constructor arguments: those of `MultiHeadAttention`.
    """

    def __init__(
        self,
        num_heads: int,
        key_dim: int | None = None,
        value_dim: int | None = None,
        dropout: float = 0.0,
        use_bias: bool = True,
        *,
        output_shape: int | None = None,
        attention_kernel: str = "auto",
        kernel_initializer: InitializerLike = "glorot_uniform",
        bias_initializer: InitializerLike = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        seed: int | None = None,
        num_key_value_heads: int | None = None,
        position: Any = None,
        sliding_window: int | None = None,
        num_global_tokens: int = 0,
        qk_norm: str | keras.layers.Layer | None = None,
        scale: float | None = None,
        logit_soft_cap: float | None = None,
        use_sinks: bool = False,
        use_gate: bool = False,
        use_output_bias: bool | None = None,
        branch_gain: float = 1.0,
        qkv_gain: float = 1.0,
        output_gain: float = 1.0,
        **kwargs: Any,
    ) -> None:
        arguments.refuse_unsupported(type(self), kwargs, KERAS_ALTERNATIVES)
        super().__init__(dropout, seed, **kwargs)
        self.num_heads: int = arguments.positive_int("num_heads", num_heads)
        self.num_key_value_heads: int | None = arguments.positive_int(
            "num_key_value_heads", num_key_value_heads, optional=True
        )
        if self.num_heads % (self.num_key_value_heads or 1):
            raise ValueError(
                "`num_heads` must be a multiple of `num_key_value_heads`. "
                f"Received: {num_heads=}, {num_key_value_heads=}"
            )
        self.key_dim: int | None = arguments.positive_int(
            "key_dim", key_dim, optional=True
        )
        self.value_dim: int | None = arguments.positive_int(
            "value_dim", value_dim, optional=True
        )
        self.use_bias = use_bias
        self.output_shape: int | None = arguments.positive_int(
            "output_shape", output_shape, optional=True
        )
        if attention_kernel not in KERNELS:
            raise ValueError(
                f"`attention_kernel` must be one of {KERNELS}. "
                f"Received: {attention_kernel=}"
            )
        self.attention_kernel = attention_kernel
        arguments.set_weight_options(
            self,
            kernel_initializer,
            bias_initializer,
            kernel_regularizer,
            bias_regularizer,
            kernel_constraint,
            bias_constraint,
        )
        self._position = AttentionPosition(position)
        self._position_layers = self._position.layers()  # Keras tracks this list.
        self.sliding_window = sliding_window
        self.num_global_tokens = num_global_tokens
        self._window_mask = _window_mask(sliding_window, num_global_tokens)
        if qk_norm is not None:
            qk_norm = check_normalization("qk_norm", qk_norm)
        self._qk_norm = Untracked(qk_norm)  # A template, without weights.
        for name, value in ("scale", scale), ("logit_soft_cap", logit_soft_cap):
            if value is not None:
                arguments.number(name, value, 0, expected="a number above 0 or None")
        self.scale = scale
        self.logit_soft_cap = logit_soft_cap
        self.use_sinks: bool = arguments.boolean("use_sinks", use_sinks)
        self.use_gate: bool = arguments.boolean("use_gate", use_gate)
        self.use_output_bias = use_output_bias
        self.branch_gain: float = arguments.gain("branch_gain", branch_gain)
        self.qkv_gain: float = arguments.gain("qkv_gain", qkv_gain)
        self.output_gain: float = arguments.gain("output_gain", output_gain)

    @property
    def position(self) -> Any:
        """The position objects, as given to the constructor."""
        return self._position.argument

    @property
    def qk_norm(self) -> str | keras.layers.Layer | None:
        """The normalization of query and key heads, as given to the constructor."""
        return self._qk_norm.value

    def _build(self, query_shape: Shape, value_shape: Shape, key_shape: Shape) -> None:
        check_shapes(query_shape, value_shape, key_shape)
        num_key_value_heads = self.num_key_value_heads or self.num_heads
        self._projections = build_projections(
            self,
            query_shape,
            value_shape,
            key_shape,
            num_key_value_heads=num_key_value_heads,
            use_gate=self.use_gate,
            qk_norm=self.qk_norm,
        )
        self._projection_layers = self._projections.layers()  # Keras tracks this list.
        key_dim, value_dim = self._projections.key_dim, self._projections.value_dim
        self._scale = key_dim**-0.5 if self.scale is None else self.scale
        ring = None
        if self.sliding_window is not None:
            ring = kv_cache.RingBuffer(self.sliding_window, self.num_global_tokens)
        self._cache = KeyValueCache(num_key_value_heads, key_dim, value_dim, ring)
        self.sinks = None
        if self.use_sinks:
            self.sinks: Any = self.add_weight(
                name="sinks", shape=(self.num_heads,), initializer="zeros"
            )
        heads_shape = (*query_shape[:2], self.num_heads, key_dim)
        self._position.build(self.num_heads, heads_shape)

    def _project_query(self, query: Tensor, start_index: Any) -> Tensor:
        heads = self._projections.query(query)
        if self._projections.query_norm is not None:
            heads = self._projections.query_norm(heads)
        if self._position.rotation is None:
            return heads
        return self._position.rotate(heads, start_index)

    def _project_key(self, key: Tensor, start_index: Any) -> Tensor:
        heads = self._projections.key(key)
        if self._projections.key_norm is not None:
            heads = self._projections.key_norm(heads)
        if self._position.rotation is None:
            return heads
        return self._position.rotate(heads, start_index)

    def _project_value(self, value: Tensor) -> Tensor:
        return self._projections.value(value)

    def _project_output(self, heads: Tensor, query: Tensor) -> Tensor:
        if self._projections.gate is not None:
            heads = heads * ops.sigmoid(self._projections.gate(query))
        return self._projections.output(heads)

    def _attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        return_weights: bool,
        mask: masks.Mask | None = None,
        dropout: float = 0.0,
        **options: Any,
    ) -> Any:
        kernel = self.attention_kernel
        if return_weights or "key_positions" in options:
            kernel = "full"  # The only one that returns weights or reads a ring buffer.
        elif kernel == "fused" and dropout > 0:
            kernel = "auto"  # The fused kernel has no dropout.
        if self._window_mask is not None:
            mask = masks.join(mask, self._window_mask)
        if self._position.position_bias is not None:
            options["bias"] = self._position.bias(self.num_heads)
        return dot_product_attention(
            query,
            key,
            value,
            mask=mask,
            scale=self._scale,
            dropout=dropout,
            kernel=kernel,
            return_weights=return_weights,
            logit_soft_cap=self.logit_soft_cap,
            sinks=self.sinks,
            **options,
        )

    def _check_context(self) -> None:
        """Raise a ValueError if the layer cannot attend to another sequence."""
        if self.position is not None or self.sliding_window is not None:
            raise ValueError(
                "`position` and `sliding_window` are for attention within one "
                "sequence: positions of a query and of a context are not comparable. "
                f"Received: position={self.position}, "
                f"sliding_window={self.sliding_window}"
            )

    def _weights_shape(self, batch: int | None, queries: Any, keys: Any) -> Shape:
        return (batch, self.num_heads, queries, keys)

    def _output_width(self, query_width: int, value_width: int) -> int:
        return self.output_shape or query_width

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            **arguments.serialize_weight_options(self),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "use_bias": self.use_bias,
            "output_shape": self.output_shape,
            "attention_kernel": self.attention_kernel,
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
            "branch_gain": self.branch_gain,
            "qkv_gain": self.qkv_gain,
            "output_gain": self.output_gain,
        }


def _window_mask(
    sliding_window: int | None, num_global_tokens: int
) -> masks.Mask | None:
    if sliding_window is not None:
        return masks.window(sliding_window, num_global_tokens)
    if num_global_tokens:
        raise ValueError(
            "`num_global_tokens` requires `sliding_window`. "
            f"Received: {num_global_tokens=}, {sliding_window=}"
        )
    return None


@keras.saving.register_keras_serializable(package="keras_attn")
class MultiHeadAttention(MultiHeadLayer):
    """Multi-head attention of `query` over `key` and `value`.

    The projections are `keras.layers.EinsumDense` layers (a subclass that multiplies
    plain matrices) whose weights have the shapes and the order of those of
    `keras.layers.MultiHeadAttention`: weights can be copied in both directions, and
    `enable_lora` and `quantize` work.

    Args:
        num_heads: int N, number of heads.
        key_dim: int H, size of a query or key head. Default: the width of the query
            divided by `num_heads`.
        value_dim: int V, size of a value head. Default: `key_dim`.
        dropout: float in [0, 1), dropout rate of the attention weights.
        use_bias: bool, whether the projections have biases.
        output_shape: int, width of the output. Default: the width of the query.
        attention_kernel: `"auto"`, `"full"`, `"blockwise"` or `"fused"`, see
            `keras_attn.ops.dot_product_attention`. Calls that return the attention
            weights use the full one.
        kernel_initializer, bias_initializer: initializers of the projections.
        kernel_regularizer, bias_regularizer: regularizers of the projections.
        kernel_constraint, bias_constraint: constraints of the projections.
        seed: int, seed of the dropout.
        num_key_value_heads: int K, number of key/value heads, a divisor of `num_heads`:
            N / K consecutive query heads share one (grouped-query attention; 1:
            multi-query attention). Default: `num_heads`.
        position: a `RotaryPositionEmbedding`, an `AlibiPositionBias`, a
            `RelativePositionBias`, or a list of a rotation and a bias.
        sliding_window: int, at least 1: a query attends to keys at distances below this
            (with a causal mask: to its own position and the `sliding_window - 1`
            positions before it, as in Mistral). Time and memory grow with length times
            window, and the KV cache holds the window only.
        num_global_tokens: int, number of first tokens that all queries attend to and
            that attend to all keys, in addition to a sliding window. With a causal mask
            they are known as attention sinks.
        qk_norm: `"rms_norm"`, `"layer_norm"` or a layer to copy: normalization over the
            features of each query and key head, before rotary positions.
        scale: float, factor of the attention scores. Default: `key_dim ** -0.5`.
        logit_soft_cap: float c, replaces a score s by `c * tanh(s / c)`.
        use_sinks: bool, whether each head has a learned score for attending to nothing.
        use_gate: bool, whether the heads are multiplied by a sigmoid of a projection of
            the query.
        use_output_bias: bool, whether the output projection has a bias. Default:
            `use_bias`.
        branch_gain: float, factor of the initial weights of the value and output
            projections, beta in DeepNorm.
        qkv_gain: float, factor of the initial weights of the query, key and value
            projections. `2**-0.5` makes them those of PyTorch's `MultiheadAttention`,
            where the three are one matrix; see `docs/training.md`.
        output_gain: float, factor of the initial weights of the output projection,
            `(2 * num_layers)**-0.5` in GPT-2.
        **kwargs: `name`, `dtype` and `trainable` of `keras.layers.Layer`.

    Raises:
        ValueError: for a size that is not a positive int, a rate outside [0, 1), an
            unknown kernel, numbers of heads that do not divide, a window below 1, two
            rotations or two biases, an argument of
            `keras.layers.MultiHeadAttention` that is not supported; in `build`, for a
            width that is not a multiple of `num_heads`; when the layer is decoded step
            by step and attends to another sequence, for `position` or `sliding_window`.

    Call arguments:
        query: floats `(B, T, D)`.
        value: floats `(B, S, D')`.
        key: floats `(B, S, D'')`. Default: `value`.
        padding_mask: bool `(B, S)`, True = a real token of `value`. Replaces
            `value_mask`, `key_mask` and the implicit Keras mask of `value`.
        attention_mask: bool `(T, S)`, `(B, T, S)` or `(B, N, T, S)`, True = may
            attend; joined with the padding mask.
        use_causal_mask: bool, whether query `i` attends only to keys `j <= i`.
        return_attention_scores: bool, whether to return the attention weights as well.
        training: bool, whether dropout is applied.
        value_mask, key_mask: bool `(B, S)`, as in `keras.layers.MultiHeadAttention`:
            joined, they are the padding mask. Default: the implicit Keras masks.
        query_mask: bool `(B, T)`. Outputs at masked positions of the query have no
            meaning, and no other output depends on them, so that it is not used.

    Returns:
        `(B, T, output_shape)`, or a tuple of it and the attention weights
        `(B, N, T, S)`.

    Example:
        >>> import keras
        >>> from keras_attn import layers
        >>> query, value = keras.Input((None, 16)), keras.Input((None, 24))
        >>> layers.MultiHeadAttention(num_heads=4)(query, value).shape
        (None, None, 16)

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.2.2
        (https://arxiv.org/abs/1706.03762). Grouped queries: Ainslie et al. 2023
        (https://arxiv.org/abs/2305.13245). Normalized queries and keys: Henry et al.
        2020 (https://arxiv.org/abs/2010.04245). Soft cap: Gemma 2
        (https://arxiv.org/abs/2408.00118). Learned sinks: gpt-oss
        (https://arxiv.org/abs/2508.10925). Gate: Qiu et al. 2025
        (https://arxiv.org/abs/2505.06708).
    """

    context_arguments = ("value", "key")
    context_masks = ("padding_mask", "value_mask", "key_mask")

    def build(
        self, query_shape: Shape, value_shape: Shape, key_shape: Shape | None = None
    ) -> None:
        self._build(query_shape, value_shape, key_shape or value_shape)

    def call(
        self,
        query: Tensor,
        value: Tensor,
        key: Tensor | None = None,
        padding_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        use_causal_mask: bool = False,
        return_attention_scores: bool = False,
        training: bool | None = None,
        query_mask: Tensor | None = None,
        value_mask: Tensor | None = None,
        key_mask: Tensor | None = None,
    ) -> Any:
        return self._attend(
            query,
            value if key is None else key,
            value,
            _padding_mask(padding_mask, value_mask, key_mask),
            attention_mask,
            use_causal_mask=use_causal_mask,
            return_attention_scores=return_attention_scores,
            training=training,
        )

    def project_context(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Project the keys and values of a fixed context; see `decoding.ContextLayer`.

        Returns:
            A dict of tensors: `"key"` `(B, K, S, H)`, `"value"` `(B, K, S, V)` and,
            with a mask, `"padding_mask"` bool `(B, S)`.
        """
        self._check_context()
        value = inputs["value"]
        padding_mask = _padding_mask(*(inputs.get(name) for name in self.context_masks))
        return self._project_context(inputs.get("key", value), value, padding_mask)

    def cached_call(
        self, inputs: Mapping[str, Any], cache: Mapping[str, Tensor], index: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Apply the layer to new positions; see `decoding.CachedLayer`."""
        query, padding_mask = (
            inputs["query"],
            _padding_mask(*(inputs.get(name) for name in self.context_masks)),
        )
        if "projected_context" in inputs:
            refuse_dependent_context(self, inputs, self.context_masks)
            mask = inputs.get("attention_mask")
            context = inputs["projected_context"]
            return self._attend_to_context(query, context, mask), {}
        value = inputs["value"]
        inputs = {**inputs, "padding_mask": padding_mask}
        key = inputs.get("key", value)
        return self._cached_self_attention(query, key, value, inputs, cache, index)

    def compute_output_shape(
        self,
        query_shape: Shape,
        value_shape: Shape | None = None,
        key_shape: Shape | None = None,
    ) -> Shape:
        value_shape = value_shape or query_shape
        check_shapes(query_shape, value_shape, key_shape or value_shape)
        return (*query_shape[:-1], self.output_shape or query_shape[-1])

    def compute_output_spec(
        self,
        query: keras.KerasTensor,
        value: keras.KerasTensor,
        key: keras.KerasTensor | None = None,
        padding_mask: Any = None,
        attention_mask: Any = None,
        use_causal_mask: bool = False,
        return_attention_scores: bool = False,
        training: bool | None = None,
        query_mask: Any = None,
        value_mask: Any = None,
        key_mask: Any = None,
    ) -> Any:
        for mask in (padding_mask, value_mask, key_mask):
            masks.check(mask, attention_mask, query.shape[1], value.shape[1])
        return self._output_spec(query, value, return_attention_scores)


def _padding_mask(
    padding_mask: Tensor | None, value_mask: Tensor | None, key_mask: Tensor | None
) -> Tensor | None:
    """Return the padding mask of a call, from the names of Keras as well."""
    if padding_mask is not None:
        return padding_mask
    if value_mask is None or key_mask is None or value_mask is key_mask:
        return key_mask if value_mask is None else value_mask
    return ops.logical_and(value_mask, key_mask)


@keras.saving.register_keras_serializable(package="keras_attn")
class MultiHeadSelfAttention(MultiHeadLayer):
    """Multi-head attention of a sequence over itself.

    Args:
        num_heads: int N, number of heads.
        key_dim: int H, size of a query or key head. Default: the width of the inputs
            divided by `num_heads`.
        value_dim: int V, size of a value head. Default: `key_dim`.
        dropout: float in [0, 1), dropout rate of the attention weights.
        use_bias: bool, whether the projections have biases.
        output_shape: int, width of the output. Default: the width of the inputs.
        attention_kernel: `"auto"`, `"full"`, `"blockwise"` or `"fused"`.
        kernel_initializer, bias_initializer, kernel_regularizer, bias_regularizer,
            kernel_constraint, bias_constraint: of the projections.
        seed: int, seed of the dropout.
        num_key_value_heads: int K, number of key/value heads (grouped-query attention).
        position: a `RotaryPositionEmbedding`, an `AlibiPositionBias`, a
            `RelativePositionBias`, or a list of a rotation and a bias.
        sliding_window: int, a query attends to keys at distances below this.
        num_global_tokens: int, number of first tokens that are exempt from the window.
        qk_norm: `"rms_norm"`, `"layer_norm"` or a layer to copy: normalization of query
            and key heads.
        scale: float, factor of the attention scores. Default: `key_dim ** -0.5`.
        logit_soft_cap: float c, replaces a score s by `c * tanh(s / c)`.
        use_sinks: bool, whether each head has a learned score for attending to nothing.
        use_gate: bool, whether the heads are multiplied by a learned gate.
        use_output_bias: bool, whether the output projection has a bias. Default:
            `use_bias`.
        branch_gain: float, factor of the initial weights of the value and output
            projections.
        qkv_gain: float, factor of the initial weights of the query, key and value
            projections. `2**-0.5` makes them those of PyTorch's `MultiheadAttention`,
            where the three are one matrix; see `docs/training.md`.
        output_gain: float, factor of the initial weights of the output projection,
            `(2 * num_layers)**-0.5` in GPT-2.
        **kwargs: `name`, `dtype` and `trainable` of `keras.layers.Layer`.

    `MultiHeadAttention` documents these arguments in full, with the errors they raise
    and the papers they are from.

    Call arguments:
        inputs: floats `(B, T, D)`.
        padding_mask: bool `(B, T)`, True = a real token. Replaces the implicit Keras
            mask of `inputs`.
        attention_mask: bool `(T, T)`, `(B, T, T)` or `(B, N, T, T)`, True = may
            attend; joined with the padding mask.
        use_causal_mask: bool, whether token `i` attends only to tokens `j <= i`.
        return_attention_scores: bool, whether to return the attention weights as well.
        training: bool, whether dropout is applied.
        segment_ids: int `(B, T)`, for several sequences packed into one: tokens attend
            only to tokens with the same id.

    Returns:
        `(B, T, output_shape)`, or a tuple of it and the attention weights
        `(B, N, T, T)`.

    Example:
        >>> import keras
        >>> from keras_attn import layers
        >>> inputs = keras.Input((None, 64))
        >>> attention = layers.MultiHeadSelfAttention(num_heads=8)
        >>> attention(inputs, use_causal_mask=True).shape
        (None, None, 64)

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.2
        (https://arxiv.org/abs/1706.03762).
    """

    def build(self, inputs_shape: Shape) -> None:
        self._build(inputs_shape, inputs_shape, inputs_shape)

    def call(
        self,
        inputs: Tensor,
        padding_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        use_causal_mask: bool = False,
        return_attention_scores: bool = False,
        training: bool | None = None,
        segment_ids: Tensor | None = None,
    ) -> Any:
        return self._attend(
            inputs,
            inputs,
            inputs,
            padding_mask,
            attention_mask,
            use_causal_mask=use_causal_mask,
            segment_ids=segment_ids,
            return_attention_scores=return_attention_scores,
            training=training,
        )

    def cached_call(
        self, inputs: Mapping[str, Any], cache: Mapping[str, Tensor], index: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Apply the layer to new positions; see `decoding.CachedLayer`."""
        x = inputs["inputs"]
        return self._cached_self_attention(x, x, x, inputs, cache, index)

    def compute_output_shape(self, inputs_shape: Shape) -> Shape:
        return (*inputs_shape[:-1], self.output_shape or inputs_shape[-1])

    def compute_output_spec(
        self,
        inputs: keras.KerasTensor,
        padding_mask: Any = None,
        attention_mask: Any = None,
        use_causal_mask: bool = False,
        return_attention_scores: bool = False,
        training: bool | None = None,
        segment_ids: Any = None,
    ) -> Any:
        length = inputs.shape[1]
        masks.check(padding_mask, attention_mask, length, length, segment_ids)
        return self._output_spec(inputs, inputs, return_attention_scores)


@keras.saving.register_keras_serializable(package="keras_attn")
class CrossAttention(MultiHeadLayer):
    """Multi-head attention of a query over a context, such as an encoder's output.

    Args:
        num_heads: int N, number of heads.
        key_dim: int H, size of a query or key head. Default: the width of the query
            divided by `num_heads`.
        value_dim: int V, size of a value head. Default: `key_dim`.
        dropout: float in [0, 1), dropout rate of the attention weights.
        use_bias: bool, whether the projections have biases.
        **kwargs: the keyword arguments of `MultiHeadAttention` except `position`,
            `sliding_window` and `num_global_tokens`, which are for attention within one
            sequence.

    Raises:
        ValueError: as `MultiHeadAttention`, and for positions or a window.

    Call arguments:
        query: floats `(B, T, D)`.
        context: floats `(B, S, D')`, from which keys and values are projected.
        padding_mask: bool `(B, S)`, True = a real token of the context. Replaces the
            implicit Keras mask of `context`.
        attention_mask: bool `(T, S)`, `(B, T, S)` or `(B, N, T, S)`, True = may
            attend; joined with the padding mask.
        return_attention_scores: bool, whether to return the attention weights as well.
        training: bool, whether dropout is applied.

    Returns:
        `(B, T, output_shape)`, or a tuple of it and the attention weights
        `(B, N, T, S)`.

    Example:
        >>> import keras
        >>> from keras_attn import layers
        >>> target, source = keras.Input((None, 64)), keras.Input((None, 32))
        >>> layers.CrossAttention(num_heads=8)(target, source).shape
        (None, None, 64)

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.2.3
        (https://arxiv.org/abs/1706.03762).
    """

    context_arguments = ("context",)
    context_masks = ("padding_mask",)

    def __init__(
        self,
        num_heads: int,
        key_dim: int | None = None,
        value_dim: int | None = None,
        dropout: float = 0.0,
        use_bias: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_heads, key_dim, value_dim, dropout, use_bias, **kwargs)
        self._check_context()

    def build(self, query_shape: Shape, context_shape: Shape) -> None:
        self._build(query_shape, context_shape, context_shape)

    def call(
        self,
        query: Tensor,
        context: Tensor,
        padding_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Any:
        return self._attend(
            query,
            context,
            context,
            padding_mask,
            attention_mask,
            return_attention_scores=return_attention_scores,
            training=training,
        )

    def cache_spec(
        self, batch_size: int, max_length: int, inputs: Collection[str]
    ) -> dict[str, keras.KerasTensor]:
        """Return an empty dict: there is no cache; see `decoding.CachedLayer`."""
        return {}

    def project_context(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Project the keys and values of the context; see `decoding.ContextLayer`."""
        context = inputs["context"]
        return self._project_context(context, context, inputs.get("padding_mask"))

    def cached_call(
        self, inputs: Mapping[str, Any], cache: Mapping[str, Tensor], index: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Apply the layer to new positions; see `decoding.CachedLayer`."""
        refuse_dependent_context(self, inputs, ("context", "padding_mask"))
        context, mask = inputs["projected_context"], inputs.get("attention_mask")
        return self._attend_to_context(inputs["query"], context, mask), {}

    def compute_output_shape(
        self, query_shape: Shape, context_shape: Shape | None = None
    ) -> Shape:
        return (*query_shape[:-1], self.output_shape or query_shape[-1])

    def compute_output_spec(
        self,
        query: keras.KerasTensor,
        context: keras.KerasTensor,
        padding_mask: Any = None,
        attention_mask: Any = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Any:
        masks.check(padding_mask, attention_mask, query.shape[1], context.shape[1])
        return self._output_spec(query, context, return_attention_scores)
