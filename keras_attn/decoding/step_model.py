"""From a training model to the model of one decoding step."""

import inspect

import keras
from keras import ops

from keras_attn import graph
from keras_attn._keras_internals import implicit_mask
from keras_attn.decoding.recurrent import steppable
from keras_attn.decoding.wrappers import CachedCall, ProjectContext, WithMask
from keras_attn.layers.arguments import positive_int

__all__ = ["StepModel", "find_target", "step_model"]


class StepModel(keras.Model):
    """The Functional model of one decoding step, made by `step_model`.

    Inputs, a dict:
        `"step_tokens"`: int32 `(B, T)`, the next token, or at first the whole prompt.
        `"step_index"`: int32 scalar, position of the first of these tokens.
        `"frontier"`: what `encode` gave (left out where there is no frontier).
        `"cache"`: what `empty_cache` or the last step gave (likewise).
    Outputs, a dict:
        `"logits"`: `(B, T, V)`.
        `"cache"`: to be handed to the next step.

    Attributes:
        target: name of the input that grows.
        max_length: number of positions there is room for.
        contexts: names of the frontier's tensors that hypotheses of one row share:
            those may have fewer rows than the tokens, see `MultiHeadAttention`.
    """

    @classmethod
    def make(cls, inputs, outputs, encoder, target, max_length, cache_spec, contexts):
        model = cls(inputs=inputs, outputs=outputs, name="step")
        model.target = target
        model.max_length = max_length
        model.contexts = frozenset(contexts)
        model._cache_spec = lambda: cache_spec
        model.supports_masking = True  # consumes masks, see `compute_mask`
        # In a lambda, or Keras would count the encoder as a part of this model.
        model._encoder = lambda: encoder
        return model

    def compute_mask(self, inputs, previous_mask):
        return None

    @property
    def cache_spec(self):
        """The cache of a batch of one, `keras.KerasTensor`s."""
        return self._cache_spec()

    @property
    def encoder(self):
        """The model from the other inputs to the frontier, or None."""
        return self._encoder()

    def encode(self, inputs):
        """What does not depend on the target tokens, computed once.

        Args:
            inputs: dict of the full model's inputs; the target is left out.

        Returns:
            A dict of tensors, the `"frontier"` of every step.
        """
        if self.encoder is None:
            return {}
        names = [tensor.name for tensor in self.encoder.inputs]
        inputs = {name: ops.convert_to_tensor(inputs[name]) for name in names}
        return self.encoder(inputs, training=False)

    def empty_cache(self, batch_size):
        """The `"cache"` of the first step, zeros.

        Args:
            batch_size: int or int32 scalar tensor.
        """
        return graph.map_tensors(
            lambda leaf: ops.zeros(
                (batch_size * leaf.shape[0], *leaf.shape[1:]), dtype=leaf.dtype
            ),
            self.cache_spec,
        )

    def step(self, tokens, index, frontier, cache):
        """Logits `(B, T, V)` of the new tokens, and the cache after them."""
        inputs = {
            "step_tokens": ops.convert_to_tensor(tokens, dtype="int32"),
            "step_index": ops.convert_to_tensor(index, dtype="int32"),
        }
        if frontier:
            inputs["frontier"] = frontier
        if cache:
            inputs["cache"] = cache
        outputs = self(_in_order(inputs), training=False)
        return outputs["logits"], outputs.get("cache", {})


def step_model(model, max_length, target=None, validate=True):
    """The model of one decoding step, derived from a training model.

    Works on any Functional model stacked from this library's layers and position-wise
    Keras ones. What does not depend on the target tokens is computed once, by the
    result's `encode`; of the rest each layer with a cache is called on the new tokens
    alone. Weights are shared with `model`, not copied.

    Args:
        model: a built Functional `keras.Model` with one output, logits `(B, T, V)`.
        max_length: int, number of target positions to make room for.
        target: name of the input that grows, int32 `(B, T)`. Default: the only input,
            or the one named `"target"`.
        validate: bool, whether to compare the result with `model` on a few random
            tokens.

    Returns:
        A `StepModel`: an ordinary Functional model, see there for its inputs.

    Raises:
        ValueError: if `model` is not Functional, the target is unclear, or a layer
            cannot work step by step; the message names the layer.

    Example:
        >>> model = keras_attn.models.transformer_translator(100, num_layers=1)
        >>> step = step_model(model, max_length=20)
        >>> frontier = step.encode({"source": np.ones((1, 3), "int32")})
        >>> logits, cache = step.step(
        ...     np.ones((1, 1), "int32"), np.int32(0), frontier, step.empty_cache(1))
    """
    graph.check_functional(model)
    max_length = positive_int("max_length", max_length)
    if len(model.outputs) != 1:
        raise ValueError(
            "`model` must have one output, the logits. Received: outputs="
            f"{[tensor.name for tensor in model.outputs]}"
        )
    step = _Builder(model, max_length, find_target(model, target)).build()
    if validate:
        from keras_attn.decoding.validation import check_step_model

        check_step_model(model, step)
    return step


def find_target(model, name):
    """The input that grows, a `keras.KerasTensor`; see `step_model`'s `target`."""
    inputs = {tensor.name: tensor for tensor in model.inputs}
    if name is None:
        name = next(iter(inputs)) if len(inputs) == 1 else "target"
    if name not in inputs:
        raise ValueError(
            "`target` must name the model's input that grows while decoding, one of "
            f"{sorted(inputs)}. Received: target={name!r}"
        )
    return inputs[name]


def _in_order(structure):
    """Nested dicts with their keys sorted.

    Keras takes dicts apart in the order of their keys, save on PyTorch, where inner
    ones keep the order of insertion.
    """
    if not isinstance(structure, dict):
        return structure
    return {name: _in_order(structure[name]) for name in sorted(structure)}


