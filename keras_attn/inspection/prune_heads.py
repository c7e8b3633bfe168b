"""Removal of attention heads from a trained model."""

import collections
import operator
from collections.abc import Iterable, Mapping
from typing import Any, cast

import keras
import numpy as np

from keras_attn._graph import functional
from keras_attn._keras_internals import inner_layers, is_functional
from keras_attn._types import Model
from keras_attn.inspection.multi_head_layers import attention_parts, multi_head_layers
from keras_attn.layers.attention.multi_head_attention import MultiHeadLayer

__all__ = ["prune_heads"]


def prune_heads(model: Model, heads: Mapping[str, Iterable[int]]) -> keras.Model:
    """Copy a model without some of its attention heads.

    The slices of the pruned heads are removed from the weights of the projections; all
    other values are copied bit by bit. If the contribution of a pruned head to the
    output of its layer was zero, the outputs of the model do not change. The copy
    shares no weights with `model` and is not compiled.

    Args:
        model: A Functional model that contains multi-head attention layers of
            keras_attn, alone or in blocks. It is not changed.
        heads: Dict that maps layer names, as returned by `attention_maps` and
            `head_importance`, to the indices of the heads to remove, counted from 0. An
            empty dict copies the model. If a layer has several names, because it is
            called several times or shared by several blocks, the heads of all its names
            are removed.

    Returns:
        A Functional (or Sequential) `keras.Model` with the inputs and outputs of
        `model`. A pruned published model can be saved as a `.keras` file, but not with
        `checkpoints.save`, whose format requires the same number of heads in all
        layers.

    Raises:
        ValueError: If `model` is not Functional; if a name is not that of a multi-head
            attention layer; if a head does not exist, or all heads of a layer are to be
            removed; or if a layer cannot be recreated from its config, has adapters,
            shares keys and values between heads, or has a bias per head.

    Example:
        >>> from keras_attn import inspection, models
        >>> model = models.transformer_translator(
        ...     20, num_layers=1, hidden_dim=8, intermediate_dim=8, num_heads=2
        ... )
        >>> smaller = inspection.prune_heads(model, {"encoder_0": [1]})
        >>> # 3 projections 8 -> 4 with biases, and an output projection 4 -> 8.
        >>> model.count_params() - smaller.count_params()
        140

    Reference:
        Michel et al., 2019, "Are Sixteen Heads Really Better than One?", section 4,
        https://arxiv.org/abs/1905.10650
    """
    functional.check_functional(model)
    for path, layer in inner_layers(model):
        if getattr(layer, "lora_enabled", False):
            raise ValueError(
                "A model with adapters cannot be pruned: call `merge_lora` or "
                f"`remove_lora` first. Received: adapters of layer '{path}'"
            )
    copier = _ModelCopier(_remaining_heads(model, heads) if heads else {})
    copy = copier.copy_model(model)
    copier.copy_weights()
    return copy


def _remaining_heads(
    model: keras.Model, heads: Mapping[str, Iterable[int]]
) -> dict[keras.layers.Layer, list[int]]:
    """Return a dict from each pruned attention layer to its remaining heads, sorted."""
    layers = multi_head_layers(model)
    remaining: dict[keras.layers.Layer, list[int]] = {}
    for name, layer_heads in heads.items():
        if name not in layers:
            raise ValueError(
                "`heads` must name multi-head attention layers of the model, which are "
                f"{list(layers)}. Received: name={name!r}"
            )
        layer = layers[name]
        all_heads = range(layer.num_heads)
        try:
            pruned = {operator.index(head) for head in layer_heads}
        except TypeError:
            pruned = None
        if pruned is None or not pruned <= set(all_heads):
            raise ValueError(
                f"The heads of '{name}' to prune must be a list of ints from 0 to "
                f"{layer.num_heads - 1}. Received: heads={layer_heads!r}"
            )
        _check_independent_heads(name, layer)
        remaining[layer] = [
            head for head in remaining.get(layer, all_heads) if head not in pruned
        ]
        if not remaining[layer]:
            raise ValueError(
                f"At least one of the {layer.num_heads} heads of '{name}' must remain. "
                f"Received: heads={layer_heads!r}"
            )
    return remaining


def _check_independent_heads(name: str, layer: Any) -> None:
    """Raise a ValueError if a head cannot be removed without changing the others."""
    if not isinstance(layer, MultiHeadLayer):
        return
    shares_keys = layer.num_key_value_heads not in (None, layer.num_heads)
    if shares_keys or layer._position.position_bias is not None:
        raise ValueError(
            f"Heads of '{name}' cannot be pruned individually: they share keys and "
            "values or have a position bias per head. Received: "
            f"num_key_value_heads={layer.num_key_value_heads}, "
            f"position={layer.position}"
        )


