"""From a training model to the model of one decoding step."""

import keras
from keras import ops

from keras_attn._graph import functional
from keras_attn.decoding.step.model_info import find_target, with_one_output
from keras_attn.decoding.step.rewrite import SteppedGraph
from keras_attn.layers._internal.arguments import positive_int

__all__ = ["StepModel", "step_model"]


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
        beside: names of the model's inputs that run beside the target, such as
            segment ids: `encode` takes them for all positions there will be.
        continued: names of those of them whose entries may be appended later, since
            none has to do with what is computed for the positions before it. Known
            after `validate`, else empty.
    """

    @classmethod
    def make(cls, model, target, max_length):
        """From a Functional model with one output; `target` is a `KerasTensor`."""
        stepped = SteppedGraph(model, max_length, target)
        step = cls(
            inputs=_in_order(stepped.inputs),
            outputs=_in_order(stepped.outputs),
            name="step",
        )
        step.target = target.name
        step.max_length = max_length
        step.contexts = frozenset(stepped.contexts)
        behind = functional.leading_to(
            functional.read(model).calls, stepped.beside.values()
        )
        step.beside = frozenset(t.name for t in model.inputs if id(t) in behind)
        step.continued = frozenset()
        step._cache_spec = lambda: stepped.cache_spec
        step.supports_masking = True  # consumes masks, see `compute_mask`
        encoder = _encoder(model, target, stepped.frontier)
        # In a lambda, or Keras would count the encoder as a part of this model.
        step._encoder = lambda: encoder
        step._aligned = frozenset(stepped.beside)
        step._uncached = lambda: (stepped.uncached, stepped.moving, target)
        return step

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
        return functional.map_tensors(
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


def step_model(model, max_length, target=None, validate=True, *, output=None):
    """The model of one decoding step, derived from a training model.

    Works on any Functional model stacked from this library's layers and position-wise
    Keras ones. What does not depend on the target tokens is computed once, by the
    result's `encode`; of the rest each layer with a cache is called on the new tokens
    alone. Weights are shared with `model`, not copied.

    Args:
        model: a built Functional `keras.Model` with logits `(B, T, V)` as an output.
        max_length: int, number of target positions to make room for.
        target: name of the input that grows, int32 `(B, T)`. Default: the only input,
            or the one named `"target"`.
        validate: bool, whether to compare the result with `model` on a few random
            tokens.
        output: name of the output that holds the logits, or its key where the model's
            outputs are a dict. Default: the only one, or the one named `"logits"`.
            What does not lead to it is left out.

    Returns:
        A `StepModel`: an ordinary Functional model, see there for its inputs.

    Raises:
        ValueError: if `model` is not Functional, the target or the output is unclear,
            or a layer cannot work step by step; the message names the layer.

    Example:
        >>> model = keras_attn.models.transformer_translator(100, num_layers=1)
        >>> step = step_model(model, max_length=20)
        >>> frontier = step.encode({"source": np.ones((1, 3), "int32")})
        >>> logits, cache = step.step(
        ...     np.ones((1, 1), "int32"), np.int32(0), frontier, step.empty_cache(1))
    """
    functional.check_functional(model)
    max_length = positive_int("max_length", max_length)
    model = with_one_output(model, output)
    step = StepModel.make(model, find_target(model, target), max_length)
    if validate:
        from keras_attn.decoding.step.validation import check_step_model, continued

        check_step_model(model, step)
        step.continued = continued(model, step)
    return step


def _encoder(model, target, frontier):
    """The model from the other inputs to the frontier, or None."""
    if not frontier:
        return None
    inputs = {t.name: t for t in model.inputs if t is not target}
    return keras.Model(inputs, _in_order(frontier), name="encoder")


def _in_order(structure):
    """Nested dicts with their keys sorted.

    Keras takes dicts apart in the order of their keys, save on PyTorch, where inner
    ones keep the order of insertion.
    """
    if not isinstance(structure, dict):
        return structure
    return {name: _in_order(structure[name]) for name in sorted(structure)}
