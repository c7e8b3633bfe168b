"""Self-attention in linear time, with a state of constant size."""

from collections.abc import Collection, Mapping
from typing import Any

import keras
from keras import ops

from keras_attn._keras_internals import implicit_mask
from keras_attn._types import InitializerLike, Shape, Tensor
from keras_attn.layers._internal import arguments
from keras_attn.layers._internal.trainable_state import (
    add_trainable_state,
    restore_trainable_state,
)
from keras_attn.layers.attention.attention_layer import (
    apply_head_gates,
    check_shapes,
    require_causal_mask,
)
from keras_attn.layers.attention.multi_head_attention import KERAS_ALTERNATIVES
from keras_attn.layers.attention.projections import build_projections
from keras_attn.ops import masks
from keras_attn.ops.attention.linear import (
    feature_function,
    linear_attention,
    linear_attention_step,
    linear_attention_weights,
)

__all__ = ["LinearSelfAttention"]

_SOFTMAX_ONLY = "it is an argument of softmax attention; use `MultiHeadSelfAttention`"
_ALTERNATIVES = {
    **KERAS_ALTERNATIVES,
    "dropout": "there are no attention weights to drop; add a `keras.layers.Dropout`",
    **dict.fromkeys(
        [
            *("attention_kernel", "logit_soft_cap", "num_global_tokens"),
            *("num_key_value_heads", "position", "qk_norm", "scale", "seed"),
            *("sliding_window", "use_gate", "use_output_bias", "use_sinks"),
        ],
        _SOFTMAX_ONLY,
    ),
}