class _ModelCopier:
    """Copies a model and removes heads from its attention layers.

    Args:
        remaining_heads: Dict from each pruned attention layer to its remaining heads.
    """

    def __init__(self, remaining_heads: dict[keras.layers.Layer, list[int]]) -> None:
        self.remaining_heads = remaining_heads
        # layer -> copy
        self.copies: dict[keras.layers.Layer, Any] = {}
        # block -> its attention layers that are copied separately
        self.parts: dict[keras.layers.Layer, list[keras.layers.Layer]] = (
            collections.defaultdict(list)
        )

    def copy_model(self, model: keras.Model) -> keras.Model:
        if isinstance(model, keras.Sequential):
            copies = map(self.copy_operation, model.layers)
            return keras.Sequential(
                [_new_input(model.inputs[0]), *copies], name=model.name
            )
        inputs = functional.map_tensors(_new_input, model.input)
        values = dict(zip(map(id, model.inputs), functional.tensors_in(inputs)))
        for call in functional.top_level_calls(model):
            args, kwargs = functional.substitute_tensors(values, call.args, call.kwargs)
            outputs = self.copy_operation(call.operation)(*args, **kwargs)
            values.update(zip(map(id, call.outputs), keras.tree.flatten(outputs)))
        outputs = functional.map_tensors(
            lambda tensor: values[id(tensor)], model.output
        )
        pruned = keras.Model(inputs, outputs, name=model.name)
        pruned.dtype_policy = model.dtype_policy  # Keras scales the loss by it.
        return pruned

    def copy_operation(self, operation: Any) -> Any:
        if not isinstance(operation, keras.layers.Layer):
            return operation  # an op without state
        if operation not in self.copies:
            is_model = is_functional(operation)
            copy = self.copy_model if is_model else self._copy_layer
            self.copies[operation] = copy(operation)
        return self.copies[operation]

    def _copy_layer(self, layer: Any) -> keras.layers.Layer:
        config = layer.get_config()
        if layer in self.remaining_heads:
            key_dim, value_dim = layer.head_dims
            config |= {
                "num_heads": len(self.remaining_heads[layer]),
                "key_dim": key_dim,
                "value_dim": value_dim,
            }
        for argument, part in attention_parts(layer).items():
            # An attention layer passed by the user may be shared with other blocks.
            if part in self.remaining_heads or getattr(layer, argument) is not None:
                config[argument] = self.copy_operation(part)
                self.parts[layer].append(part)
        return type(layer).from_config(config)

    def copy_weights(self) -> None:
        for layer, copy in self.copies.items():
            if is_functional(layer):
                continue
            parts = self.parts[layer]
            weights = _weights_without(layer, parts)
            new_weights = _weights_without(copy, [self.copies[part] for part in parts])
            if len(weights) != len(new_weights):
                raise ValueError(
                    f"Layer '{layer.name}' cannot be copied: recreated from its config "
                    f"it has other weights. Received: {len(weights)} weights, and "
                    f"{len(new_weights)} in the copy"
                )
            head_axes = self._head_axes(layer)
            for weight, axis, new_weight in zip(weights, head_axes, new_weights):
                values = np.array(keras.ops.convert_to_numpy(weight))
                if axis is not None:
                    values = np.take(values, self.remaining_heads[layer], axis)
                new_weight.assign(values)

    def _head_axes(self, layer: keras.layers.Layer) -> list[int | None]:
        """Return the head axis of each weight of a layer, None if nothing is pruned."""
        if layer not in self.remaining_heads:
            return [None] * len(layer.weights)
        # Input projections: kernel (D, N, H), bias (N, H). Output projection: kernel
        # (N, V, D), bias (D,).
        input_axes = {"kernel": 1, "bias": 0}
        axes = {
            **dict.fromkeys(("query", "key", "value", "gate"), input_axes),
            "attention_output": {"kernel": 0},
        }
        head_axes = []
        for weight in _weights_without(layer, self.parts[layer]):
            *_, owner, name = ("", *weight.path.split("/"))
            axis = 0 if name == "sinks" else axes.get(owner, {}).get(name)
            head_axes.append(axis)
        return head_axes


def _new_input(tensor: keras.KerasTensor) -> keras.KerasTensor:
    """Return a new model input with the shape, dtype and name of another."""
    new_input = keras.Input(
        batch_shape=tensor.shape,
        dtype=tensor.dtype,
        sparse=tensor.sparse,
        name=tensor.name,
    )
    return cast(keras.KerasTensor, new_input)


def _weights_without(
    layer: keras.layers.Layer, parts: Iterable[keras.layers.Layer]
) -> list[keras.Variable]:
    """Return the weights of a layer except for those of `parts`."""
    excluded = {id(weight) for part in parts for weight in part.weights}
    return [weight for weight in layer.weights if id(weight) not in excluded]
