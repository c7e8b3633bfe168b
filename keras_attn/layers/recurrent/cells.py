"""The recurrent cells and layers of Keras that the recurrent models stack."""

import keras

from keras_attn.layers._internal import arguments

__all__ = ["CELLS", "check_cell", "make_cell", "make_layer", "states_per_cell"]

CELLS = {
    "gru": (keras.layers.GRUCell, keras.layers.GRU, 1),
    "lstm": (keras.layers.LSTMCell, keras.layers.LSTM, 2),
}


def check_cell(cell):
    """`cell`, one of the names in `CELLS`; a clear error where it is not."""
    if cell not in CELLS:
        raise ValueError(f"`cell` must be one of {tuple(CELLS)}. Received: {cell=}")
    return cell


def states_per_cell(cell):
    """How many state tensors a cell has."""
    return CELLS[cell][2]


def make_cell(owner, units, name):
    """A stock cell with `owner`'s initializers and dtype."""
    return CELLS[owner.cell][0](units, **_options(owner), name=name)


def make_layer(owner, units, name):
    """A stock layer likewise, which gives its sequence and its last states."""
    return CELLS[owner.cell][1](
        units,
        **_options(owner),
        return_sequences=True,
        return_state=True,
        zero_output_for_mask=True,
        name=name,
    )


def _options(owner):
    return {
        "kernel_initializer": arguments.clone_initializer(owner.kernel_initializer),
        "recurrent_initializer": arguments.clone_initializer(
            owner.recurrent_initializer
        ),
        "dtype": owner.dtype_policy,
    }
