"""Where decoding begins and ends in a model: the input that grows, the logits."""

import weakref

import keras

from keras_attn._graph import functional

__all__ = ["find_output", "find_target", "length_limit", "with_one_output"]


# model -> {id of an output: the model up to it}; an entry goes when its model goes.
_PARTS = weakref.WeakKeyDictionary()


def find_target(model, name=None):
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


def find_output(model, name=None):
    """The logits, a `keras.KerasTensor` `(B, T, V)`; see `step_model`'s `output`."""
    is_sequential = isinstance(model, keras.Sequential)
    names = ["logits"] if is_sequential else model.output_names
    outputs = dict(zip(names, model.outputs))
    if not is_sequential and isinstance(model.output, dict):
        keys = {k: v for k, v in model.output.items() if not keras.tree.is_nested(v)}
        outputs = {**outputs, **keys}
        names = sorted(keys)
    if name is None:
        name = next(iter(outputs)) if len(model.outputs) == 1 else "logits"
    if name not in outputs:
        raise ValueError(
            "`output` must name the model's output that holds the logits, one of "
            f"{names}. Received: output={name!r}"
        )
    found = outputs[name]
    if len(found.shape) != 3 or found.shape[-1] is None:
        raise ValueError(
            f"The model's output '{name}' must be logits of shape (batch, length, "
            f"vocabulary size). Received: shape={tuple(found.shape)}"
        )
    return found


def with_one_output(model, name=None):
    """`model` up to its logits: the rest is left out, inputs that it needs too.

    Args:
        model: a built Functional `keras.Model`.
        name: of the output, see `find_output`.

    Returns:
        `model` itself where it has no other output, else a Functional model of the
        same layers.
    """
    output = find_output(model, name)
    if len(model.outputs) == 1:
        return model
    parts = _PARTS.setdefault(model, {})
    if id(output) in parts:
        return parts[id(output)]
    # Of calls as they were recorded: a model called in this one stays one call.
    used = functional.leading_to(functional.unopened_calls(model), [output])
    inputs = [tensor for tensor in model.inputs if id(tensor) in used]
    part = keras.Model({tensor.name: tensor for tensor in inputs}, output)
    parts[id(output)] = part
    return part


def length_limit(calls):
    """The most tokens that all layers have learned positions for, None: no limit.

    Layers that are told the positions, as those of segments are, set none.
    """
    return functional.least_attribute(calls, "sequence_length", unless="positions")
