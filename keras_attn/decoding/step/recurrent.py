"""Decoding steps of the recurrent layers of Keras, with their state as the cache."""

from collections.abc import Collection, Mapping
from typing import Any

import keras
from keras import ops

from keras_attn._types import Tensor
from keras_attn.layers._internal.cached_layer import CachedLayer

__all__ = ["CachedRecurrentLayer", "as_cached_layer", "is_cached"]


def is_cached(layer: Any) -> bool:
    """Return whether `as_cached_layer` supports a layer."""
    return isinstance(layer, (CachedLayer, keras.layers.RNN))


def as_cached_layer(layer: Any) -> Any:
    """Return the `CachedLayer` that performs the decoding steps of a layer.

    Returns:
        `layer` itself if it is a `CachedLayer`; for a recurrent layer of Keras a
        `CachedRecurrentLayer`; otherwise None.
    """
    if isinstance(layer, CachedLayer):
        return layer
    if isinstance(layer, keras.layers.RNN):
        return CachedRecurrentLayer(layer)
    return None


class CachedRecurrentLayer(keras.layers.Layer):
    """A GRU, LSTM, SimpleRNN or RNN layer as a `CachedLayer`.

    It runs the same cell, and so the same weights, in a layer that returns its state.

    Args:
        layer: a built `keras.layers.RNN` over the target, from the first token to the
            last, with `return_sequences=True`.

    Raises:
        ValueError: for a layer that runs backwards, is stateful, or returns only its
            last output or its state.
    """

    def __init__(self, layer: Any) -> None:
        super().__init__(dtype=layer.dtype_policy, name=layer.name)
        for name, expected in (
            ("return_sequences", True),
            ("return_state", False),
            ("go_backwards", False),
            ("stateful", False),
        ):
            if getattr(layer, name) != expected:
                raise ValueError(
                    f"a recurrent layer over the target must have {name}={expected}. "
                    f"Received: {name}={getattr(layer, name)}"
                )
        self.layer = layer
        self.with_state: Any = keras.layers.RNN(
            layer.cell,
            return_sequences=True,
            return_state=True,
            zero_output_for_mask=layer.zero_output_for_mask,
            dtype=layer.dtype_policy,
        )
        self.supports_masking = True
        self.built = True

    def call(
        self,
        sequences: Tensor,
        initial_state: Any = None,
        mask: Tensor | None = None,
    ) -> Any:
        return self.layer(sequences, initial_state=initial_state, mask=mask)

    def compute_mask(self, sequences: Tensor, previous_mask: Any) -> Any:
        return self.layer.compute_mask(sequences, previous_mask)

    def cache_spec(
        self, batch_size: int, max_length: int, inputs: Collection[str]
    ) -> dict[str, keras.KerasTensor]:
        """Return the states of the cell, and the output that masked steps repeat."""
        sizes = keras.tree.flatten(self.layer.cell.state_size)
        sizes = [*sizes, self.layer.cell.output_size]
        return {
            f"state_{i:02}": keras.KerasTensor((batch_size, size), self.compute_dtype)
            for i, size in enumerate(sizes)
        }

    def cached_call(
        self, inputs: Mapping[str, Any], cache: Mapping[str, Tensor], index: Tensor
    ) -> tuple[Any, dict[str, Tensor]]:
        """Apply the layer to new positions; see `CachedLayer`."""
        *states, last = (cache[name] for name in sorted(cache))
        initial_state, mask = inputs.get("initial_state"), inputs.get("mask")
        if initial_state is not None:
            initial = keras.tree.flatten(initial_state)
            is_first = ops.equal(index, 0)
            states = [ops.where(is_first, i, s) for i, s in zip(initial, states)]
        # In the layer's own structure: Keras finds the last output inside of it.
        structure = _as_lists(self.with_state.get_initial_state(batch_size=1))
        states = keras.tree.pack_sequence_as(structure, states)
        outputs, *states = self.with_state(
            inputs["sequences"], initial_state=states, mask=mask
        )
        if mask is not None and not self.layer.zero_output_for_mask:
            # Before its first real token a run repeats the output of the previous one.
            has_begun = ops.cumsum(ops.cast(mask, "int32"), axis=1) > 0
            outputs = ops.where(
                ops.expand_dims(has_begun, -1), outputs, ops.expand_dims(last, 1)
            )
        leaves = [*keras.tree.flatten(states), outputs[:, -1]]
        return outputs, {f"state_{i:02}": leaf for i, leaf in enumerate(leaves)}


def _as_lists(structure: Any) -> Any:
    """Return plain nested lists for Keras's tracked ones, which JAX cannot flatten."""
    if not keras.tree.is_nested(structure):
        return structure
    return [_as_lists(part) for part in structure]
