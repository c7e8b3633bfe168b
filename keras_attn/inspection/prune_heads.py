"""A smaller model: attention heads taken out of a trained one."""

import collections
import operator

import keras
import numpy as np

from keras_attn._graph import functional
from keras_attn._keras_internals import inner_layers, is_functional
from keras_attn.inspection.multi_head_layers import attention_parts, multi_head_layers

__all__ = ["prune_heads"]


def prune_heads(model, heads):
    """A copy of a model without some of its attention heads.

    The heads' projections are cut out of the weights; what stays is the same to the
    last bit. Where what a head added to its layer's output was zero, the outputs
    stay as they were. The copy shares nothing with `model`, and is not compiled.

    Args:
        model: a Functional model with multi-head attention layers of this library in
            it, alone or in blocks. It is left as it is.
        heads: a dict from layer name, as `attention_maps` and `head_importance` give
            it, to the list of the heads to take out, counted from 0. An empty dict
            gives a plain copy. A layer that is called several times, or stands in
            several blocks, loses what any of its names loses.

    Returns:
        A Functional (or Sequential) `keras.Model` with the inputs and outputs of
        `model`. (Of a published one, `.keras` files keep it: `checkpoints.save` has no
        way to say that layers differ in their heads.)

    Raises:
        ValueError: if `model` is not Functional; for a name that is no multi-head
            attention layer of it, a head that there is not, or all heads of a layer;
            if a layer cannot be made anew out of its config, or has adapters.

    Example:
        >>> importance = head_importance(model, validation_dataset)
        >>> least = {name: x.argsort()[: len(x) // 2] for name, x in importance.items()}
        >>> smaller = prune_heads(model, least)

    Reference:
        Michel et al. 2019, "Are Sixteen Heads Really Better than One?", section 4
        (https://arxiv.org/abs/1905.10650).
    """
    functional.check_functional(model)
    for path, layer in inner_layers(model):
        if getattr(layer, "lora_enabled", False):
            raise ValueError(
                "A model with adapters cannot be pruned: `merge_lora` or `remove_lora` "
                f"first. Received: adapters of layer '{path}'"
            )
    copier = _Copier(_kept_heads(model, heads) if heads else {})
    copy = copier.copy_model(model)
    copier.copy_weights()
    return copy


def _kept_heads(model, heads):
    """A dict from attention layer to the heads that it keeps, sorted."""
    layers = multi_head_layers(model)
    kept = {}
    for name, given in heads.items():
        if name not in layers:
            raise ValueError(
                "`heads` must name multi-head attention layers of the model, which are "
                f"{list(layers)}. Received: name={name!r}"
            )
        layer = layers[name]
        everything = range(layer.num_heads)
        try:
            pruned = {operator.index(head) for head in given}
        except TypeError:
            pruned = None
        if pruned is None or not pruned <= set(everything):
            raise ValueError(
                f"The heads to prune of '{name}' must be a list of ints from 0 to "
                f"{layer.num_heads - 1}. Received: heads={given!r}"
            )
        _check_heads_stand_alone(name, layer)
        kept[layer] = [x for x in kept.get(layer, everything) if x not in pruned]
        if not kept[layer]:
            raise ValueError(
                f"At least one of the {layer.num_heads} heads of '{name}' must stay. "
                f"Received: heads={given!r}"
            )
    return kept


def _check_heads_stand_alone(name, layer):
    """Raise where what a head is depends on the others beside it."""
    bias = layer._position.bias(layer.num_heads)
    if layer.cache_heads != layer.num_heads or bias is not None:
        raise ValueError(
            f"Heads of '{name}' cannot be pruned one by one: they share keys, or have "
            f"biases by their number. Received: num_key_value_heads={layer.num_key_value_heads}, "
            f"position={layer.position}"
        )


class _Copier:
    """Makes the layers of a model anew, those in `kept` with fewer heads."""

    def __init__(self, kept):
        self.kept = kept
        self.copies = {}  # layer -> its copy
        self.parts = collections.defaultdict(list)  # layer -> attentions copied apart

    def copy_model(self, model):
        if isinstance(model, keras.Sequential):
            copies = map(self.copy_of, model.layers)
            return keras.Sequential([_new(model.inputs[0]), *copies], name=model.name)
        inputs = functional.map_tensors(_new, model.input)
        values = dict(zip(map(id, model.inputs), functional.tensors_in(inputs)))
        for call in functional.unopened_calls(model):
            args, kwargs = functional.arguments_on(values, call.args, call.kwargs)
            outputs = self.copy_of(call.operation)(*args, **kwargs)
            values.update(zip(map(id, call.outputs), keras.tree.flatten(outputs)))
        outputs = functional.map_tensors(
            lambda tensor: values[id(tensor)], model.output
        )
        return keras.Model(inputs, outputs, name=model.name)

    def copy_of(self, operation):
        if not isinstance(operation, keras.layers.Layer):
            return operation  # It has no state.
        if operation not in self.copies:
            is_model = is_functional(operation)
            copy = self.copy_model if is_model else self._copy_layer
            self.copies[operation] = copy(operation)
        return self.copies[operation]

    def _copy_layer(self, layer):
        config = layer.get_config()
        if layer in self.kept:
            key_dim, value_dim = layer.head_dims
            config |= {
                "num_heads": len(self.kept[layer]),
                "key_dim": key_dim,
                "value_dim": value_dim,
            }
        for argument, part in attention_parts(layer).items():
            # One that was given may stand elsewhere as well.
            if part in self.kept or getattr(layer, argument) is not None:
                config[argument] = self.copy_of(part)
                self.parts[layer].append(part)
        return type(layer).from_config(config)

    def copy_weights(self):
        for layer, copy in self.copies.items():
            if is_functional(layer):
                continue
            parts = self.parts[layer]
            old = _weights(layer, parts)
            new = _weights(copy, [self.copies[part] for part in parts])
            if len(old) != len(new):
                raise ValueError(
                    f"Layer '{layer.name}' cannot be copied: made anew from its config "
                    f"it has other weights. Received: {len(old)} weights, and "
                    f"{len(new)} in the copy"
                )
            for values, axis, variable in zip(old, self._head_axes(layer), new):
                values = np.array(keras.ops.convert_to_numpy(values))
                if axis is not None:
                    values = np.take(values, self.kept[layer], axis)
                variable.assign(values)

    def _head_axes(self, layer):
        """Of each of the layer's weights, the axis of heads to take some from."""
        if layer not in self.kept:
            return [None] * len(layer.weights)
        # Kernels into heads (D, N, H) and biases (N, H); out of them (N, V, D), (D,).
        into = {"kernel": 1, "bias": 0}
        axes = {
            **dict.fromkeys(("query", "key", "value", "gate"), into),
            "attention_output": {"kernel": 0},
        }
        found = []
        for weight in _weights(layer, self.parts[layer]):
            *_, owner, name = ("", *weight.path.split("/"))
            axis = 0 if name == "sinks" else axes.get(owner, {}).get(name)
            found.append(axis)
        return found


def _new(tensor):
    """An input like the one that `tensor` is."""
    return keras.Input(
        batch_shape=tensor.shape,
        dtype=tensor.dtype,
        sparse=tensor.sparse,
        name=tensor.name,
    )


def _weights(layer, parts):
    """The weights of a layer but for those of `parts`."""
    apart = {id(weight) for part in parts for weight in part.weights}
    return [weight for weight in layer.weights if id(weight) not in apart]