class _Builder:
    """Replays the part of a graph that depends on the target tokens."""

    def __init__(self, model, max_length, target):
        self.model = model
        self.max_length = max_length
        self.target = target
        self.graph = graph.read(model)
        self.moving = graph.dependents(self.graph.calls, [target])
        self.frontier = {}  # name -> tensor of the full model's graph
        self.frontier_inputs = {}  # name -> the step model's input for it
        self.contexts = set()  # names of those that are projected contexts
        self.cache_spec = {}  # wrapper name -> {leaf: what it is for a batch of one}
        self.cache_inputs = {}  # wrapper name -> {leaf: input}
        self.cache_outputs = {}
        self.names = graph.Names()
        # Names that no layer of a user's model is likely to have.
        self.tokens = keras.Input((None,), dtype=target.dtype, name="step_tokens")
        self.index = keras.Input(batch_shape=(), dtype="int32", name="step_index")
        self.values = {id(target): self.tokens}

    def build(self):
        output = self.graph.outputs[0]
        if id(output) not in self.moving:
            raise ValueError(
                f"The model's output does not depend on its input "
                f"'{self.target.name}': there is nothing to decode."
            )
        for call in self.graph.calls:
            if any(id(tensor) in self.moving for tensor in call.outputs):
                outputs = keras.tree.flatten(self._replay(call))
                self.values.update(zip(map(id, call.outputs), outputs))
        inputs = {"step_tokens": self.tokens, "step_index": self.index}
        outputs = {"logits": self.values[id(output)]}
        if self.frontier_inputs:
            inputs["frontier"] = self.frontier_inputs
        if self.cache_inputs:
            inputs["cache"] = self.cache_inputs
            outputs["cache"] = self.cache_outputs
        return StepModel.make(
            _in_order(inputs),
            _in_order(outputs),
            self._encoder(),
            self.target.name,
            self.max_length,
            self.cache_spec,
            self.contexts,
        )

    def _encoder(self):
        if not self.frontier:
            return None
        inputs = [t for t in self.model.inputs if t is not self.target]
        return keras.Model(
            {tensor.name: tensor for tensor in inputs},
            _in_order(self.frontier),
            name="encoder",
        )

    def _replay(self, call):
        layer = call.operation
        try:
            stepped = steppable(layer)
            if stepped is not None:
                return self._replay_cached(stepped, call)
            args, kwargs = graph.map_tensors(self._value, (call.args, call.kwargs))
            if call.accepts("start_index"):
                kwargs["start_index"] = self._start_index(call)
            return self.names.call(layer, args, kwargs)
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
            self.index
            if isinstance(start, int) and start == 0
            else (self.index + start)
        )

    def _replay_cached(self, layer, call):
        arguments = call.arguments()
        arguments.pop("training", None)
        if arguments.pop("return_attention_scores", False):
            raise ValueError("it returns attention scores as well.")
        inputs = {"index": self.index}
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
        tensors = {n: v for n, v in arguments.items() if graph.tensors_in(v)}
        for name in set(tensors) - set(inspect.signature(layer.cached_call).parameters):
            raise ValueError(f"its `{name}` depends on the tokens to be generated.")
        options = {n: v for n, v in arguments.items() if n not in tensors}
        inputs["arguments"] = graph.map_tensors(self._value, tensors)
        name = graph.unused_name(layer.name, self.cache_inputs)
        spec = layer.cache_spec(1, self.max_length, has_context=bool(fixed))
        if spec:
            self.cache_spec[name] = spec
            inputs["cache"] = self.cache_inputs[name] = {
                leaf: keras.Input(
                    tensor.shape[1:], dtype=tensor.dtype, name=f"{name}_{leaf}"
                )
                for leaf, tensor in spec.items()
            }
        wrapper = CachedCall(
            layer,
            options,
            call.outputs[0],
            name=self.names.claim(f"{name}_step", call),
        )
        outputs = wrapper(inputs)
        if spec:
            self.cache_outputs[name] = outputs["cache"]
        return outputs["outputs"]

    def _is_fixed(self, value):
        return isinstance(value, keras.KerasTensor) and id(value) not in self.moving

    def _project(self, layer, fixed, mask):
        """The step's inputs for a context that the encoder model projects."""
        name = self.names.claim(f"{layer.name}_context", fixed)
        given = fixed if mask is None else {**fixed, "padding_mask": mask}
        projected = ProjectContext(layer, name=name)(given)
        self.contexts.update(f"{name}_{leaf}" for leaf in projected)
        return {
            leaf: self._frontier_input(tensor, f"{name}_{leaf}")
            for leaf, tensor in projected.items()
        }

    def _value(self, tensor):
        """What stands for a tensor of the full model in the step model."""
        if id(tensor) not in self.values:
            name = f"frontier_{len(self.frontier)}"
            mask = implicit_mask(tensor)
            value = self._frontier_input(tensor, name)
            if mask is not None:
                inputs = {"tensor": value, "mask": self._value(mask)}
                value = WithMask(name=f"{name}_masked", dtype=tensor.dtype)(inputs)
            self.values[id(tensor)] = value
        return self.values[id(tensor)]

    def _frontier_input(self, tensor, name):
        if any(tensor is given for given in self.model.inputs):
            tensor = keras.layers.Identity(name=name, dtype=tensor.dtype)(tensor)
        self.frontier[name] = tensor
        self.frontier_inputs[name] = keras.Input(
            batch_shape=tensor.shape, dtype=tensor.dtype, name=name
        )
        return self.frontier_inputs[name]
