"""The general multi-head attention layer: queries from one tensor, keys and values
from others."""

import keras

from keras_attn.layers.attention.multi_head_base import MultiHeadBase
from keras_attn.layers.attention.query_value_call import QueryValueCall

__all__ = ["MultiHeadAttention"]


@keras.saving.register_keras_serializable(package="keras_attn")
class MultiHeadAttention(QueryValueCall, MultiHeadBase):
    """Multi-head attention of `query` over `key` and `value`.

    The projections are `keras.layers.EinsumDense` layers (a subclass that multiplies
    plain matrices) whose weights have the shapes and the order of
    `keras.layers.MultiHeadAttention`'s: weights can be copied either way, and
    `enable_lora` and `quantize` work.

    Args:
        num_heads: int, number of heads N.
        key_dim: int, size of a query or key head. Default: the query's width over
            `num_heads`, which must divide.
        value_dim: int, size of a value head. Default: `key_dim`.
        dropout: float in [0, 1), rate at which attention weights are dropped.
        use_bias: bool, whether the projections have biases.
        output_dim: int, width of the output. Default: the query's width.
        attention_kernel: `"auto"`, `"full"`, `"blockwise"` or `"fused"`, see
            `keras_attn.ops.dot_product_attention`. Where weights are to be returned,
            the full one serves all the same.
        kernel_initializer, bias_initializer: initializers of the projections.
        kernel_regularizer, bias_regularizer: regularizers of the projections.
        kernel_constraint, bias_constraint: constraints of the projections.
        seed: int, seed of the dropout.
        num_key_value_heads: int K, number of heads of keys and values, which divides
            `num_heads`: N / K heads that follow one another share one (grouped
            queries; 1: multi-query). Default: `num_heads`.
        position: a `RotaryPositionEmbedding`, an `AlibiPositionBias`, a
            `RelativePositionBias`, or a list of a rotation and a bias.
        window: int, at least 1: tokens see what is less than so many positions away
            (with a causal mask, themselves and the `window - 1` before, as in Mistral;
            who counts the distance without a causal mask, as ModernBERT, says one
            less). Time and
            memory grow with length times window; a decoding step remembers no more
            than the window.
        num_global_tokens: int, how many of the first tokens all may see, and which see
            all, beside a window. With a causal mask: attention sinks.
        qk_norm: `"rms_norm"`, `"layer_norm"` or a layer to make copies
            of, over the features of each query and key head, before they are rotated.
        scale: float, factor of the scores. Default: `key_dim ** -0.5`.
        logit_soft_cap: float, what scores are bent to stay below, by a tanh.
        use_sinks: bool, whether each head has a learned score for attending to nothing.
        use_gate: bool, whether what is attended to is multiplied by a sigmoid
            of a projection of the query, feature by feature.
        use_output_bias: bool, whether the output projection has a bias. Default:
            `use_bias`.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Raises:
        ValueError: for a size that is not a positive int, a rate outside [0, 1), an
            unknown kernel, heads that groups do not divide, a window below one, two
            position objects that exclude each other and, in `build`, a width that the
            heads do not divide.

    Call arguments:
        query: `(B, T, D)` floats.
        value: `(B, S, D')` floats.
        key: `(B, S, D'')` floats. Default: `value`.
        padding_mask: bool `(B, S)`, True = a real token of `value`. Takes the place
            of the implicit Keras mask of `value`.
        attention_mask: bool `(B, T, S)` or `(B, N, T, S)`, True = may attend; joined
            with the padding mask.
        use_causal_mask: bool, whether query `i` sees keys `j <= i` only.
        return_attention_scores: bool, whether to return the weights as well.
        training: bool, whether dropout is on.

    Returns:
        `(B, T, output_dim)`, or a pair of it and the weights `(B, N, T, S)`.

    Example:
        >>> layer = MultiHeadAttention(num_heads=4)
        >>> layer(keras.ops.ones((2, 5, 16)), keras.ops.ones((2, 7, 16))).shape
        (2, 5, 16)

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.2.2
        (https://arxiv.org/abs/1706.03762). Grouped queries: Ainslie et al. 2023
        (https://arxiv.org/abs/2305.13245). Normalized queries and keys: Henry et al.
        2020 (https://arxiv.org/abs/2010.04245). Soft cap: Gemma 2
        (https://arxiv.org/abs/2408.00118). Sinks: gpt-oss
        (https://arxiv.org/abs/2508.10925). Gate: Qiu et al. 2025
        (https://arxiv.org/abs/2505.06708).
    """
