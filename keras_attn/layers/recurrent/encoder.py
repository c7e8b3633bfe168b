"""The recurrent encoder: a stack of GRU or LSTM layers."""

from typing import Any

import keras
from keras import initializers, ops

from keras_attn._keras_internals import implicit_mask
from keras_attn._types import InitializerLike, Shape, Tensor
from keras_attn.layers._internal import arguments
from keras_attn.layers._internal.trainable_state import (
    add_trainable_state,
    restore_trainable_state,
)
from keras_attn.layers.recurrent.cells import check_cell, make_layer, num_states

__all__ = ["RecurrentEncoder"]


@keras.saving.register_keras_serializable(package="keras_attn")
class RecurrentEncoder(keras.layers.Layer):
    """Stacked GRU or LSTM layers over a sequence, in one direction or both.

    Returns a vector per position, for attention, and the last states as one vector,
    for the initial state of a decoder.

    Padding is skipped: outputs are zero there, and the states are those at the last
    real token. If all tokens are padding, they are zero.

    Args:
        units: int, width of the output. In bidirectional layers each direction has half
            of it.
        num_layers: int, number of layers.
        cell: `"gru"` or `"lstm"`.
        bidirectional: bool, whether each layer runs in both directions.
        residual: bool, whether layers after the first add their input to their output.
        dropout: float in [0, 1), dropout rate of the input of each layer.
        kernel_initializer, recurrent_initializer: initializers of the cells.
        seed: int, seed of the dropout.
        **kwargs: `name`, `dtype` and `trainable` of `keras.layers.Layer`.

    Raises:
        ValueError: for sizes that are not positive ints, an unknown cell, a rate
            outside [0, 1), or an odd number of units for two directions.

    Call arguments:
        inputs: floats `(B, S, D)`.
        padding_mask: bool `(B, S)`, True = a real token. Replaces the implicit Keras
            mask of `inputs`.
        training: bool, whether dropout is applied.

    Returns:
        A tuple of `(B, S, units)` and the last states of all layers, concatenated:
        `(B, num_layers * units)`, twice as wide for an LSTM, which has two.

    Example:
        >>> import keras
        >>> from keras_attn import layers
        >>> source = keras.Input((None, 32))
        >>> outputs, state = layers.RecurrentEncoder(64, num_layers=2)(source)
        >>> outputs.shape, state.shape
        ((None, None, 64), (None, 128))

    Reference:
        Bahdanau et al. 2014, section 3.2 (https://arxiv.org/abs/1409.0473); Wu et al.
        2016, section 3, for the residual stack (https://arxiv.org/abs/1609.08144).
    """

    def __init__(
        self,
        units: int,
        num_layers: int = 1,
        cell: str = "gru",
        bidirectional: bool = True,
        residual: bool = False,
        *,
        dropout: float = 0.0,
        kernel_initializer: InitializerLike = "glorot_uniform",
        recurrent_initializer: InitializerLike = "orthogonal",
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.units = arguments.positive_int("units", units)
        self.num_layers = arguments.positive_int("num_layers", num_layers)
        self.cell = check_cell(cell)
        self.bidirectional = bidirectional
        self.residual = residual
        self.dropout = arguments.rate("dropout", dropout)
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.recurrent_initializer = initializers.get(recurrent_initializer)
        self.seed = seed
        if bidirectional and units % 2:
            raise ValueError(
                "`units` must be even, half of them for each direction. "
                f"Received: {units=}, {bidirectional=}"
            )
        self.supports_masking = True

    def build(self, inputs_shape: Shape) -> None:
        self._stack: list[keras.layers.Layer] = []
        shape = tuple(inputs_shape)
        for i in range(self.num_layers):
            units = self.units // 2 if self.bidirectional else self.units
            layer = make_layer(self, units, f"layer{i}")
            if self.bidirectional:
                layer = keras.layers.Bidirectional(
                    layer, dtype=self.dtype_policy, name=f"layer{i}"
                )
            layer.build(shape)
            self._stack.append(layer)
            shape = (*shape[:-1], self.units)
        self._dropouts = [
            keras.layers.Dropout(
                self.dropout,
                # With one seed, inputs of the same shape would get the same mask.
                seed=None if self.seed is None else self.seed + i,
                dtype=self.dtype_policy,
                name=f"drop{i}",
            )
            for i in range(self.num_layers)
        ]

    def call(
        self,
        inputs: Tensor,
        padding_mask: Tensor | None = None,
        training: bool | None = None,
    ) -> tuple[Tensor, Tensor]:
        if padding_mask is None:
            padding_mask = implicit_mask(inputs)
        if padding_mask is not None:
            padding_mask = ops.cast(padding_mask, "bool")
        x, states = inputs, []
        for i, (layer, dropout) in enumerate(zip(self._stack, self._dropouts)):
            outputs, *last = layer(dropout(x, training=training), mask=padding_mask)
            x = x + outputs if self.residual and i else outputs
            states += last
        return x, ops.concatenate(states, axis=-1)

    def compute_mask(self, inputs: Tensor, previous_mask: Any) -> tuple[Any, None]:
        return previous_mask, None

    def compute_output_shape(self, inputs_shape: Shape) -> tuple[Shape, Shape]:
        width = self.units * self.num_layers * num_states(self.cell)
        return (*inputs_shape[:2], self.units), (inputs_shape[0], width)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "units": self.units,
            "num_layers": self.num_layers,
            "cell": self.cell,
            "bidirectional": self.bidirectional,
            "residual": self.residual,
            "dropout": self.dropout,
            "kernel_initializer": initializers.serialize(self.kernel_initializer),
            "recurrent_initializer": initializers.serialize(self.recurrent_initializer),
            "seed": self.seed,
        }

    def get_build_config(self) -> dict[str, Any] | None:
        return add_trainable_state(self, super().get_build_config())

    def build_from_config(self, config: dict[str, Any]) -> None:
        super().build_from_config(config)
        restore_trainable_state(self, config)
