"""The protocol of layers that take part in step-by-step decoding."""

from collections.abc import Collection, Mapping
from typing import Any, Protocol, runtime_checkable

import keras

from keras_attn._types import Tensor

__all__ = ["CachedLayer", "ContextLayer"]


@runtime_checkable
class CachedLayer(Protocol):
    """A layer that can compute its output for new positions from a cache.

    `decoding.step_model` recognizes such a layer by `isinstance`. Its cache holds all
    that it needs of the positions before: keys and values of a self-attention, the
    states of a recurrent layer.

    `inputs` of both methods are the arguments of the layer's `call` by name, without
    `training`; tensors hold the new positions only. If arguments of a `ContextLayer`
    are fixed, `inputs["projected_context"]` holds the value of `project_context`.
    """

    def cache_spec(
        self, batch_size: int, max_length: int, inputs: Collection[str]
    ) -> dict[str, keras.KerasTensor]:
        """Return shapes and dtypes of the cache.

        Args:
            batch_size: int.
            max_length: int, the largest number of positions.
            inputs: names of the arguments that `cached_call` will be given.

        Returns:
            A dict of `keras.KerasTensor`s. The first axis of each is the batch, or a
            multiple of it (several entries in a row for each batch element). The
            initial cache is all zeros. An empty dict: the layer needs no cache.
        """
        ...

    def cached_call(
        self, inputs: Mapping[str, Any], cache: Mapping[str, Tensor], index: Tensor
    ) -> tuple[Any, dict[str, Tensor]]:
        """Apply the layer to new positions.

        Args:
            inputs: arguments of `call`, see above.
            cache: dict of tensors, as `cache_spec` describes it.
            index: int32 scalar tensor, position of the first new token.

        Returns:
            A tuple `(outputs, cache)`: the outputs of `call` at the new positions, and
            the updated cache.

        Raises:
            ValueError: if the layer cannot work position by position with these
                arguments.
        """
        ...


@runtime_checkable
class ContextLayer(CachedLayer, Protocol):
    """A `CachedLayer` that can attend to a fixed context, such as an encoder output.

    Attributes:
        context_arguments: names of the arguments of `call` that may be a context.
        context_masks: names of the arguments of `call` that mask the context. The first
            one receives the implicit mask of the context if none is given.
    """

    context_arguments: tuple[str, ...]
    context_masks: tuple[str, ...]

    def project_context(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Compute the tensors of a context that all decoding steps share.

        Args:
            inputs: the fixed arguments among `context_arguments` and `context_masks`.

        Returns:
            A dict of tensors, `inputs["projected_context"]` of each step, with the
            batch as the first axis. The batch size of a step may be a multiple of it:
            the beams of a batch element, one after the other, share its context.
        """
        ...
