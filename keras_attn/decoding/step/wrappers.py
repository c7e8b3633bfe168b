"""The layers of a step model that replace calls of the training model.

A wrapper is needed because the Functional constructor takes the number of a layer's
outputs from its first call: it fails for a layer that is called once with one output
and once with several. The weights stay those of the wrapped layer.
"""

import inspect
from typing import Any

import keras
from keras import ops

from keras_attn._keras_internals import Untracked
from keras_attn._types import Tensor

__all__ = ["AlignedSlice", "CachedCall", "ProjectContext", "SetMask", "step_error"]


def step_error(layer: Any, reason: Any) -> ValueError:
    """Return the error for a layer of which a step model cannot be made."""
    return ValueError(
        f"Layer '{layer.name}' cannot work on one token at a time: {reason}"
    )


class AlignedSlice(keras.layers.Layer):
    """The slice of an aligned tensor at the positions of a step's tokens.

    The input is a dict of the `"tensor"` `(B, L, ...)`, the `"tokens"` `(B, T)` and the
    `"index"` of the first of them; the output is `(B, T, ...)`.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.built = True

    def call(self, inputs: dict[str, Tensor]) -> Tensor:
        length = inputs["tokens"].shape[1]  # static if possible, for XLA
        if length is None:
            length = ops.shape(inputs["tokens"])[1]
        positions = inputs["index"] + ops.arange(length, dtype="int32")
        return ops.take(inputs["tensor"], positions, axis=1)

    def compute_mask(self, inputs: Any, previous_mask: Any) -> None:
        return None

    def compute_output_spec(self, inputs: dict[str, Any]) -> keras.KerasTensor:
        tensor = inputs["tensor"]
        shape = (tensor.shape[0], inputs["tokens"].shape[1], *tensor.shape[2:])
        return keras.KerasTensor(shape, dtype=tensor.dtype)


class CachedCall(keras.layers.Layer):
    """A call of `layer.cached_call` instead of `layer`.

    Args:
        layer: a `CachedLayer`.
        options: its call arguments that are not tensors.
        output: `keras.KerasTensor`, its output in the training model.
        **kwargs: arguments of `keras.layers.Layer`.
    """

    def __init__(
        self,
        layer: Any,
        options: dict[str, Any],
        output: keras.KerasTensor,
        **kwargs: Any,
    ) -> None:
        super().__init__(dtype=layer.dtype_policy, **kwargs)
        self.layer = layer
        self.options = options
        self.training_output: tuple[Any, Any] = (output.shape, output.dtype)
        self.first_argument: str = next(iter(inspect.signature(layer.call).parameters))
        self.supports_masking = True
        self.built = True

    def __call__(self, inputs: dict[str, Any], **kwargs: Any) -> Any:
        # Keras casts float inputs to the dtype of this wrapper. The cache and context
        # belong to layers inside it, whose dtype may differ, so `call` casts them back.
        stored = {n: x for n, x in inputs.items() if n in ("cache", "context")}
        self._dtypes = Untracked(
            keras.tree.map_structure(
                lambda x: keras.backend.standardize_dtype(x.dtype), stored
            )
        )
        return super().__call__(inputs, **kwargs)

    def call(self, inputs: dict[str, Any]) -> dict[str, Any]:
        arguments = {**inputs["arguments"], **self.options}
        dtypes = self._dtypes.value
        stored = {name: inputs[name] for name in dtypes}
        stored = keras.tree.map_structure(ops.cast, stored, dtypes)
        if "context" in stored:
            arguments["projected_context"] = stored["context"]
        try:
            outputs, cache = self.layer.cached_call(
                arguments, stored.get("cache", {}), inputs["index"]
            )
        except ValueError as error:
            raise step_error(self.layer, error) from error
        return {"outputs": outputs, "cache": cache}

    def compute_mask(
        self, inputs: dict[str, Any], previous_mask: dict[str, Any]
    ) -> dict[str, Any]:
        # As in the layer itself: the mask of its first argument is passed on.
        mask = self.layer.compute_mask(
            inputs["arguments"][self.first_argument],
            previous_mask["arguments"][self.first_argument],
        )
        return {"outputs": mask, "cache": dict.fromkeys(inputs.get("cache", {}))}

    def compute_output_spec(self, inputs: dict[str, Any]) -> dict[str, Any]:
        shape, dtype = self.training_output
        shape = (shape[0], None, *shape[2:])
        return {
            "outputs": keras.KerasTensor(shape, dtype=dtype),
            "cache": {
                name: keras.KerasTensor(leaf.shape, dtype=leaf.dtype)
                for name, leaf in inputs.get("cache", {}).items()
            },
        }


class ProjectContext(keras.layers.Layer):
    """A call of `layer.project_context`, once for all decoding steps.

    The input is a dict of the context arguments of the layer and their masks.
    """

    def __init__(self, layer: Any, **kwargs: Any) -> None:
        super().__init__(dtype=layer.dtype_policy, **kwargs)
        self.layer = layer
        self.supports_masking = True
        self.built = True

    def call(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        return self.layer.project_context(inputs)

    def compute_mask(self, inputs: Any, previous_mask: Any) -> None:
        return None


class SetMask(keras.layers.Layer):
    """Sets a mask as the implicit mask of a tensor, for the layers that follow."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.built = True

    def call(self, inputs: dict[str, Tensor]) -> Tensor:
        # A new tensor: the mask must not be set on the tensor of the caller.
        return ops.copy(inputs["tensor"])

    def compute_mask(self, inputs: dict[str, Tensor], previous_mask: Any) -> Tensor:
        return inputs["mask"]

    def compute_output_spec(self, inputs: dict[str, Any]) -> keras.KerasTensor:
        tensor = inputs["tensor"]
        return keras.KerasTensor(tensor.shape, dtype=tensor.dtype)
