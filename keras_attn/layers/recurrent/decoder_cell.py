"""The steps of the recurrent decoder: stacked cells, and attention where it is fed."""

import keras
from keras import ops

from keras_attn.layers.recurrent.cells import make_cell

__all__ = ["DecoderRun"]


class DecoderRun(keras.layers.RNN):
    """The loop over the steps of a `RecurrentDecoder`."""

    def __init__(self, decoder, **kwargs):
        super().__init__(
            DecoderCell(decoder, name="cell"),
            return_sequences=True,
            return_state=True,
            zero_output_for_mask=True,
            dtype=decoder.dtype_policy,
            **kwargs,
        )

    def steps(self, sequence, states, padding_mask, attend, drops):
        """Outputs and last states.

        Args:
            sequence: `(B, T, D)`.
            states: list of tensors, as the cell's `state_size` says.
            padding_mask: bool `(B, T)` or None.
            attend: a function from the hidden state `(B, 1, units)` to what is fed.
            drops: list of `(B, width)` factors for the inputs of the cells, the same
                for all steps; or None.
        """
        self.cell.attend, self.cell.drops = attend, drops
        try:
            return self(sequence, initial_state=states, mask=padding_mask)
        finally:
            self.cell.attend = self.cell.drops = None


class DecoderCell(keras.layers.Layer):
    """A cell for `keras.layers.RNN`: the cells of a `RecurrentDecoder` on one another.

    With input feeding, what a step attended to is a state: the next step takes it
    beside its own input. Outputs are then the hidden state and the attended one, side
    by side.

    Args:
        decoder: the `RecurrentDecoder`, for its sizes.

    Attributes:
        attend, drops: see `DecoderRun.steps`, which sets them for the time of a call.
            They stay outside the loop, which would keep a copy of them for each step
            if they were states.
    """

    def __init__(self, decoder, **kwargs):
        super().__init__(dtype=decoder.dtype_policy, **kwargs)
        self.units = decoder.units
        self.residual = decoder.residual
        self.feeds = decoder.feeds
        self.cells = [
            make_cell(decoder, decoder.units, f"cell{i}")
            for i in range(decoder.num_layers)
        ]
        self.state_size = [
            size for cell in self.cells for size in _sizes(cell.state_size)
        ]
        if self.feeds:
            self.state_size.append(self.units)
        self.output_size = self.units * (2 if self.feeds else 1)
        self.attend = self.drops = None

    def build(self, inputs_shape):
        self.input_widths = []
        width = inputs_shape[-1] + (self.units if self.feeds else 0)
        for cell in self.cells:
            cell.build((inputs_shape[0], width))
            self.input_widths.append(width)
            width = self.units

    def call(self, inputs, states):
        states, new_states, x = list(states), [], inputs
        if self.feeds:
            x = ops.concatenate([x, states.pop()], axis=-1)
        for i, cell in enumerate(self.cells):
            if self.drops is not None:
                x = x * self.drops[i]
            own = [states.pop(0) for _ in _sizes(cell.state_size)]
            output, new = cell(x, own)
            x = x + output if self.residual and i else output
            new_states += keras.tree.flatten(new)
        if not self.feeds:
            return x, new_states
        attended = ops.squeeze(self.attend(ops.expand_dims(x, 1)), axis=1)
        return ops.concatenate([x, attended], axis=-1), [*new_states, attended]


def _sizes(state_size):
    return state_size if isinstance(state_size, (list, tuple)) else [state_size]
