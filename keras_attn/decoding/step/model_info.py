"""Properties of a model that decoding needs: target, logits, vocabularies, padding."""

import weakref
from collections.abc import Iterator, Mapping, Sequence

import keras

from keras_attn._graph import functional

__all__ = [
    "default_padding_id",
    "find_output",
    "find_target",
    "max_positions",
    "model_up_to_logits",
    "padding_ids",
    "vocabulary_sizes",
]

_TARGET_NAMES = ("target", "token_ids")

# model -> {id of an output: the model up to it}; an entry is dropped with its model.
_PARTS: "weakref.WeakKeyDictionary[keras.Model, dict[int, keras.Model]]" = (
    weakref.WeakKeyDictionary()
)


def find_target(model: keras.Model, name: str | None = None) -> keras.KerasTensor:
    """Return the target input of a model; see the argument `target` of `step_model`."""
    inputs = {tensor.name: tensor for tensor in model.inputs}
    if name is None and len(inputs) == 1:
        name = next(iter(inputs))
    if name is None:
        name = next((n for n in _TARGET_NAMES if n in inputs), _TARGET_NAMES[0])
    if name not in inputs:
        raise ValueError(
            "`target` must be the name of the model's input of generated tokens, one "
            f"of {sorted(inputs)}. Received: target={name!r}"
        )
    return inputs[name]


def find_output(model: keras.Model, name: str | None = None) -> keras.KerasTensor:
    """Return the logits `(B, T, V)`; see the argument `output` of `step_model`."""
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
            "`output` must be the name of the model's output of logits, one of "
            f"{names}. Received: output={name!r}"
        )
    output = outputs[name]
    if len(output.shape) != 3 or output.shape[-1] is None:
        raise ValueError(
            f"The model's output '{name}' must be logits of shape (batch, length, "
            f"vocabulary size). Received: shape={tuple(output.shape)}"
        )
    return output


def model_up_to_logits(model: keras.Model, name: str | None = None) -> keras.Model:
    """Return `model` up to its logits, without the inputs that these do not need.

    Args:
        model: a built Functional `keras.Model`.
        name: name of the output, see `find_output`.

    Returns:
        `model` itself if it has no other output, otherwise a Functional model of the
        same layers.
    """
    output = find_output(model, name)
    if len(model.outputs) == 1:
        return model
    parts = _PARTS.setdefault(model, {})
    if id(output) in parts:
        return parts[id(output)]
    # Of the recorded calls: a nested model stays one call.
    needed = functional.ancestors(functional.top_level_calls(model), [output])
    inputs = [tensor for tensor in model.inputs if id(tensor) in needed]
    part = keras.Model({tensor.name: tensor for tensor in inputs}, output)
    parts[id(output)] = part
    return part


def max_positions(calls: Sequence[functional.Call]) -> int | None:
    """Return the largest length that all learned position embeddings support.

    None: there is no limit. Calls with `positions=` do not count: BERT's token type
    embedding is a `PositionEmbedding` called in this way.
    """
    return functional.min_attribute(calls, "sequence_length", unless="positions")


def vocabulary_sizes(model: keras.Model) -> dict[str, int]:
    """Return the number of token ids of each input that an embedding reads."""
    sizes: dict[str, int] = {}
    for name, call in _calls_on_inputs(model):
        size = getattr(call.operation, "input_dim", None)
        if isinstance(size, int):
            sizes[name] = min(size, sizes.get(name, size))
    return sizes


def padding_ids(model: keras.Model) -> dict[str, int]:
    """Return the padding id of each input with an implicit mask, the id it masks.

    The mask is that of an embedding, or of a comparison,
    `keras.ops.not_equal(ids, padding_id)`.
    """
    ids: dict[str, int] = {}
    for name, call in _calls_on_inputs(model):
        operation = call.operation
        if type(operation).__name__ == "NotEqual":  # Keras has no public name for it.
            padding_id = next((x for x in call.args if isinstance(x, int)), None)
        else:
            masks_zero = getattr(operation, "mask_zero", False)
            padding_id = getattr(operation, "padding_id", 0 if masks_zero else None)
        if padding_id is not None:
            ids[name] = padding_id
    return ids


def default_padding_id(ids: Mapping[str, int], name: str, num_ids: int) -> int | None:
    """Return the padding id of input `name`, or of another input, below `num_ids`."""
    for padding_id in (ids.get(name), *ids.values()):
        if padding_id is not None and 0 <= padding_id < num_ids:
            return padding_id
    return None


def _calls_on_inputs(model: keras.Model) -> Iterator[tuple[str, functional.Call]]:
    """Yield the name of an input and each call that has it as an argument."""
    names = {id(tensor): tensor.name for tensor in model.inputs}
    for call in functional.read_graph(model).calls:
        for tensor in call.inputs:
            if id(tensor) in names:
                yield names[id(tensor)], call
