"""Attention weights of a trained model, read by replaying its graph."""

import keras

from keras_attn._graph import functional
from keras_attn._graph.attention_probe import probe

__all__ = ["attention_maps"]


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
    functional.check_functional(model)
    maps = probe(model).model(_tensors(model, inputs), training=False)
    return {name: keras.ops.convert_to_numpy(value) for name, value in maps.items()}


def _tensors(model, inputs):
    """`inputs` in the model's own structure, as tensors."""
    structure = functional.input_structure(model)
    is_dict = isinstance(inputs, dict)
    names = [tensor.name for tensor in model.inputs]
    keys = list(structure) if isinstance(structure, dict) else names
    if set(keys) - set(inputs) if is_dict else isinstance(structure, dict):
        found = f"keys {sorted(inputs)}" if is_dict else f"type {type(inputs).__name__}"
        raise ValueError(
            f"`inputs` must be a dict that holds the model's inputs {sorted(keys)}. "
            f"Received: inputs of {found}"
        )
    given = inputs
    if is_dict and not isinstance(structure, dict):
        given = [inputs[tensor.name] for tensor in model.inputs]
    if isinstance(structure, keras.KerasTensor):
        return _tensor(structure, given[0] if is_dict else given)
    names = structure if isinstance(structure, dict) else range(len(structure))
    found = [_tensor(structure[name], given[name]) for name in names]
    return dict(zip(names, found)) if isinstance(structure, dict) else found


def _tensor(like, values):
    if hasattr(values, "to_tensor"):  # ragged, as tokenizers give
        values = values.to_tensor()
    return keras.ops.convert_to_tensor(values, dtype=like.dtype)