@keras.saving.register_keras_serializable(package="keras_attn")
class LinearSelfAttention(keras.layers.Layer):
    """Multi-head self-attention in time and memory linear in the sequence length.

    Instead of a softmax over products of queries and keys, an attention weight is the
    product of their features divided by the sum of all such products:
    `phi(q_i) . phi(k_j)`. Sums over keys are computed once, not once per query, and
    decoding keeps only these sums, at any length. The layer is called like
    `MultiHeadSelfAttention`, can be the `attention` of a block, and has the same
    weights. It learns differently: it averages where softmax attention can select one
    token.

    The attention weights are not computed, so that none can be dropped or capped: of
    the arguments of `MultiHeadSelfAttention` only those below are supported.

    Args:
        num_heads: int N, number of heads.
        key_dim: int H, size of a query or key head. Default: width / `num_heads`.
        value_dim: int V, size of a value head. Default: `key_dim`.
        feature_map: phi: `"elu"`, `elu(x) + 1`, or `"relu"`, `relu(x) + 0.001`.
        use_bias: bool, whether the projections have biases.
        output_shape: int, width of the output. Default: the width of the inputs.
        kernel_initializer, bias_initializer: initializers of the projections.
        kernel_regularizer, bias_regularizer: regularizers of the projections.
        kernel_constraint, bias_constraint: constraints of the projections.
        branch_gain: float, factor of the initial weights of the value and output
            projections, beta in DeepNorm.
        qkv_gain: float, factor of the initial weights of the query, key and value
            projections.
        output_gain: float, factor of the initial weights of the output projection,
            `(2 * num_layers)**-0.5` in GPT-2.
        **kwargs: `name`, `dtype` and `trainable` of `keras.layers.Layer`.

    Call arguments:
        inputs: floats `(B, T, D)`.
        padding_mask: bool `(B, T)`, True = a real token. Replaces the implicit Keras
            mask of `inputs`.
        attention_mask: must be None: no other mask is supported.
        use_causal_mask: bool, whether token `i` attends only to tokens `j <= i`.
        return_attention_scores: bool, whether to return the attention weights as well.
            They are computed for this only: B x N x T x T numbers.
        training: bool, has no effect.

    Returns:
        `(B, T, output_shape)`, or a tuple of it and the attention weights
        `(B, N, T, T)`, whose rows sum to one, or to zero for a token with nothing to
        attend to.

    Raises:
        ValueError: for invalid sizes, an unknown feature map, an unsupported argument
            of `MultiHeadSelfAttention`, an `attention_mask`.

    Example:
        >>> import keras
        >>> from keras_attn import layers
        >>> inputs = keras.Input((None, 64))
        >>> attention = layers.LinearSelfAttention(num_heads=8)
        >>> attention(inputs, use_causal_mask=True).shape
        (None, None, 64)
        >>> block = layers.TransformerDecoder(256, num_heads=8, attention=attention)

    Reference:
        Katharopoulos et al. 2020, "Transformers are RNNs: Fast Autoregressive
        Transformers with Linear Attention" (https://arxiv.org/abs/2006.16236).
    """

    def __init__(
        self,
        num_heads: int,
        key_dim: int | None = None,
        value_dim: int | None = None,
        feature_map: str = "elu",
        use_bias: bool = True,
        *,
        output_shape: int | None = None,
        kernel_initializer: InitializerLike = "glorot_uniform",
        bias_initializer: InitializerLike = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        branch_gain: float = 1.0,
        qkv_gain: float = 1.0,
        output_gain: float = 1.0,
        **kwargs: Any,
    ) -> None:
        arguments.refuse_unsupported(type(self), kwargs, _ALTERNATIVES)
        super().__init__(**kwargs)
        self.num_heads = arguments.positive_int("num_heads", num_heads)
        self.key_dim = arguments.positive_int("key_dim", key_dim, optional=True)
        self.value_dim = arguments.positive_int("value_dim", value_dim, optional=True)
        feature_function(feature_map)
        self.feature_map = feature_map
        self.use_bias = use_bias
        self.use_output_bias = None
        self.output_shape = arguments.positive_int(
            "output_shape", output_shape, optional=True
        )
        arguments.set_weight_options(
            self,
            kernel_initializer,
            bias_initializer,
            kernel_regularizer,
            bias_regularizer,
            kernel_constraint,
            bias_constraint,
        )
        self.branch_gain = arguments.gain("branch_gain", branch_gain)
        self.qkv_gain = arguments.gain("qkv_gain", qkv_gain)
        self.output_gain = arguments.gain("output_gain", output_gain)
        self.supports_masking = True

    @property
    def head_dims(self) -> tuple[int, int]:
        """Sizes H and V of a key head and of a value head, once the layer is built."""
        return self._projections.key_dim, self._projections.value_dim

    def build(self, inputs_shape: Shape) -> None:
        check_shapes(inputs_shape, inputs_shape, inputs_shape)
        shapes = [inputs_shape] * 3
        self._projections = build_projections(
            self, *shapes, num_key_value_heads=self.num_heads
        )
        self._projection_layers = self._projections.layers()  # Keras tracks this list.

    def call(
        self,
        inputs: Tensor,
        padding_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        use_causal_mask: bool = False,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Any:
        padding_mask = self._padding_mask(inputs, padding_mask, attention_mask)
        query, key, value = self._project(inputs)
        options: dict[str, Any] = {
            "padding_mask": padding_mask,
            "causal": use_causal_mask,
            "feature_map": self.feature_map,
        }
        heads = linear_attention(query, key, value, **options)
        output = self._projections.output(apply_head_gates(heads, self))
        if not return_attention_scores:
            return output
        weights = linear_attention_weights(query, key, **options)
        return output, ops.cast(weights, self.compute_dtype)

    def _project(self, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        projections = self._projections
        return (
            projections.query(inputs),
            projections.key(inputs),
            projections.value(inputs),
        )

    def _padding_mask(
        self, inputs: Tensor, padding_mask: Tensor | None, attention_mask: Any
    ) -> Tensor | None:
        """Return the padding mask of a call, which may be the implicit one."""
        self._check_masks(inputs, padding_mask, attention_mask)
        return implicit_mask(inputs) if padding_mask is None else padding_mask

    def _check_masks(
        self, inputs: Tensor, padding_mask: Tensor | None, attention_mask: Any
    ) -> None:
        if attention_mask is not None:
            raise ValueError(
                f"Layer '{self.name}' supports only padding and causal masks: it "
                "computes sums over all keys, and no single attention weight. "
                "Received: attention_mask of shape "
                f"{tuple(getattr(attention_mask, 'shape', ()))}"
            )
        masks.check(padding_mask, num_keys=inputs.shape[1])

    def cache_spec(
        self, batch_size: int, max_length: int, inputs: Collection[str]
    ) -> dict[str, keras.KerasTensor]:
        """Return shapes and dtypes of the state; see `decoding.CachedLayer`.

        The state does not grow with the length: it holds the sums, over the tokens so
        far, of features times values and of features.
        """
        key_dim, value_dim = self.head_dims
        shape = (batch_size, self.num_heads, key_dim)
        return {
            "state": keras.KerasTensor((*shape, value_dim), dtype="float32"),
            "normalizer": keras.KerasTensor(shape, dtype="float32"),
        }

    def cached_call(
        self, inputs: Mapping[str, Any], cache: Mapping[str, Tensor], index: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Apply the layer to new positions; see `decoding.CachedLayer`."""
        require_causal_mask(self, inputs.get("use_causal_mask", False))
        x = inputs["inputs"]
        heads, state, normalizer = linear_attention_step(
            cache["state"],
            cache["normalizer"],
            *self._project(x),
            padding_mask=self._padding_mask(
                x, inputs.get("padding_mask"), inputs.get("attention_mask")
            ),
            feature_map=self.feature_map,
        )
        output = self._projections.output(apply_head_gates(heads, self))
        return output, {"state": state, "normalizer": normalizer}

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
    ) -> Any:
        self._check_masks(inputs, padding_mask, attention_mask)
        shape = self.compute_output_shape(tuple(inputs.shape))
        output = keras.KerasTensor(shape, dtype=self.compute_dtype)
        if not return_attention_scores:
            return output
        batch, length = inputs.shape[:2]
        shape = (batch, self.num_heads, length, length)
        return output, keras.KerasTensor(shape, dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            **arguments.serialize_weight_options(self),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "feature_map": self.feature_map,
            "use_bias": self.use_bias,
            "output_shape": self.output_shape,
            "branch_gain": self.branch_gain,
            "qkv_gain": self.qkv_gain,
            "output_gain": self.output_gain,
        }

    def get_build_config(self) -> dict[str, Any] | None:
        return add_trainable_state(self, super().get_build_config())

    def build_from_config(self, config: dict[str, Any]) -> None:
        super().build_from_config(config)
        restore_trainable_state(self, config)
