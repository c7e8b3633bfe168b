"""Token embedding, and the projection back to the vocabulary."""

import math

import keras
from keras import initializers, ops

from keras_attn.layers._internal import arguments
from keras_attn.ops.concrete import check_ids, concrete
from keras_attn.ops.matmul import rows_by_kernel, rows_by_transposed

__all__ = ["TokenEmbedding"]


@keras.saving.register_keras_serializable(package="keras_attn")
class TokenEmbedding(keras.layers.ReversibleEmbedding):
    """Vectors for token ids and, called with `reverse=True`, logits for vectors.

    Args:
        vocabulary_size: int V, number of token ids.
        hidden_dim: int D, width of a vector.
        scale: bool, whether to multiply the vectors by `sqrt(hidden_dim)`, as the
            paper does where the same matrix projects back.
        padding_id: int, the id that is padding and gives the implicit Keras mask; or
            None for no mask.
        tie_weights: bool, whether `reverse=True` uses the same matrix (transposed) or
            one of its own.
        embeddings_initializer: initializer of the vectors. Default: normal with
            deviation `hidden_dim ** -0.5`, so that logits start near unit size.
        **kwargs: `embeddings_regularizer`, `embeddings_constraint`, `reverse_dtype`,
            `logit_soft_cap` of `keras.layers.ReversibleEmbedding`; `name`, `dtype`,
            `trainable` of `keras.layers.Layer`.

    Call arguments:
        inputs: int `(B, T)` ids; with `reverse=True`, `(B, T, D)` floats.
        reverse: bool.

    Returns:
        `(B, T, D)`; with `reverse=True` `(B, T, V)`.

    Raises:
        ValueError: for a size that is not a positive int, and for an id outside the
            vocabulary where the call is not traced (in a compiled graph, what happens
            then is the backend's matter).

    Example:
        >>> embedding = TokenEmbedding(vocabulary_size=1000, hidden_dim=64, scale=True)
        >>> vectors = embedding(keras.Input((None,), dtype="int32"))
        >>> embedding(vectors, reverse=True).shape
        (None, None, 1000)

    Reference:
        Press and Wolf 2017, "Using the Output Embedding to Improve Language Models"
        (https://arxiv.org/abs/1608.05859).
    """

    def __init__(
        self,
        vocabulary_size,
        hidden_dim,
        scale=False,
        padding_id=0,
        tie_weights=True,
        embeddings_initializer=None,
        **kwargs,
    ):
        self.vocabulary_size = arguments.positive_int(
            "vocabulary_size", vocabulary_size
        )
        self.hidden_dim = arguments.positive_int("hidden_dim", hidden_dim)
        if embeddings_initializer is None:
            embeddings_initializer = initializers.RandomNormal(stddev=hidden_dim**-0.5)
        super().__init__(
            self.vocabulary_size,
            self.hidden_dim,
            tie_weights=tie_weights,
            embeddings_initializer=embeddings_initializer,
            **kwargs,
        )
        self.scale = scale
        self.padding_id = padding_id
        self.supports_masking = True

    def call(self, inputs, reverse=False):
        if not reverse:
            self._check_dtype(inputs)
            # A traced or symbolic tensor has no values to look at.
            values = concrete(inputs)
            if values is not None:
                what = f"Token ids of layer '{self.name}'"
                check_ids(values, self.vocabulary_size, what)
        elif inputs.shape[-2] == 1 and self._has_plain_logits():
            return self._logits_of_a_step(inputs)
        return self._scaled(super().call(inputs, reverse), reverse)

    def _has_plain_logits(self):
        return self.reverse_dtype is None and self.logit_soft_cap is None

    def _logits_of_a_step(self, inputs):
        """As the stock layer's, which transposes the whole matrix at each call."""
        rows = ops.reshape(inputs, (-1, self.hidden_dim))
        if self.tie_weights:
            logits = rows_by_transposed(rows, self.embeddings)
        else:
            logits = rows_by_kernel(rows, self.reverse_embeddings, None, self, 1)
        return ops.reshape(logits, (*ops.shape(inputs)[:-1], self.vocabulary_size))

    def _check_dtype(self, ids):
        if "float" in keras.backend.standardize_dtype(ids.dtype):
            raise ValueError(
                f"Layer '{self.name}' takes ints, as of `keras.Input(shape, "
                f"dtype='int32')`. Received: ids of dtype {ids.dtype}"
            )

    def compute_output_spec(self, inputs, reverse=False):
        if not reverse:
            self._check_dtype(inputs)
        return super().compute_output_spec(inputs, reverse)

    def quantize(self, mode=None, type_check=True, config=None):
        # Keras quantizes no subclass, whose `call` may differ. See `quantized_call`.
        super().quantize(mode, type_check=False, config=config)

    def quantized_call(self, inputs, reverse=False):
        return self._scaled(super().quantized_call(inputs, reverse), reverse)

    def _scaled(self, outputs, reverse):
        if reverse or not self.scale:
            return outputs
        return outputs * math.sqrt(self.hidden_dim)

    def compute_mask(self, inputs, mask=None):
        is_ids = "int" in keras.backend.standardize_dtype(inputs.dtype)
        if not is_ids:
            return mask
        return (
            None if self.padding_id is None else ops.not_equal(inputs, self.padding_id)
        )

    def get_config(self):
        config = super().get_config()
        for name in ("input_dim", "output_dim", "mask_zero"):
            config.pop(name)
        return {
            **config,
            "vocabulary_size": self.vocabulary_size,
            "hidden_dim": self.hidden_dim,
            "scale": self.scale,
            "padding_id": self.padding_id,
        }
