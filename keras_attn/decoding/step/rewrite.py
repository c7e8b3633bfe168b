"""The part of a graph that depends on the target, replayed on new tokens."""

import inspect

import keras

from keras_attn._graph import functional
from keras_attn._keras_internals import implicit_mask
from keras_attn.decoding.step.aligned_inputs import beside_the_target, may_run_beside
from keras_attn.decoding.step.recurrent import steppable
from keras_attn.decoding.step.wrappers import (
    Beside,
    CachedCall,
    ProjectContext,
    WithMask,
)

__all__ = ["SteppedGraph"]


class SteppedGraph:
    """Replays what leads from the target to the logits.

    Args:
        model: a Functional `keras.Model` with one output.
        max_length: int, number of target positions to make room for.
        target: the `keras.KerasTensor` of the target ids.

    Attributes:
        inputs, outputs: dicts of `keras.KerasTensor`s, the step model's.
        frontier: dict of tensors of `model`'s graph that the step model takes.
        contexts: names of those of the frontier that are projected contexts.
        beside: those of `model`'s tensors that are read at the positions of the tokens
            only, by their names in the frontier.
        cache_spec: dict, the cache of a batch of one.
        uncached: pairs of a `functional.Call` that is replayed as it is, and the ids of
            those of its fixed inputs that run beside the target.
        moving: ids of the tensors of `model`'s graph that depend on the target.

    Raises:
        ValueError: names the layer that cannot be replayed.
    """

    def __init__(self, model, max_length, target):
        self.max_length = max_length
        self.frontier = {}
        self.contexts = set()
        self.beside = {}
        self.cache_spec = {}  # wrapper name -> {leaf: what it is for a batch of one}
        self._given = {id(tensor) for tensor in model.inputs}
        self._frontier_inputs = {}  # name -> the step model's input for it
        self._frontier_names = {}  # id(tensor) -> name, contexts apart
        self._cache_inputs = {}  # wrapper name -> {leaf: input}
        self._cache_outputs = {}
        self._names = functional.Names()
        # Names that no layer of a user's model is likely to have.
        self._tokens = keras.Input((None,), dtype=target.dtype, name="step_tokens")
        self._index = keras.Input(batch_shape=(), dtype="int32", name="step_index")
        self._values = {id(target): self._tokens}
        self.uncached = []
        self._slices = {}  # id(tensor) -> what of it stands at the step's tokens
        whole = functional.read(model)
        calls, (output,) = whole.calls, whole.outputs
        self.moving = functional.dependents(calls, [target])
        if id(output) not in self.moving:
            raise ValueError(
                f"The model's output does not depend on its input '{target.name}': "
                "there is nothing to decode."
            )
        wanted = self.moving & functional.leading_to(calls, [output])
        calls = [c for c in calls if any(id(t) in wanted for t in c.outputs)]
        self._beside = beside_the_target(calls, self.moving, target)
        for call in calls:
            outputs = keras.tree.flatten(self._replay(call))
            self._values.update(zip(map(id, call.outputs), outputs))
        self._gather(self._values[id(output)])

    def _gather(self, logits):
        self.inputs = {"step_tokens": self._tokens, "step_index": self._index}
        self.outputs = {"logits": logits}
        if self._frontier_inputs:
            self.inputs["frontier"] = self._frontier_inputs
        if self._cache_inputs:
            self.inputs["cache"] = self._cache_inputs
            self.outputs["cache"] = self._cache_outputs

    def _replay(self, call):
        layer = call.operation
        try:
            stepped = steppable(layer)
            if stepped is not None:
                return self._replay_cached(stepped, call)
            beside = self._beside.get(call, ())
            self.uncached.append((call, beside))

            def value(tensor):
                if id(tensor) in beside:
                    return self._slice(tensor)
                return self._value(tensor)

            args, kwargs = functional.map_tensors(value, (call.args, call.kwargs))
            if call.accepts("start_index"):
                kwargs["start_index"] = self._start_index(call)
            return self._names.call(layer, args, kwargs)
        except Exception as error:
            raise ValueError(
                f"Layer '{layer.name}' cannot work on one token at a time: {error}"
            ) from error

    def _start_index(self, call):
        room = getattr(call.operation, "sequence_length", None)
        if room is not None and self.max_length > room:
            raise ValueError(
                f"it has learned {room} positions, and the prompt with what is to "
                f"follow takes {self.max_length}"
            )
        start = call.arguments().get("start_index", 0)
        return (
            self._index
            if isinstance(start, int) and start == 0
            else (self._index + start)
        )

    def _replay_cached(self, layer, call):
        arguments = call.arguments()
        arguments.pop("training", None)
        if arguments.pop("return_attention_scores", False):
            raise ValueError("it returns attention scores as well.")
        inputs = {"index": self._index}
        fixed = {
            name: arguments.pop(name)
            for name in getattr(layer, "context_arguments", ())
            if self._is_fixed(arguments.get(name))
        }
        if fixed:
            mask = arguments.get(layer.context_mask_argument)
            if self._is_fixed(mask):
                del arguments[layer.context_mask_argument]
            else:
                mask = implicit_mask(next(iter(fixed.values())))
            inputs["context"] = self._project(layer, fixed, mask)
        tensors = {n: v for n, v in arguments.items() if functional.tensors_in(v)}
        taken = set(inspect.signature(layer.cached_call).parameters) - {"context"}
        for name in set(tensors) - taken:
            raise ValueError(f"its `{name}` depends on the tokens to be generated.")
        options = {n: v for n, v in arguments.items() if n not in tensors}
        inputs["arguments"] = {
            # But for a state before all tokens, all goes position by position.
            name: functional.map_tensors(
                self._value if name == "initial_state" else self._slice, value
            )
            for name, value in tensors.items()
        }
        name = functional.unused_name(layer.name, self._cache_inputs)
        options_of_cache = {"has_context": bool(fixed)}
        if "segment_ids" in tensors:
            options_of_cache["has_segment_ids"] = True
        spec = layer.cache_spec(1, self.max_length, **options_of_cache)
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

    def _is_fixed(self, value):
        return isinstance(value, keras.KerasTensor) and id(value) not in self.moving

    def _project(self, layer, fixed, mask):
        """The step's inputs for a context that the encoder model projects."""
        name = self._names.claim(f"{layer.name}_context", fixed)
        given = fixed if mask is None else {**fixed, "padding_mask": mask}
        projected = ProjectContext(layer, name=name)(given)
        self.contexts.update(f"{name}_{leaf}" for leaf in projected)
        return {
            leaf: self._frontier_input(tensor, f"{name}_{leaf}")
            for leaf, tensor in projected.items()
        }

    def _value(self, tensor):
        """What stands for a tensor of the full model in the step model."""
        if id(tensor) not in self._values:
            name = self._frontier_name(tensor)
            self._values[id(tensor)] = self._masked(
                self._frontier_inputs[name], tensor, self._value, name
            )
        return self._values[id(tensor)]

    def _slice(self, tensor):
        """The same at the positions of the step's tokens only."""
        if not self._is_fixed(tensor) or not may_run_beside(tensor):
            return self._value(tensor)
        if id(tensor) not in self._slices:
            name = self._frontier_name(tensor)
            self.beside[name] = tensor
            given = {
                "tensor": self._frontier_inputs[name],
                "index": self._index,
                "tokens": self._tokens,
            }
            value = Beside(name=f"{name}_beside", dtype=tensor.dtype)(given)
            self._slices[id(tensor)] = self._masked(
                value, tensor, self._slice, f"{name}_beside"
            )
        return self._slices[id(tensor)]

    def _masked(self, value, tensor, replay, name):
        """`value` with the implicit mask that `tensor` has."""
        mask = implicit_mask(tensor)
        if mask is None:
            return value
        inputs = {"tensor": value, "mask": replay(mask)}
        return WithMask(name=f"{name}_masked", dtype=tensor.dtype)(inputs)

    def _frontier_name(self, tensor):
        if id(tensor) not in self._frontier_names:
            name = f"frontier_{len(self.frontier)}"
            self._frontier_input(tensor, name)
            self._frontier_names[id(tensor)] = name
        return self._frontier_names[id(tensor)]

    def _frontier_input(self, tensor, name):
        if id(tensor) in self._given:
            tensor = keras.layers.Identity(name=name, dtype=tensor.dtype)(tensor)
        self.frontier[name] = tensor
        self._frontier_inputs[name] = keras.Input(
            batch_shape=tensor.shape, dtype=tensor.dtype, name=name
        )
        return self._frontier_inputs[name]
