"""A model's graph replayed for the attention weights in it."""

import dataclasses
import typing

import keras

from keras_attn._graph import functional

__all__ = ["Probe", "probe"]


@dataclasses.dataclass(frozen=True)
class Probe:
    """What `probe` gives.

    Attributes:
        model: a Functional model from the inputs of the probed one to a dict from name
            to attention weights `(B, N, T, S)`.
        calls: a dict from the same names to `functional.Call`s, in the order of the graph.
    """

    model: keras.Model
    calls: dict[str, typing.Any]


def probe(model):
    """Finds every attention layer of a Functional model, and what tells its weights.

    The graph is replayed with scores asked for of each layer that can give them; the
    layers are the model's own. A block with two attentions has two names,
    `"block/self_attention"` and `"block/cross_attention"`.

    Args:
        model: a Functional model, see `keras_attn._graph.functional.check_functional`.

    Returns:
        A `Probe`.

    Raises:
        ValueError: if there is no attention in the model.
    """
    values = {id(tensor): tensor for tensor in model.inputs}
    found, calls = {}, {}
    names = functional.Names()
    for recorded in functional.read(model).calls:
        args, kwargs = functional.map_tensors(
            lambda tensor: values[id(tensor)], (recorded.args, recorded.kwargs)
        )
        call = functional.Call(recorded.operation, args, kwargs, recorded.outputs)
        if _has_scores(call):
            outputs, scores = _replay_with_scores(call, found)
            found.update(scores)
            calls.update(dict.fromkeys(scores, recorded))
        else:
            outputs = names.call(call.operation, args, kwargs)
        values.update(zip(map(id, call.outputs), keras.tree.flatten(outputs)))
    if not found:
        raise ValueError(
            "`model` must have an attention layer. Received: a model with the layers "
            f"{[layer.name for layer in model.layers]}"
        )
    inputs = functional.input_structure(model)
    outputs = {name: found[name] for name in sorted(found)}
    return Probe(keras.Model(inputs, outputs), calls)


def _has_scores(call):
    if not call.accepts("return_attention_scores"):
        return False
    return getattr(call.operation, "has_attention_scores", True)


def _replay_with_scores(call, found):
    used = {known.split("/")[0] for known in found}
    name = functional.unused_name(call.operation.name, used)
    tensors = {n: v for n, v in call.arguments().items() if functional.tensors_in(v)}
    output, scores = _WithScores(call, name=f"{name}_scores")(tensors)
    if isinstance(scores, dict):
        parts = {f"{name}/{part}": value for part, value in scores.items()}
    else:
        parts = {name: scores}
    parts = {part: _with_heads(value) for part, value in parts.items()}
    # A model may have asked for scores itself.
    return ((output, scores) if len(call.outputs) > 1 else output), parts


def _with_heads(scores):
    """`(B, N, T, S)`, of an attention without heads as well."""
    if len(scores.shape) == 4:
        return scores
    return keras.ops.expand_dims(scores, axis=1)


class _WithScores(keras.layers.Layer):
    """Calls a layer with `return_attention_scores=True`, with the weights it has."""

    def __init__(self, call, **kwargs):
        super().__init__(dtype=call.operation.dtype_policy, **kwargs)
        self.layer = call.operation
        arguments = call.arguments()
        self.options = {
            name: value
            for name, value in arguments.items()
            if not functional.tensors_in(value)
        }
        self.options["return_attention_scores"] = True
        self.supports_masking = True
        self.built = True

    def call(self, inputs):
        return self.layer(**inputs, **self.options)

    def compute_mask(self, inputs, previous_mask):
        return None  # The layer inside hangs it on its output.

    def compute_output_spec(self, inputs):
        return self.layer.compute_output_spec(**inputs, **self.options)
