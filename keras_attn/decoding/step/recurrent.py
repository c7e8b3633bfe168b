"""Stock recurrent layers of Keras, stepped with their state as the cache."""

import keras
from keras import ops

__all__ = ["RecurrentStep", "has_step", "steppable"]


def has_step(layer):
    """Whether `layer` may have a decoding step of its own, see `steppable`."""
    return hasattr(layer, "cached_call") or isinstance(layer, keras.layers.RNN)


def steppable(layer):
    """What can do a decoding step in place of `layer`.

    Returns:
        `layer` itself where it has `cached_call`; for a recurrent layer of Keras a
        `RecurrentStep`; else None.
    """
    if hasattr(layer, "cached_call"):
        return layer
    if isinstance(layer, keras.layers.RNN):
        return RecurrentStep(layer)
    return None


class RecurrentStep(keras.layers.Layer):
    """One step, or a run of them, of a GRU, LSTM, SimpleRNN or RNN layer.

    The same cell, so the same weights, in a layer that also returns its state.

    Args:
        layer: a built `keras.layers.RNN` over the target, from its first token to
            its last, with `return_sequences=True`.

    Raises:
        ValueError: for a layer that goes backwards or keeps a state of its own, or
            gives its last output only.
    """

    def __init__(self, layer):
        super().__init__(dtype=layer.dtype_policy, name=layer.name)
        for name, wanted in (
            ("return_sequences", True),
            ("return_state", False),
            ("go_backwards", False),
            ("stateful", False),
        ):
            if getattr(layer, name) != wanted:
                raise ValueError(
                    f"a recurrent layer over the target needs {name}={wanted}. "
                    f"Received: {name}={getattr(layer, name)}"
                )
        self.layer = layer
        self.run = keras.layers.RNN(
            layer.cell,
            return_sequences=True,
            return_state=True,
            zero_output_for_mask=layer.zero_output_for_mask,
            dtype=layer.dtype_policy,
        )
        self.supports_masking = True
        self.built = True

    def call(self, sequences, initial_state=None, mask=None):
        return self.layer(sequences, initial_state=initial_state, mask=mask)

    def compute_mask(self, sequences, previous_mask):
        return self.layer.compute_mask(sequences, previous_mask)

    def cache_spec(self, batch_size, max_length, has_context=False):
        """The cell's states, and the output that a masked step repeats."""
        sizes = keras.tree.flatten(self.layer.cell.state_size)
        sizes = [*sizes, self.layer.cell.output_size]
        return {
            f"state_{i:02}": keras.KerasTensor((batch_size, size), self.compute_dtype)
            for i, size in enumerate(sizes)
        }

    def cached_call(self, sequences, initial_state=None, mask=None, *, cache, index):
        """See `MultiHeadAttention.cached_call`."""
        *states, last = (cache[name] for name in sorted(cache))
        if initial_state is not None:
            given = keras.tree.flatten(initial_state)
            first = ops.equal(index, 0)
            states = [ops.where(first, g, s) for g, s in zip(given, states)]
        # Nested as the layer nests its own: Keras finds the last output in there.
        structure = _plain(self.run.get_initial_state(batch_size=1))
        states = keras.tree.pack_sequence_as(structure, states)
        outputs, *states = self.run(
            sequences,
            initial_state=states,
            mask=mask,
        )
        if mask is not None and not self.layer.zero_output_for_mask:
            # Up to its first real token this run repeats the last one's output.
            begun = ops.cumsum(ops.cast(mask, "int32"), axis=1) > 0
            outputs = ops.where(
                ops.expand_dims(begun, -1), outputs, ops.expand_dims(last, 1)
            )
        leaves = [*keras.tree.flatten(states), outputs[:, -1]]
        return outputs, {f"state_{i:02}": leaf for i, leaf in enumerate(leaves)}


def _plain(structure):
    """Nested lists for the tracked ones of Keras, which JAX cannot take apart."""
    if not keras.tree.is_nested(structure):
        return structure
    return [_plain(part) for part in structure]
