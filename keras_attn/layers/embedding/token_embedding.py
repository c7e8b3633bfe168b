"""Token embedding, and the projection back to the vocabulary."""

import math
from typing import Any

import keras
import numpy as np
from keras import initializers, ops

from keras_attn._keras_internals import set_implicit_mask
from keras_attn._types import InitializerLike, Tensor
from keras_attn.layers._internal import arguments
from keras_attn.ops.matmul import matmul_transposed_weight, matmul_weight
from keras_attn.ops.static_value import check_ids, static_value

__all__ = ["TokenEmbedding"]


@keras.saving.register_keras_serializable(package="keras_attn")
class TokenEmbedding(keras.layers.ReversibleEmbedding):
    """Vectors of token ids and, called with `reverse=True`, logits of vectors.

    Args:
        vocabulary_size: int V, number of token ids.
        hidden_dim: int D, width of a vector.
        scale: bool, whether to multiply the vectors by `sqrt(hidden_dim)`, as the
            paper does if the same matrix projects back.
        padding_id: int, the id of padding, which makes the implicit Keras mask; or None
            for no mask.
        tie_weights: bool, whether `reverse=True` uses the same matrix, transposed, or
            a matrix of its own.
        embeddings_initializer: initializer of the vectors. Default: normal with a
            standard deviation of `hidden_dim ** -0.5`, so that logits are of order one.
        **kwargs: `embeddings_regularizer`, `embeddings_constraint`, `reverse_dtype` and
            `logit_soft_cap` of `keras.layers.ReversibleEmbedding`; `name`, `dtype` and
            `trainable` of `keras.layers.Layer`.

    Call arguments:
        inputs: int `(B, T)` ids; with `reverse=True`, floats `(B, T, D)`.
        reverse: bool.

    Returns:
        `(B, T, D)`; with `reverse=True` `(B, T, V)`.

    Raises:
        ValueError: for a size that is not a positive int, and for an id outside the
            vocabulary in an eager call (in a compiled graph the backend determines the
            result).

    Example:
        >>> import keras
        >>> from keras_attn import layers
        >>> embedding = layers.TokenEmbedding(vocabulary_size=1000, hidden_dim=64)
        >>> vectors = embedding(keras.Input((None,), dtype="int32"))
        >>> embedding(vectors, reverse=True).shape
        (None, None, 1000)

    Reference:
        Press and Wolf 2017, "Using the Output Embedding to Improve Language Models"
        (https://arxiv.org/abs/1608.05859).
    """

    def __init__(
        self,
        vocabulary_size: int,
        hidden_dim: int,
        scale: bool = False,
        padding_id: int | None = 0,
        tie_weights: bool = True,
        embeddings_initializer: InitializerLike | None = None,
        **kwargs: Any,
    ) -> None:
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

    def add_weight(self, *args: Any, **kwargs: Any) -> Any:
        # Keras draws both matrices with one initializer, whose seed gives the same
        # numbers each time.
        if kwargs.get("name") == "reverse_embeddings":
            kwargs["initializer"] = arguments.clone_initializer(kwargs["initializer"])
        return super().add_weight(*args, **kwargs)

    def call(self, inputs: Tensor, reverse: bool = False) -> Tensor:
        if reverse:
            if inputs.shape[-2] == 1 and self._has_plain_logits():
                return self._logits_of_step(inputs)
            return super().call(inputs, reverse)
        arguments.refuse_ragged(f"Token ids of layer '{self.name}'", inputs)
        # A traced or symbolic tensor has no values to check.
        values = static_value(inputs)
        if values is not None:
            check_ids(
                self._as_ints(values),
                self.vocabulary_size,
                f"Token ids of layer '{self.name}'",
            )
        outputs = self._scale_vectors(super().call(inputs), reverse)
        return self._set_mask_of_floats(inputs, outputs)

    def _as_ints(self, ids: np.ndarray) -> np.ndarray:
        """Return concrete ids as ints; raise a ValueError if they are not integers."""
        if ids.dtype.kind != "f":
            return ids
        if (ids != np.floor(ids)).any():
            raise ValueError(
                f"Layer '{self.name}' expects integers, such as those of "
                "`keras.Input(shape, dtype='int32')`. "
                f"Received: ids of dtype {ids.dtype}"
            )
        return ids.astype("int64")

    def _set_mask_of_floats(self, ids: Tensor, outputs: Tensor) -> Tensor:
        """Set the implicit mask of ids of a float dtype, and return the outputs.

        Keras builds models with float placeholders, and then casts ids to floats.
        `compute_mask` cannot distinguish these from vectors.
        """
        is_float = "float" in keras.backend.standardize_dtype(ids.dtype)
        if is_float and self.padding_id is not None:
            set_implicit_mask(outputs, ops.not_equal(ids, self.padding_id))
        return outputs

    def _has_plain_logits(self) -> bool:
        return self.reverse_dtype is None and self.logit_soft_cap is None

    def _logits_of_step(self, inputs: Tensor) -> Tensor:
        """Compute the logits of a decoding step.

        The stock layer computes the same, but transposes the whole matrix at each call.
        """
        rows = ops.reshape(inputs, (-1, self.hidden_dim))
        if self.tie_weights:
            logits = matmul_transposed_weight(rows, self.embeddings)
        else:
            logits = matmul_weight(rows, self.reverse_embeddings, None, self, 1)
        return ops.reshape(logits, (*ops.shape(inputs)[:-1], self.vocabulary_size))

    def compute_output_spec(self, inputs: Any, reverse: bool = False) -> Any:
        outputs = super().compute_output_spec(inputs, reverse)
        return outputs if reverse else self._set_mask_of_floats(inputs, outputs)

    def quantize(
        self, mode: Any = None, type_check: bool = True, config: Any = None
    ) -> None:
        # Keras refuses subclasses, since their `call` may differ. See `quantized_call`.
        super().quantize(mode, type_check=False, config=config)

    def quantized_call(self, inputs: Tensor, reverse: bool = False) -> Tensor:
        return self._scale_vectors(super().quantized_call(inputs, reverse), reverse)

    def _scale_vectors(self, outputs: Tensor, reverse: bool) -> Tensor:
        if reverse or not self.scale:
            return outputs
        return outputs * math.sqrt(self.hidden_dim)

    def compute_mask(self, inputs: Tensor, mask: Tensor | None = None) -> Tensor | None:
        is_ids = "int" in keras.backend.standardize_dtype(inputs.dtype)
        if not is_ids:
            return mask
        return (
            None if self.padding_id is None else ops.not_equal(inputs, self.padding_id)
        )

    def get_config(self) -> dict[str, Any]:
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
