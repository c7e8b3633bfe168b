"""Replay of a model's graph that also returns its attention weights."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import keras

from keras_attn._graph import functional
from keras_attn._types import Tensor

__all__ = ["AttentionProbe", "probe_attention"]


@dataclasses.dataclass(frozen=True)
class AttentionProbe:
    """The attention layers of a model, and a model that computes their weights.

    Attributes:
        model: A Functional model, from the inputs of the probed model to a dict from
            names to attention weights `(B, N, T, S)`.
        calls: A dict from the same names to `functional.Call`s, in the order of the
            graph.
    """

    model: keras.Model
    calls: dict[str, functional.Call]


def probe_attention(model: keras.Model) -> AttentionProbe:
    """Find every attention layer of a Functional model, and return its weights.

    The graph is replayed with `return_attention_scores=True` for each layer that
    supports it. The layers are shared with the model. A block with two attention
    layers has two names, `"block/self_attention"` and `"block/cross_attention"`.

    Args:
        model: A Functional model, see `keras_attn._graph.functional.check_functional`.

    Returns:
        An `AttentionProbe`.

    Raises:
        ValueError: If the model has no attention layer.
    """
    values = {id(tensor): tensor for tensor in model.inputs}
    weights: dict[str, keras.KerasTensor] = {}
    calls: dict[str, functional.Call] = {}
    names = functional.UniqueNames()
    for recorded in functional.read_graph(model).calls:
        args, kwargs = functional.map_tensors(
            lambda tensor: values[id(tensor)], (recorded.args, recorded.kwargs)
        )
        call = functional.Call(recorded.operation, args, kwargs, recorded.outputs)
        if _has_scores(call):
            outputs, scores = _replay_with_scores(call, weights)
            weights.update(scores)
            calls.update(dict.fromkeys(scores, recorded))
        else:
            outputs = names.call(call.operation, args, kwargs)
        values.update(zip(map(id, call.outputs), keras.tree.flatten(outputs)))
    if not weights:
        raise ValueError(
            "`model` must have an attention layer. Received: a model with the layers "
            f"{[layer.name for layer in model.layers]}"
        )
    inputs = functional.input_structure(model)
    outputs = {name: weights[name] for name in sorted(weights)}
    return AttentionProbe(keras.Model(inputs, outputs), calls)


def _has_scores(call: functional.Call) -> bool:
    if not call.accepts("return_attention_scores"):
        return False
    return getattr(call.operation, "has_attention_scores", True)


def _replay_with_scores(
    call: functional.Call, known_names: Iterable[str]
) -> tuple[Any, dict[str, keras.KerasTensor]]:
    """Replay the call of an attention layer.

    Args:
        call: The call.
        known_names: The names that other attention weights have already.

    Returns:
        A tuple of the outputs of the call and a dict from names to attention weights.
    """
    used = {known_name.split("/")[0] for known_name in known_names}
    name = functional.unused_name(call.operation.name, used)
    tensors = {n: v for n, v in call.arguments().items() if functional.tensors_in(v)}
    output, scores = _CallWithScores(call, name=f"{name}_scores")(tensors)
    if isinstance(scores, dict):
        parts = {f"{name}/{part}": value for part, value in scores.items()}
    else:
        parts = {name: scores}
    parts = {part: _with_heads(value) for part, value in parts.items()}
    # The model itself may use the attention weights, as a second output of the call.
    return ((output, scores) if len(call.outputs) > 1 else output), parts


def _with_heads(scores: Tensor) -> Tensor:
    """Add a head axis to attention weights without one: `(B, N, T, S)`."""
    if len(scores.shape) == 4:
        return scores
    return keras.ops.expand_dims(scores, axis=1)


class _CallWithScores(keras.layers.Layer):
    """Calls a layer with `return_attention_scores=True`, sharing its weights."""

    def __init__(self, call: functional.Call, **kwargs: Any) -> None:
        layer: Any = call.operation
        super().__init__(dtype=layer.dtype_policy, **kwargs)
        self.layer = layer
        self.options = {
            name: value
            for name, value in call.arguments().items()
            if not functional.tensors_in(value)
        }
        self.options["return_attention_scores"] = True
        self.supports_masking = True
        self.built = True

    def call(self, inputs: dict[str, Tensor]) -> Any:
        return self.layer(**inputs, **self.options)

    def compute_mask(self, inputs: dict[str, Tensor], previous_mask: Any) -> None:
        return None  # The wrapped layer sets the implicit mask of its output itself.

    def compute_output_spec(self, inputs: dict[str, Tensor]) -> Any:
        return self.layer.compute_output_spec(**inputs, **self.options)
