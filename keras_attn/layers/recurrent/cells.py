"""Recurrent cells: those of Keras by name, and the stack of cells of the decoder."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from keras_attn._types import Shape, Tensor
from keras_attn.layers._internal import arguments

__all__ = [
    "CELLS",
    "DecoderCell",
    "check_cell",
    "make_layer",
    "num_states",
    "run_cell",
]

CELLS = {
    "gru": (keras.layers.GRUCell, keras.layers.GRU, 1),
    "lstm": (keras.layers.LSTMCell, keras.layers.LSTM, 2),
}


def check_cell(cell: str) -> str:
    """Return `cell`; raise a ValueError if it is not a name in `CELLS`."""
    if cell not in CELLS:
        raise ValueError(f"`cell` must be one of {tuple(CELLS)}. Received: {cell=}")
    return cell


def num_states(cell: str) -> int:
    """Return the number of state tensors of a cell."""
    return CELLS[cell][2]


def make_layer(owner: Any, units: int, name: str) -> keras.layers.Layer:
    """Return a recurrent layer of Keras that returns its sequence and its last states.

    Args:
        owner: the layer of keras_attn that sets cell, initializers and dtype.
        units: int.
        name: str.
    """
    return CELLS[owner.cell][1](
        units,
        **_options(owner),
        return_sequences=True,
        return_state=True,
        zero_output_for_mask=True,
        name=name,
    )


def _options(owner: Any) -> dict[str, Any]:
    return {
        "kernel_initializer": arguments.clone_initializer(owner.kernel_initializer),
        "recurrent_initializer": arguments.clone_initializer(
            owner.recurrent_initializer
        ),
        "dtype": owner.dtype_policy,
    }


class DecoderCell(keras.layers.Layer):
    """The stacked cells of a `RecurrentDecoder`.

    With input feeding, the attentional output of a step is a state: the next step
    concatenates it to its input. The output is then the concatenation of the hidden
    state and the attentional output.

    Args:
        decoder: the `RecurrentDecoder`, for its sizes.
        **kwargs: arguments of `keras.layers.Layer`.
    """

    def __init__(self, decoder: Any, **kwargs: Any) -> None:
        super().__init__(dtype=decoder.dtype_policy, **kwargs)
        self.units: int = decoder.units
        self.residual: bool = decoder.residual
        self.feeds_attention: bool = decoder.feeds_attention
        self.cells: list[Any] = [
            CELLS[decoder.cell][0](self.units, **_options(decoder), name=f"cell{i}")
            for i in range(decoder.num_layers)
        ]
        self.state_size: list[int] = [
            size for cell in self.cells for size in _sizes(cell.state_size)
        ]
        if self.feeds_attention:
            self.state_size.append(self.units)
        self.output_size: int = self.units * (2 if self.feeds_attention else 1)

    def build(self, inputs_shape: Shape) -> None:
        self.input_widths: list[int] = []
        width = (inputs_shape[-1] or 0) + (self.units if self.feeds_attention else 0)
        for cell in self.cells:
            cell.build((inputs_shape[0], width))
            self.input_widths.append(width)
            width = self.units

    def call(
        self,
        inputs: Tensor,
        states: Sequence[Tensor],
        attend: Callable[[Tensor], Tensor],
        dropout_masks: Sequence[Tensor] | None,
    ) -> tuple[Tensor, list[Tensor]]:
        """Compute one step; see `run_cell` for the arguments."""
        remaining, new_states, x = list(states), [], inputs
        if self.feeds_attention:
            x = ops.concatenate([x, remaining.pop()], axis=-1)
        for i, cell in enumerate(self.cells):
            if dropout_masks is not None:
                x = x * dropout_masks[i]
            cell_states = [remaining.pop(0) for _ in _sizes(cell.state_size)]
            output, new = cell(x, cell_states)
            x = x + output if self.residual and i else output
            new_states += keras.tree.flatten(new)
        if not self.feeds_attention:
            return x, new_states
        attended = ops.squeeze(attend(ops.expand_dims(x, 1)), axis=1)
        return ops.concatenate([x, attended], axis=-1), [*new_states, attended]


def run_cell(
    cell: DecoderCell,
    sequence: Tensor,
    states: Sequence[Tensor],
    padding_mask: Tensor | None,
    attend: Callable[[Tensor], Tensor],
    dropout_masks: Sequence[Tensor] | None,
) -> tuple[Tensor, list[Tensor]]:
    """Run a `DecoderCell` over a sequence.

    Args:
        cell: the cell, built.
        sequence: `(B, T, D)`.
        states: tensors of the sizes of `cell.state_size`.
        padding_mask: bool `(B, T)` or None.
        attend: a function from the hidden state `(B, 1, units)` to the attentional
            output that is fed to the next step.
        dropout_masks: factors `(B, width)` of the inputs of the cells, the same for
            all steps; or None.

    Returns:
        A tuple of the outputs `(B, T, cell.output_size)` and the last states.
    """
    loop = keras.layers.RNN(
        _Step(cell, attend, dropout_masks),
        return_sequences=True,
        return_state=True,
        zero_output_for_mask=True,
        dtype=cell.dtype_policy,
        name="steps",
    )
    outputs, *states = loop(sequence, initial_state=list(states), mask=padding_mask)
    return outputs, states


class _Step:
    """A `DecoderCell` as a cell of `keras.layers.RNN`.

    `attend` and `dropout_masks` are constants of the loop. As states of the cell they
    would be copied at each step.
    """

    def __init__(
        self,
        cell: DecoderCell,
        attend: Callable[[Tensor], Tensor],
        dropout_masks: Sequence[Tensor] | None,
    ) -> None:
        self._cell, self._attend, self._dropout_masks = cell, attend, dropout_masks
        self.state_size, self.output_size = cell.state_size, cell.output_size
        self.compute_dtype = cell.compute_dtype

    def call(
        self, inputs: Tensor, states: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        return self._cell.call(inputs, states, self._attend, self._dropout_masks)

    __call__ = call


def _sizes(state_size: Any) -> list[int]:
    return list(state_size) if isinstance(state_size, (list, tuple)) else [state_size]
