"""The small layers that stand in a step model where the graph is changed.

A wrapper is needed because the Functional constructor takes the number of a layer's
outputs from its first call: a layer called once with one output and once with more
makes it fail. Weights stay those of the wrapped layer.
"""

import inspect

import keras
from keras import ops

__all__ = ["Beside", "CachedCall", "ProjectContext", "WithMask"]


class Beside(keras.layers.Layer):
    """The part of a fixed tensor that stands at the positions of a step's tokens.

    Its input is a dict of the `"tensor"` `(B, L, ...)`, the `"tokens"` `(B, T)` and the
    `"index"` of the first of them; its output `(B, T, ...)`.
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.built = True

    def call(self, inputs):
        length = inputs["tokens"].shape[1]  # where known, for XLA
        if length is None:
            length = ops.shape(inputs["tokens"])[1]
        positions = inputs["index"] + ops.arange(length, dtype="int32")
        return ops.take(inputs["tensor"], positions, axis=1)

    def compute_mask(self, inputs, previous_mask):
        return None

    def compute_output_spec(self, inputs):
        tensor = inputs["tensor"]
        shape = (tensor.shape[0], inputs["tokens"].shape[1], *tensor.shape[2:])
        return keras.KerasTensor(shape, dtype=tensor.dtype)


class CachedCall(keras.layers.Layer):
    """Calls `layer.cached_call` in place of `layer`.

    Args:
        layer: a layer that has `cached_call`.
        options: its call arguments that are no tensors.
        output: `keras.KerasTensor`, its output in the full model.
    """

    def __init__(self, layer, options, output, **kwargs):
        super().__init__(dtype=layer.dtype_policy, **kwargs)
        self.layer = layer
        self.options = options
        self.output_like = (output.shape, output.dtype)
        self.first_argument = next(iter(inspect.signature(layer.call).parameters))
        self.supports_masking = True
        self.built = True

    def call(self, inputs):
        try:
            outputs, cache = self.layer.cached_call(
                **inputs["arguments"],
                **self.options,
                **({"context": inputs["context"]} if "context" in inputs else {}),
                cache=inputs.get("cache", {}),
                index=inputs["index"],
            )
        except ValueError as error:
            raise ValueError(
                f"Layer '{self.layer.name}' cannot work on one token at a time: {error}"
            ) from error
        return {"outputs": outputs, "cache": cache}

    def compute_mask(self, inputs, previous_mask):
        # As of the layer itself: the mask of its first argument goes on.
        mask = self.layer.compute_mask(
            inputs["arguments"][self.first_argument],
            previous_mask["arguments"][self.first_argument],
        )
        return {"outputs": mask, "cache": dict.fromkeys(inputs.get("cache", {}))}

    def compute_output_spec(self, inputs):
        shape, dtype = self.output_like
        shape = (shape[0], None, *shape[2:])
        return {
            "outputs": keras.KerasTensor(shape, dtype=dtype),
            "cache": {
                name: keras.KerasTensor(leaf.shape, dtype=leaf.dtype)
                for name, leaf in inputs.get("cache", {}).items()
            },
        }


class ProjectContext(keras.layers.Layer):
    """Calls `layer.project_context`, once for all decoding steps.

    Its input is a dict of what the layer's call takes as context, and of the context's
    `"padding_mask"` where it has one.
    """

    def __init__(self, layer, **kwargs):
        super().__init__(dtype=layer.dtype_policy, **kwargs)
        self.layer = layer
        self.supports_masking = True
        self.built = True

    def call(self, inputs):
        return self.layer.project_context(**inputs)

    def compute_mask(self, inputs, previous_mask):
        return None


class WithMask(keras.layers.Layer):
    """Hangs a mask on a tensor, as the implicit mask of the layers that follow."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.built = True

    def call(self, inputs):
        # A new tensor: the mask must not appear on the caller's.
        return ops.copy(inputs["tensor"])

    def compute_mask(self, inputs, previous_mask):
        return inputs["mask"]

    def compute_output_spec(self, inputs):
        tensor = inputs["tensor"]
        return keras.KerasTensor(tensor.shape, dtype=tensor.dtype)
