"""From a training model to the model of one decoding step."""

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from keras_attn._graph import functional
from keras_attn._keras_internals import Untracked
from keras_attn._types import Model, Tensor
from keras_attn.decoding.step.model_info import find_target, model_up_to_logits
from keras_attn.decoding.step.rewrite import StepGraph
from keras_attn.decoding.step.validation import check_step_model, extendable_inputs
from keras_attn.layers._internal.arguments import positive_int

__all__ = ["StepModel", "step_model"]


class StepModel(keras.Model):
    """The Functional model of one decoding step, returned by `step_model`.

    Inputs, a dict:
        `"step_tokens"`: int32 `(B, T)`, the next token, or at first the prompt.
        `"step_index"`: int32 scalar, position of the first of these tokens.
        `"frontier"`: the value of `encode` (missing if it is empty).
        `"cache"`: the value of `empty_cache` or of the previous step (missing if it is
            empty).
    Outputs, a dict:
        `"logits"`: `(B, T, V)`.
        `"cache"`: for the next step.

    Attributes:
        target: name of the target input.
        max_length: number of positions that the cache can hold.
        contexts: names of the tensors of the frontier that the beams of a batch element
            share: their batch size may be a divisor of that of the tokens.
        aligned_inputs: names of the model's inputs that are aligned with the target,
            such as segment ids: `encode` takes them for all positions.
        extendable_inputs: names of those whose entries may be appended later, since no
            entry affects earlier positions. Empty without validation.
    """

    target: str
    max_length: int
    contexts: frozenset[str]
    aligned_inputs: frozenset[str]
    extendable_inputs: frozenset[str]

    @classmethod
    def make(
        cls, model: keras.Model, target: keras.KerasTensor, max_length: int
    ) -> "StepModel":
        """Return the step model of a Functional model with one output."""
        step_graph = StepGraph(model, max_length, target)
        step = cls(
            inputs=_sort_keys(step_graph.inputs),
            outputs=_sort_keys(step_graph.outputs),
            name="step",
        )
        step.target = target.name
        step.max_length = max_length
        step.contexts = frozenset(step_graph.contexts)
        calls = functional.read_graph(model).calls
        needed = functional.ancestors(calls, step_graph.aligned.values())
        step.aligned_inputs = frozenset(
            tensor.name for tensor in model.inputs if id(tensor) in needed
        )
        step.extendable_inputs = frozenset()
        step._graph = Untracked(step_graph)
        step._target = Untracked(target)
        step._encoder = Untracked(_encoder(model, target, step_graph.frontier))
        step.supports_masking = True  # It consumes masks, see `compute_mask`.
        return step

    def compute_mask(self, inputs: Any, previous_mask: Any) -> None:
        return None

    @property
    def cache_spec(self) -> dict[str, dict[str, keras.KerasTensor]]:
        """Shapes and dtypes of the cache for a batch of one."""
        return self._graph.value.cache_spec

    @property
    def encoder(self) -> keras.Model | None:
        """The model from the other inputs to the frontier, or None."""
        return self._encoder.value

    def encode(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Compute all that does not depend on the target, once for all steps.

        Args:
            inputs: dict of the inputs of the training model; the target is ignored.

        Returns:
            A dict of tensors, the `"frontier"` of every step.
        """
        if self.encoder is None:
            return {}
        names = [tensor.name for tensor in self.encoder.inputs]
        tensors = {name: ops.convert_to_tensor(inputs[name]) for name in names}
        return self.encoder(tensors, training=False)

    def empty_cache(self, batch_size: Any) -> dict[str, dict[str, Tensor]]:
        """Return the `"cache"` of the first step, zeros.

        Args:
            batch_size: int or int32 scalar tensor.
        """
        return functional.map_tensors(
            lambda leaf: ops.zeros(
                (batch_size * leaf.shape[0], *leaf.shape[1:]), dtype=leaf.dtype
            ),
            self.cache_spec,
        )

    def step(
        self, tokens: Tensor, index: Tensor, frontier: Any, cache: Any
    ) -> tuple[Tensor, dict[str, Any]]:
        """Return the logits `(B, T, V)` of new tokens, and the cache after them.

        Args:
            tokens: int32 `(B, T)`.
            index: int32 scalar, position of the first of them.
            frontier: the value of `encode`.
            cache: the value of `empty_cache`, or of the previous step.
        """
        inputs = {
            "step_tokens": ops.convert_to_tensor(tokens, dtype="int32"),
            "step_index": ops.convert_to_tensor(index, dtype="int32"),
        }
        if frontier:
            inputs["frontier"] = frontier
        if cache:
            inputs["cache"] = cache
        outputs = self(_sort_keys(inputs), training=False)
        return outputs["logits"], outputs.get("cache", {})


def step_model(
    model: Model,
    max_length: int,
    target: str | None = None,
    validate: bool = True,
    *,
    output: str | None = None,
) -> StepModel:
    """Derive the model of one decoding step from a training model.

    Works on any Functional model of keras_attn layers and position-wise Keras layers.
    All that does not depend on the target is computed once, by `encode` of the result;
    of the rest, each layer with a cache is called on the new tokens only. Weights are
    shared with `model`, not copied.

    Args:
        model: a built Functional `keras.Model` with logits `(B, T, V)` as an output.
        max_length: int, number of target positions that the cache can hold.
        target: name of the target input, int32 `(B, T)`, whose tokens are generated.
            Default: the only input, or the one named `"target"` or `"token_ids"`.
        validate: bool, whether to compare the result with `model` on random tokens.
        output: name of the output that holds the logits, or its key if the outputs are
            a dict. Default: the only one, or the one named `"logits"`. All that it does
            not depend on is left out.

    Returns:
        A `StepModel`, which is an ordinary Functional model.

    Raises:
        ValueError: if `model` is not Functional, the target or the output is ambiguous,
            or a layer cannot work step by step; the message names the layer.

    Example:
        >>> import numpy as np
        >>> from keras_attn import decoding, models
        >>> model = models.transformer_translator(
        ...     20, num_layers=1, hidden_dim=8, intermediate_dim=16, num_heads=2
        ... )
        >>> step = decoding.step_model(model, max_length=10)
        >>> frontier = step.encode({"source": np.ones((1, 3), "int32")})
        >>> tokens, index = np.ones((1, 1), "int32"), np.int32(0)
        >>> logits, cache = step.step(tokens, index, frontier, step.empty_cache(1))
        >>> tuple(logits.shape)
        (1, 1, 20)
    """
    functional.check_functional(model)
    max_length = positive_int("max_length", max_length)
    model = model_up_to_logits(model, output)
    step = StepModel.make(model, find_target(model, target), max_length)
    if validate:
        check_step_model(model, step)
        step.extendable_inputs = extendable_inputs(model, step)
    return step


def _encoder(
    model: keras.Model, target: keras.KerasTensor, frontier: dict[str, Any]
) -> keras.Model | None:
    """Return the model from the other inputs to the frontier, or None."""
    if not frontier:
        return None
    inputs = {t.name: t for t in model.inputs if t is not target}
    return keras.Model(inputs, _sort_keys(frontier), name="encoder")


def _sort_keys(structure: Any) -> Any:
    """Return nested dicts with sorted keys.

    Keras flattens dicts in the order of their keys, except on PyTorch, where inner
    dicts keep the order of insertion.
    """
    if not isinstance(structure, dict):
        return structure
    return {name: _sort_keys(structure[name]) for name in sorted(structure)}
