"""Attention weights of a trained model."""

from typing import Any

import keras
import numpy as np

from keras_attn._graph import functional
from keras_attn._graph.attention_probe import probe_attention
from keras_attn._types import Model, Tensor

__all__ = ["attention_maps"]


def attention_maps(model: Model, inputs: Any) -> dict[str, np.ndarray]:
    """Return the attention weights of every attention layer for one batch.

    The graph of the model is replayed with `return_attention_scores=True`. The model is
    not trained or changed, and needs no option to be set when it is built.

    Args:
        model: A Functional model that contains attention layers or Transformer blocks.
        inputs: Inputs of the model for one batch: arrays, tensors or nested lists, in
            the structure that the model is called with.

    Returns:
        A dict that maps layer names to float NumPy arrays of shape (B, N, T, S). Each
        row sums to one, or to zero if a query cannot attend to any key. A block with
        two attention layers has the entries `"name/self_attention"` and
        `"name/cross_attention"`.

    Raises:
        ValueError: If `model` is not Functional or has no attention layer, or if
            `inputs` do not have the structure of its inputs.

    Example:
        >>> import numpy as np
        >>> from keras_attn import inspection, models
        >>> model = models.transformer_translator(
        ...     20, num_layers=1, hidden_dim=8, intermediate_dim=8, num_heads=2
        ... )
        >>> ids = {"source": np.array([[5, 6, 7]]), "target": np.array([[1, 9]])}
        >>> for name, weights in inspection.attention_maps(model, ids).items():
        ...     print(name, weights.shape)
        decoder_0/cross_attention (1, 2, 2, 3)
        decoder_0/self_attention (1, 2, 2, 2)
        encoder_0 (1, 2, 3, 3)
    """
    functional.check_functional(model)
    maps = probe_attention(model).model(
        _matching_tensors(model, inputs), training=False
    )
    return {
        name: np.asarray(keras.ops.convert_to_numpy(value))
        for name, value in maps.items()
    }


def _matching_tensors(model: keras.Model, inputs: Any) -> Any:
    """Return `inputs` as tensors, in the structure of the model's own inputs."""
    structure = functional.input_structure(model)
    is_dict = isinstance(inputs, dict)
    names = [tensor.name for tensor in model.inputs]
    keys = list(structure) if isinstance(structure, dict) else names
    if set(keys) - set(inputs) if is_dict else isinstance(structure, dict):
        received = (
            f"keys {sorted(inputs)}" if is_dict else f"type {type(inputs).__name__}"
        )
        raise ValueError(
            f"`inputs` must be a dict with the inputs of the model, {sorted(keys)}. "
            f"Received: inputs of {received}"
        )
    if is_dict and not isinstance(structure, dict):
        inputs = [inputs[tensor.name] for tensor in model.inputs]
    if isinstance(structure, keras.KerasTensor):
        return _to_tensor(structure, inputs[0] if is_dict else inputs)
    keys = structure if isinstance(structure, dict) else range(len(structure))
    tensors = [_to_tensor(structure[key], inputs[key]) for key in keys]
    return dict(zip(keys, tensors)) if isinstance(structure, dict) else tensors


def _to_tensor(spec: keras.KerasTensor, values: Any) -> Tensor:
    """Convert `values` to a tensor with the dtype of a model input."""
    if hasattr(values, "to_tensor"):  # a ragged tensor, as returned by tokenizers
        values = values.to_tensor()
    return keras.ops.convert_to_tensor(values, dtype=spec.dtype)
