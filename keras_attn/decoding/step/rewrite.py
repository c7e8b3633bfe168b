"""The part of a graph that depends on the target, rebuilt for new tokens."""

from typing import Any

import keras

from keras_attn._graph import functional
from keras_attn._keras_internals import implicit_mask
from keras_attn.decoding.step.aligned_inputs import find_aligned, may_be_aligned
from keras_attn.decoding.step.recurrent import as_cached_layer
from keras_attn.decoding.step.wrappers import (
    AlignedSlice,
    CachedCall,
    ProjectContext,
    SetMask,
    step_error,
)
from keras_attn.layers._internal.cached_layer import ContextLayer

__all__ = ["StepGraph"]


class StepGraph:
    """The graph of a step model: all calls between the target and the logits.

    Args:
        model: a Functional `keras.Model` with one output.
        max_length: int, number of target positions that the cache can hold.
        target: the target input.

    Attributes:
        inputs, outputs: dicts of `keras.KerasTensor`s of the step model.
        frontier: dict of tensors of `model`'s graph that are inputs of the step model.
        contexts: names of those in the frontier that are projected contexts.
        aligned: tensors of `model`'s graph that are read at the positions of the tokens
            only, by their names in the frontier.
        cache_spec: dict, the cache of a batch of one.
        uncached_calls: tuples of a `Call` that is replayed as it is, and the ids of its
            inputs that are aligned with the target.
        dependent: ids of the tensors of `model`'s graph that depend on the target.

    Raises:
        ValueError: names the layer that cannot be replayed.
    """

    def __init__(
        self, model: keras.Model, max_length: int, target: keras.KerasTensor
    ) -> None:
        self.max_length = max_length
        self.frontier: dict[str, Any] = {}
        self.contexts: set[str] = set()
        self.aligned: dict[str, keras.KerasTensor] = {}
        self.cache_spec: dict[str, dict[str, keras.KerasTensor]] = {}
        self.uncached_calls: list[tuple[functional.Call, Any]] = []
        self._model_inputs = {id(tensor) for tensor in model.inputs}
        self._frontier_inputs: dict[str, Any] = {}  # name -> input of the step model
        self._frontier_names: dict[int, str] = {}  # id(tensor) -> name, not of contexts
        self._cache_inputs: dict[str, Any] = {}  # wrapper name -> {leaf: input}
        self._cache_outputs: dict[str, Any] = {}
        self._names = functional.UniqueNames()
        # Names that a layer of the user's model is not likely to have.
        self._tokens = keras.Input((None,), dtype=target.dtype, name="step_tokens")
        self._index = keras.Input(batch_shape=(), dtype="int32", name="step_index")
        # id(tensor of the model) -> tensor of the step model
        self._values: dict[int, Any] = {id(target): self._tokens}
        self._slices: dict[int, Any] = {}  # the same at the positions of the tokens
        self._replay_all(functional.read_graph(model), target)

    def _replay_all(self, graph: functional.Graph, target: keras.KerasTensor) -> None:
        calls, (output,) = graph.calls, graph.outputs
        self.dependent: set[int] = functional.descendants(calls, [target])
        if id(output) not in self.dependent:
            raise ValueError(
                f"The model's output must depend on its input '{target.name}'. "
                f"Received: target={target.name!r}"
            )
        needed = self.dependent & functional.ancestors(calls, [output])
        calls = [c for c in calls if any(id(t) in needed for t in c.outputs)]
        self._aligned_by_call = find_aligned(calls, self.dependent, target)
        for call in calls:
            outputs = keras.tree.flatten(self._replay(call))
            self._values.update(zip(map(id, call.outputs), outputs))
        self.inputs: dict[str, Any] = {
            "step_tokens": self._tokens,
            "step_index": self._index,
        }
        self.outputs: dict[str, Any] = {"logits": self._values[id(output)]}
        if self._frontier_inputs:
            self.inputs["frontier"] = self._frontier_inputs
        if self._cache_inputs:
            self.inputs["cache"] = self._cache_inputs
            self.outputs["cache"] = self._cache_outputs

    def _replay(self, call: functional.Call) -> Any:
        """Return the outputs of a call in the step model."""
        operation: Any = call.operation
        try:
            layer = as_cached_layer(operation)
            if layer is not None:
                return self._replay_cached(layer, call)
            aligned = self._aligned_by_call.get(call, ())
            self.uncached_calls.append((call, aligned))

            def value(tensor: keras.KerasTensor) -> Any:
                if id(tensor) in aligned:
                    return self._slice(tensor)
                return self._value(tensor)

            args, kwargs = functional.map_tensors(value, (call.args, call.kwargs))
            if call.accepts("start_index"):
                kwargs["start_index"] = self._start_index(call)
            return self._names.call(operation, args, kwargs)
        except Exception as error:
            raise step_error(operation, error) from error

    def _start_index(self, call: functional.Call) -> Any:
        num_positions = getattr(call.operation, "sequence_length", None)
        if num_positions is not None and self.max_length > num_positions:
            raise ValueError(
                f"it has {num_positions} learned positions, and the prompt and the new "
                f"tokens have {self.max_length}"
            )
        start = call.arguments().get("start_index", 0)
        is_zero = isinstance(start, int) and start == 0
        return self._index if is_zero else self._index + start

    def _replay_cached(self, layer: Any, call: functional.Call) -> Any:
        """Replace a call by a wrapper that calls the layer with its cache."""
        arguments = call.arguments()
        arguments.pop("training", None)
        if arguments.pop("return_attention_scores", False):
            raise ValueError("it returns attention scores as well.")
        context = self._pop_context(layer, arguments)
        tensors = {n: v for n, v in arguments.items() if functional.tensors_in(v)}
        options = {n: v for n, v in arguments.items() if n not in tensors}
        inputs: dict[str, Any] = {
            "index": self._index,
            "arguments": {
                # All are read position by position, except a state before all tokens.
                name: functional.map_tensors(
                    self._value if name == "initial_state" else self._slice, value
                )
                for name, value in tensors.items()
            },
        }
        names = set(arguments)
        if context:
            inputs["context"] = self._project(layer, context)
            names.add("projected_context")
        name = functional.unused_name(layer.name, self._cache_inputs)
        spec = layer.cache_spec(1, self.max_length, names)
        if spec:
            self.cache_spec[name] = spec
            inputs["cache"] = self._cache_inputs[name] = {
                leaf: keras.Input(
                    tensor.shape[1:], dtype=tensor.dtype, name=f"{name}_{leaf}"
                )
                for leaf, tensor in spec.items()
            }
        wrapper = CachedCall(
            layer,
            options,
            call.outputs[0],
            name=self._names.claim(f"{name}_step", call),
        )
        outputs = wrapper(inputs)
        if spec:
            self._cache_outputs[name] = outputs["cache"]
        return outputs["outputs"]

    def _pop_context(self, layer: Any, arguments: dict[str, Any]) -> dict[str, Any]:
        """Remove the arguments that are a fixed context, and return them."""
        if not isinstance(layer, ContextLayer):
            return {}
        names = [n for n in layer.context_arguments if self._is_fixed(arguments.get(n))]
        if not names:
            return {}
        context = {name: arguments.pop(name) for name in names}
        masks = [n for n in layer.context_masks if arguments.get(n) is not None]
        for name in masks:
            if self._is_fixed(arguments[name]):
                context[name] = arguments.pop(name)
        if not masks:
            mask = implicit_mask(context[names[0]])
            if mask is not None:
                context[layer.context_masks[0]] = mask
        return context

    def _is_fixed(self, value: Any) -> bool:
        is_tensor = isinstance(value, keras.KerasTensor)
        return is_tensor and id(value) not in self.dependent

    def _project(self, layer: Any, context: dict[str, Any]) -> dict[str, Any]:
        """Return the inputs of the step for a context that the encoder projects."""
        name = self._names.claim(f"{layer.name}_context", context)
        projected = ProjectContext(layer, name=name)(context)
        self.contexts.update(f"{name}_{leaf}" for leaf in projected)
        return {
            leaf: self._frontier_input(tensor, f"{name}_{leaf}")
            for leaf, tensor in projected.items()
        }

    def _value(self, tensor: keras.KerasTensor) -> Any:
        """Return the tensor of the step model for a tensor of the training model."""
        if id(tensor) not in self._values:
            name = self._frontier_name(tensor)
            self._values[id(tensor)] = self._with_mask(
                self._frontier_inputs[name], tensor, self._value, name
            )
        return self._values[id(tensor)]

    def _slice(self, tensor: keras.KerasTensor) -> Any:
        """Return the slice of a tensor of the training model.

        It holds the positions of the new tokens.
        """
        if not self._is_fixed(tensor) or not may_be_aligned(tensor):
            return self._value(tensor)
        if id(tensor) not in self._slices:
            name = self._frontier_name(tensor)
            self.aligned[name] = tensor
            inputs = {
                "tensor": self._frontier_inputs[name],
                "index": self._index,
                "tokens": self._tokens,
            }
            value = AlignedSlice(name=f"{name}_slice", dtype=tensor.dtype)(inputs)
            self._slices[id(tensor)] = self._with_mask(
                value, tensor, self._slice, f"{name}_slice"
            )
        return self._slices[id(tensor)]

    def _with_mask(
        self, value: Any, tensor: keras.KerasTensor, replay: Any, name: str
    ) -> Any:
        """Return `value` with the implicit mask that `tensor` has."""
        mask = implicit_mask(tensor)
        if mask is None:
            return value
        inputs = {"tensor": value, "mask": replay(mask)}
        return SetMask(name=f"{name}_masked", dtype=tensor.dtype)(inputs)

    def _frontier_name(self, tensor: keras.KerasTensor) -> str:
        if id(tensor) not in self._frontier_names:
            name = f"frontier_{len(self.frontier)}"
            self._frontier_input(tensor, name)
            self._frontier_names[id(tensor)] = name
        return self._frontier_names[id(tensor)]

    def _frontier_input(self, tensor: keras.KerasTensor, name: str) -> Any:
        if id(tensor) in self._model_inputs:
            tensor = keras.layers.Identity(name=name, dtype=tensor.dtype)(tensor)
        self.frontier[name] = tensor
        self._frontier_inputs[name] = keras.Input(
            batch_shape=tensor.shape, dtype=tensor.dtype, name=name
        )
        return self._frontier_inputs[name]
