"""Base of the attention layers: masks, dropout and decoding steps around a score."""

import contextlib
import contextvars
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_attn._keras_internals import implicit_mask
from keras_attn._types import Shape, Tensor
from keras_attn.layers._internal import arguments
from keras_attn.layers._internal.trainable_state import (
    add_trainable_state,
    restore_trainable_state,
)
from keras_attn.layers.attention.cache import KeyValueCache
from keras_attn.ops import masks
from keras_attn.ops.attention.softmax import transpose_heads, zero_padding

__all__ = [
    "AttentionLayer",
    "apply_head_gates",
    "check_shapes",
    "head_gates",
    "refuse_dependent_context",
]

_HEAD_GATES: contextvars.ContextVar[Mapping[Any, Tensor] | None] = (
    contextvars.ContextVar("head_gates", default=None)
)


class AttentionLayer(keras.layers.Layer):
    """Base of the attention layers.

    In `build` a subclass makes its projections and `self._cache`, a `KeyValueCache`.
    It implements the seven methods below that raise `NotImplementedError`: the
    projections, the attention function, and the shapes of weights and output.
    Everything else is the same for all of them.

    Args:
        dropout: float in [0, 1), dropout rate of the attention weights.
        seed: int, seed of the dropout.
        **kwargs: arguments of `keras.layers.Layer`.
    """

    num_heads: int
    _cache: KeyValueCache

    def __init__(
        self, dropout: float = 0.0, seed: int | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.dropout: float = arguments.rate("dropout", dropout)
        self.seed = seed
        self.seed_generator: Any = (
            keras.random.SeedGenerator(seed) if dropout > 0 else None
        )
        self.supports_masking = True

    @property
    def head_dims(self) -> tuple[int, int]:
        """Sizes H and V of a key head and of a value head, once the layer is built."""
        return self._cache.key_dim, self._cache.value_dim

    def _project_query(self, query: Tensor, start_index: Any) -> Tensor:
        """Project `(B, T, D)` from position `start_index` on to `(B, T, N, H)`."""
        raise NotImplementedError

    def _project_key(self, key: Tensor, start_index: Any) -> Tensor:
        """Project `(B, S, D)` from position `start_index` on to `(B, S, K, H)`."""
        raise NotImplementedError

    def _project_value(self, value: Tensor) -> Tensor:
        """Project `(B, S, D)` to `(B, S, K, V)`."""
        raise NotImplementedError

    def _project_output(self, heads: Tensor, query: Tensor) -> Tensor:
        """Project `(B, T, N, V)` to `(B, T, output width)`; `query` is for a gate."""
        raise NotImplementedError

    def _attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        return_weights: bool,
        **options: Any,
    ) -> Any:
        """Apply the attention function to heads.

        `options` are arguments of `keras_attn.ops.dot_product_attention`.
        """
        raise NotImplementedError

    def _weights_shape(self, batch: int | None, queries: Any, keys: Any) -> Shape:
        """Return the shape of the attention weights that the layer returns."""
        raise NotImplementedError

    def _output_width(self, query_width: int, value_width: int) -> int:
        raise NotImplementedError

    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        padding_mask: Tensor | None,
        attention_mask: Tensor | None,
        *,
        use_causal_mask: bool = False,
        segment_ids: Tensor | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Any:
        """Project the inputs, attend under the masks of a call, project the output."""
        if padding_mask is None:
            padding_mask = implicit_mask(value)
        mask = masks.combine(
            padding_mask,
            attention_mask,
            use_causal_mask,
            query.shape[1],
            value.shape[1],
            segment_ids,
            query.shape[0],
            self.num_heads,
        )
        return self._attend_to_heads(
            query,
            self._project_key(key, 0),
            self._project_value(value),
            mask,
            return_weights=return_attention_scores,
            dropout=self.dropout if training else 0.0,
        )

    def _attend_to_heads(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: masks.Mask | None,
        *,
        return_weights: bool = False,
        dropout: float = 0.0,
        query_start: Any = 0,
        context_batch_size: Any = None,
        **options: Any,
    ) -> Any:
        """Attend to projected keys and values.

        Args:
            query: `(B, T, D)`, the input of the query projection.
            key, value: heads, see `ops.dot_product_attention`.
            mask: a `Mask` or None.
            return_weights: bool, whether to return the attention weights as well.
            dropout: float, dropout rate of this call.
            query_start: position of the first query.
            context_batch_size: batch size of `key` and `value`, a divisor of that of
                the query: consecutive queries (beams) share a batch element. None: the
                same.
            **options: further arguments of `ops.dot_product_attention`.
        """
        query_heads = self._project_query(query, query_start)  # (B, T, N, H)
        shape = ops.shape(query_heads)
        if context_batch_size is not None:
            # With Python ints if they are known, as JAX requires to compile it.
            maximum = max if isinstance(context_batch_size, int) else ops.maximum
            shared = shape[0] // maximum(context_batch_size, 1) * shape[1]
            query_heads = ops.reshape(
                query_heads, (context_batch_size, shared, *shape[2:])
            )
        result = self._attention(
            query_heads,
            key,
            value,
            return_weights,
            mask=mask,
            dropout=dropout,
            seed=self.seed_generator,
            query_start=query_start,
            **options,
        )
        output_heads, weights = result if return_weights else (result, None)
        if context_batch_size is not None:
            output_heads = ops.reshape(
                output_heads, (*shape[:3], output_heads.shape[3])
            )
        output = self._project_output(apply_head_gates(output_heads, self), query)
        return (output, weights) if return_weights else output

    # Decoding steps, see `keras_attn.decoding.CachedLayer`.

    def cache_spec(
        self, batch_size: int, max_length: int, inputs: Collection[str]
    ) -> dict[str, keras.KerasTensor]:
        """Return shapes and dtypes of the KV cache; see `decoding.CachedLayer`."""
        if "projected_context" in inputs:
            return {}
        return self._cache.spec(
            batch_size, max_length, self.compute_dtype, "segment_ids" in inputs
        )

    def _cached_self_attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        inputs: Mapping[str, Any],
        cache: Mapping[str, Tensor],
        index: Tensor,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Attend from new positions to the cached ones and to themselves, causally."""
        require_causal_mask(self, inputs.get("use_causal_mask", False))
        refuse_attention_mask(self, inputs.get("attention_mask"))
        padding_mask = inputs.get("padding_mask")
        if padding_mask is None:
            padding_mask = implicit_mask(value)
        segment_ids = inputs.get("segment_ids")
        visible, cache, positions = self._cache.update(
            cache,
            self._project_key(key, index),
            self._project_value(value),
            padding_mask,
            segment_ids,
            index,
        )
        mask: Any = masks.combine(visible["padding_mask"], use_causal_mask=True)
        if segment_ids is not None:
            mask &= masks.segments(segment_ids, visible["segment_ids"], index)
        output = self._attend_to_heads(
            query,
            visible["key"],
            visible["value"],
            mask,
            query_start=index,
            heads_first=True,
            **({} if positions is None else {"key_positions": positions}),
        )
        return output, dict(cache)

    def _project_context(
        self, key: Tensor, value: Tensor, padding_mask: Tensor | None
    ) -> dict[str, Tensor]:
        """Return keys `(B, K, S, H)` and values `(B, K, S, V)` of a fixed context."""
        key, value = self._project_key(key, 0), self._project_value(value)
        context = {}
        if padding_mask is not None:
            context["padding_mask"] = ops.cast(padding_mask, "bool")
            mask = masks.padding(context["padding_mask"])
            key, value = zero_padding(key, value, mask)
        return {
            "key": transpose_heads(key),
            **context,
            "value": transpose_heads(value),
        }

    def _attend_to_context(
        self, query: Tensor, context: Mapping[str, Tensor], attention_mask: Any
    ) -> Tensor:
        """Attend to the keys and values that `_project_context` has returned."""
        refuse_attention_mask(self, attention_mask)
        return self._attend_to_heads(
            query,
            context["key"],
            context["value"],
            masks.combine(context.get("padding_mask")),
            context_batch_size=ops.shape(context["key"])[0],
            heads_first=True,
        )

    def _output_spec(
        self, query: Tensor, value: Tensor, return_attention_scores: bool
    ) -> Any:
        """Return the `keras.KerasTensor`s of a call."""
        width = self._output_width(query.shape[-1], value.shape[-1])
        output = keras.KerasTensor((*query.shape[:-1], width), dtype=self.compute_dtype)
        if not return_attention_scores:
            return output
        shape = self._weights_shape(query.shape[0], query.shape[1], value.shape[1])
        return output, keras.KerasTensor(shape, dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "dropout": self.dropout, "seed": self.seed}

    def get_build_config(self) -> dict[str, Any] | None:
        return add_trainable_state(self, super().get_build_config())

    def build_from_config(self, config: dict[str, Any]) -> None:
        super().build_from_config(config)
        restore_trainable_state(self, config)


def check_shapes(query_shape: Shape, value_shape: Shape, key_shape: Shape) -> None:
    """Raise a ValueError if query, value and key do not fit together."""
    for name, shape in (
        ("query", query_shape),
        ("value", value_shape),
        ("key", key_shape),
    ):
        if len(shape) != 3:
            raise ValueError(
                f"`{name}` must have shape (batch, length, features). "
                f"Received: {name} of shape {tuple(shape)}"
            )
    if tuple(key_shape[1:2]) != tuple(value_shape[1:2]):
        raise ValueError(
            "`key` and `value` must have the same length. "
            f"Received: key of shape {tuple(key_shape)}, "
            f"value of shape {tuple(value_shape)}"
        )
    if None in (query_shape[-1], value_shape[-1], key_shape[-1]):
        raise ValueError(
            "The last axis of query, value and key must be known. Received: query of "
            f"shape {tuple(query_shape)}, value of shape {tuple(value_shape)}, "
            f"key of shape {tuple(key_shape)}"
        )


def require_causal_mask(layer: keras.layers.Layer, use_causal_mask: bool) -> None:
    """Raise a ValueError if a decoding step would have to attend to later tokens."""
    if not use_causal_mask:
        raise ValueError(
            f"Layer '{layer.name}' attends to tokens that are not generated yet; call "
            f"it with `use_causal_mask=True`. Received: {use_causal_mask=}"
        )


def refuse_dependent_context(
    layer: keras.layers.Layer, inputs: Mapping[str, Any], names: Iterable[str]
) -> None:
    """Raise a ValueError if a decoding step is given a context that is not fixed.

    Args:
        layer: the layer, for the message.
        inputs: the arguments of the layer's `cached_call`.
        names: names of the arguments that must be fixed.
    """
    for name in names:
        if inputs.get(name) is not None:
            raise ValueError(
                f"Layer '{layer.name}' attends to a fixed context, so `{name}` must "
                "not depend on the generated tokens. Received: "
                f"{name} of shape {tuple(np.shape(inputs[name]))}"
            )


def refuse_attention_mask(layer: keras.layers.Layer, attention_mask: Any) -> None:
    """Raise a ValueError if a decoding step is given a mask over target positions."""
    if attention_mask is not None:
        raise ValueError(
            f"Layer '{layer.name}' was called with an explicit `attention_mask`, which "
            "has no entries for the positions of a decoding step; use causal and "
            "padding masks. Received: attention_mask of shape "
            f"{tuple(attention_mask.shape)}"
        )


@contextlib.contextmanager
def head_gates(gates: Mapping[Any, Tensor]) -> Iterator[None]:
    """Multiply the heads of attention layers by factors within a context.

    With factors of one the outputs do not change, and the gradients with respect to
    the factors measure the importance of the heads.

    Args:
        gates: a mapping from an attention layer to floats `(B, N)`, one factor per
            batch element and head. Other layers are not affected.
    """
    token = _HEAD_GATES.set(gates)
    try:
        yield
    finally:
        _HEAD_GATES.reset(token)


def apply_head_gates(heads: Tensor, layer: keras.layers.Layer) -> Tensor:
    """Return heads `(B, T, N, V)` times the gates that are set for `layer`, if any."""
    gates = _HEAD_GATES.get()
    if gates is None or layer not in gates:
        return heads
    factors = ops.cast(gates[layer], heads.dtype)
    return ops.multiply(heads, ops.expand_dims(factors, (1, 3)))
