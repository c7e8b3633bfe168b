"""Attention weights of a trained model, read by replaying its graph."""

import keras

from keras_attn import graph

__all__ = ["attention_maps"]


class _WithScores(keras.layers.Layer):
    """Calls a layer with `return_attention_scores=True`, with the weights it has."""

    def __init__(self, call, **kwargs):
        super().__init__(dtype=call.operation.dtype_policy, **kwargs)
        self.layer = call.operation
        arguments = call.arguments()
        self.options = {
            name: value
            for name, value in arguments.items()
            if not graph.tensors_in(value)
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


def attention_maps(model, inputs):
    """Attention weights of every attention layer, for one batch.

    The model's graph is replayed with scores asked for; nothing is retrained, and no
    flag need have been set when the model was built.

    Args:
        model: a Functional model with attention layers or Transformer blocks in it.
        inputs: what the model is called on.

    Returns:
        A dict from layer name to weights `(B, N, T, S)`, NumPy floats. Rows sum to
        one, or to zero where a query had nothing to attend to. A block with two
        attentions gives `"name/self_attention"` and `"name/cross_attention"`.

    Raises:
        ValueError: if `model` is not Functional, or has no attention in it.

    Example:
        >>> maps = attention_maps(model, {"source": source_ids, "target": target_ids})
        >>> maps["decoder_5/cross_attention"].shape
        (1, 8, 12, 10)
    """
    graph.check_functional(model)
    probe = _probe(model)
    maps = probe(_tensors(model, inputs), training=False)
    return {name: keras.ops.convert_to_numpy(value) for name, value in maps.items()}


def _tensors(model, inputs):
    """`inputs` in the model's own structure, as tensors."""
    structure = graph.input_structure(model)
    given = inputs
    if isinstance(inputs, dict) and not isinstance(structure, dict):
        given = [inputs[tensor.name] for tensor in model.inputs]
    if isinstance(structure, keras.KerasTensor):
        return _tensor(structure, given[0] if isinstance(inputs, dict) else given)
    names = structure if isinstance(structure, dict) else range(len(structure))
    found = [_tensor(structure[name], given[name]) for name in names]
    return dict(zip(names, found)) if isinstance(structure, dict) else found


def _tensor(like, values):
    if hasattr(values, "to_tensor"):  # ragged, as tokenizers give
        values = values.to_tensor()
    return keras.ops.convert_to_tensor(values, dtype=like.dtype)


def _probe(model):
    """A model from the same inputs to the attention weights."""
    values = {id(tensor): tensor for tensor in model.inputs}
    maps = {}
    names = graph.Names()
    for call in graph.read(model).calls:
        args, kwargs = graph.map_tensors(
            lambda tensor: values[id(tensor)], (call.args, call.kwargs)
        )
        call = graph.Call(call.operation, args, kwargs, call.outputs)
        if call.accepts("return_attention_scores"):
            outputs = _replay_with_scores(call, maps)
        else:
            outputs = names.call(call.operation, args, kwargs)
        values.update(zip(map(id, call.outputs), keras.tree.flatten(outputs)))
    if not maps:
        raise ValueError(
            "`model` must have an attention layer. Received: a model with the layers "
            f"{[layer.name for layer in model.layers]}"
        )
    inputs = graph.input_structure(model)
    return keras.Model(inputs, {name: maps[name] for name in sorted(maps)})


def _replay_with_scores(call, maps):
    used = {known.split("/")[0] for known in maps}
    name = graph.unused_name(call.operation.name, used)
    tensors = {n: v for n, v in call.arguments().items() if graph.tensors_in(v)}
    output, scores = _WithScores(call, name=f"{name}_scores")(tensors)
    if isinstance(scores, dict):
        maps.update({f"{name}/{part}": value for part, value in scores.items()})
    else:
        maps[name] = scores
    if len(call.outputs) > 1:  # the model asked for scores itself
        return output, scores
    return output
