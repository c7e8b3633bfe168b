"""The recurrent encoder: a stack of GRU or LSTM layers over the source."""

import keras
from keras import initializers, ops

from keras_attn._keras_internals import implicit_mask
from keras_attn.layers._internal import arguments
from keras_attn.layers._internal.trainable_state import KeepsTraining
from keras_attn.layers.recurrent.cells import check_cell, make_layer, states_per_cell

__all__ = ["RecurrentEncoder"]


@keras.saving.register_keras_serializable(package="keras_attn")
class RecurrentEncoder(KeepsTraining, keras.layers.Layer):
    """Stacked GRU or LSTM layers that read a sequence, one way or both.

    Gives what an attention model looks at, a vector a position, and what a model
    without attention has to make do with, the last states as one vector.

    Padding is skipped: outputs are zero there, and the states are those of the last
    real token. A row that is all padding gives zeros.

    Args:
        units: int, width of the output. Where the layers are bidirectional each
            direction has half of them.
        num_layers: int, number of layers.
        cell: `"gru"` or `"lstm"`.
        bidirectional: bool, whether each layer reads both ways.
        residual: bool, whether layers after the first add their input to their output.
        dropout: float in [0, 1), of the input of each layer.
        kernel_initializer, recurrent_initializer: initializers of the cells.
        seed: int, seed of the dropout.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Raises:
        ValueError: for sizes that are not positive ints, another cell, a rate outside
            [0, 1), or an odd number of units for two directions.

    Call arguments:
        inputs: `(B, S, D)` floats.
        padding_mask: bool `(B, S)`, True = a real token; takes the place of the
            implicit Keras mask of `inputs`.
        training: bool, whether dropout is on.

    Returns:
        A pair: `(B, S, units)`, and the last states of all layers side by side,
        `(B, num_layers * units)`, twice as wide for an LSTM, which has two.

    Example:
        >>> source = keras.Input((None, 32))
        >>> outputs, state = RecurrentEncoder(64, num_layers=2)(source)
        >>> outputs.shape, state.shape
        ((None, None, 64), (None, 128))

    Reference:
        Bahdanau et al. 2014, section 3.2 (https://arxiv.org/abs/1409.0473); Wu et al.
        2016, section 3, for the residual stack (https://arxiv.org/abs/1609.08144).
    """

    def __init__(
        self,
        units,
        num_layers=1,
        cell="gru",
        bidirectional=True,
        residual=False,
        dropout=0.0,
        kernel_initializer="glorot_uniform",
        recurrent_initializer="orthogonal",
        seed=None,
        **kwargs,
    ):
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

    def build(self, inputs_shape):
        self._layers_stacked, shape = [], tuple(inputs_shape)
        for i in range(self.num_layers):
            units = self.units // 2 if self.bidirectional else self.units
            layer = make_layer(self, units, f"layer{i}")
            if self.bidirectional:
                layer = keras.layers.Bidirectional(
                    layer, dtype=self.dtype_policy, name=f"layer{i}"
                )
            layer.build(shape)
            self._layers_stacked.append(layer)
            shape = (*shape[:-1], self.units)
        self._dropouts = [
            keras.layers.Dropout(
                self.dropout, seed=self.seed, dtype=self.dtype_policy, name=f"drop{i}"
            )
            for i in range(self.num_layers)
        ]

    def call(self, inputs, padding_mask=None, training=None):
        if padding_mask is None:
            padding_mask = implicit_mask(inputs)
        if padding_mask is not None:
            padding_mask = ops.cast(padding_mask, "bool")
        x, states = inputs, []
        for i, (layer, dropout) in enumerate(zip(self._layers_stacked, self._dropouts)):
            outputs, *last = layer(dropout(x, training=training), mask=padding_mask)
            x = x + outputs if self.residual and i else outputs
            states += last
        return x, ops.concatenate(states, axis=-1)

    def compute_mask(self, inputs, previous_mask):
        return previous_mask, None

    def compute_output_shape(self, inputs_shape):
        width = self.units * self.num_layers * states_per_cell(self.cell)
        return (*inputs_shape[:2], self.units), (inputs_shape[0], width)

    def get_config(self):
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
