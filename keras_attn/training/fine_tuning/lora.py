"""Low-rank adapters on the dense layers of a model: on, merged, and off again."""

import contextlib
import gc
import re

import keras

from keras_attn._keras_internals import inner_layers
from keras_attn.ops import low_rank
from keras_attn.training.fine_tuning.compiled_state import (
    forget_functions,
    make_all_trainable,
)
from keras_attn.training.fine_tuning.freeze import unfreeze

__all__ = ["enable_lora", "merge_lora", "remove_lora"]


def enable_lora(
    model, rank, pattern=r"(^|/)(query|value)$", alpha=None, also_train=None
):
    """Gives dense layers low-rank adapters, which alone train from then on.

    A kernel stays as it is; `alpha / rank * a @ b` is added to it, where `a` is random
    and `b` starts at zero, so that the model's outputs do not change at first. The
    adapters are those of Keras's own `enable_lora`.

    Compile the model afterwards to train it: an optimizer knows the weights it was
    made for. Files keep the adapters. `keras.models.load_model` gives them back with
    what is frozen, and training goes on; in a layer of a class of your own, do as with
    weights alone: build the model, call this, and `load_weights`. A model without
    adapters reads such weights as merged.

    Args:
        model: a built `keras.Model`.
        rank: int, of the adapters.
        pattern: regular expression to be found in the path of a layer, as
            `"encoder_0/self_attention/query"`. Default: queries and values of
            attention, as in the paper.
        alpha: number; the adapters are scaled by `alpha / rank`. Default: `rank`.
        also_train: regular expression to be found in the paths of layers that train
            as they are, `"^(pooler|logits)$"` for a fresh head. All else is frozen.

    Returns:
        A list of the paths of the layers that have adapters now.

    Raises:
        ValueError: if the model is not built or has adapters already, if a pattern
            matches nothing, or if a layer it matches is quantized, has a constraint
            on its kernel, or is one that Keras would not read back: its own dense
            layers, and embeddings, set both adapters to zero when they are loaded,
            which then never train again.

    Example:
        >>> model = checkpoints.load("bert-base-uncased", num_classes=4)
        >>> enable_lora(model, rank=8, also_train="^(pooler|logits)$")
        >>> model.compile(keras.optimizers.Adam(1e-3), loss)

    Reference:
        Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models"
        (https://arxiv.org/abs/2106.09685).
    """
    if not hasattr(rank, "__index__") or isinstance(rank, bool) or rank < 1:
        raise ValueError(f"`rank` must be a positive int. Received: {rank=}")
    if not model.built:
        raise ValueError(f"`model` must be built. Received: model={model}")
    layers = dict(inner_layers(model))
    with_adapters = [path for path in layers if _has_adapters(layers[path])]
    if with_adapters:
        raise ValueError(
            "`model` must have no adapters yet. Received: adapters of "
            f"{_listed(with_adapters)}"
        )
    able = {path: x for path, x in layers.items() if hasattr(x, "enable_lora")}
    chosen = _matching("pattern", pattern, able)
    for path, layer in chosen.items():
        _check(path, layer)
    heads = {}
    if also_train is not None:
        with_weights = {path: x for path, x in layers.items() if x.weights}
        heads = _matching("also_train", also_train, with_weights)
    trained = [weight for layer in heads.values() for weight in layer.weights]
    make_all_trainable(model)  # first, since Keras now freezes kernels
    for layer in chosen.values():
        layer.enable_lora(rank, lora_alpha=alpha)
        trained += [layer.lora_kernel_a, layer.lora_kernel_b]
    _train_only(model, trained)
    forget_functions(model)
    return list(chosen)


def merge_lora(model):
    """Adds the adapters of a model to the kernels they belong to, and takes them off.

    The outputs stay as they are, up to rounding. All of the model is trainable
    afterwards; compile it to train it.

    Args:
        model: a `keras.Model` with adapters.

    Raises:
        ValueError: if it has none, or a layer with some is quantized.

    Example:
        >>> merge_lora(model)
        >>> checkpoints.save(model, "classifier")
    """
    with _quick_collection():
        for layer in _layers_with_adapters(model):
            scale = layer.lora_alpha / layer.lora_rank
            a, b = _take_off(layer)
            layer.kernel.assign(low_rank.merged(layer.kernel, a, b, scale))
            _silence(b)
    unfreeze(model)


def remove_lora(model):
    """Takes the adapters of a model off; its kernels are what they were before.

    All of the model is trainable afterwards; compile it to train it.

    Args:
        model: a `keras.Model` with adapters.

    Raises:
        ValueError: if it has none, or a layer with some is quantized.

    Example:
        >>> remove_lora(model)
    """
    with _quick_collection():
        for layer in _layers_with_adapters(model):
            _silence(_take_off(layer)[1])
    unfreeze(model)


def _has_adapters(layer):
    return getattr(layer, "lora_enabled", False)


def _matching(argument, pattern, layers):
    """Those of the layers in whose path the pattern is found, each once, by path."""
    found, seen = {}, set()
    for path, layer in layers.items():
        if re.search(pattern, path) and id(layer) not in seen:
            found[path] = layer
            seen.add(id(layer))
    if not found:
        raise ValueError(
            f"`{argument}` must be found in the path of one of the layers "
            f"{_listed(layers)}. Received: {argument}={pattern!r}"
        )
    return found


def _listed(paths, most=12):
    more = f" and {len(paths) - most} more" if len(paths) > most else ""
    return f"{[*paths][:most]}{more}"


def _check(path, layer):
    if not getattr(layer, "keeps_adapters", False):
        raise ValueError(
            "Adapters are for the dense layers of keras_attn: those of other layers "
            "are zeros once they are read from a file, and never train again. Train "
            f"it whole with `also_train`. Received: layer '{path}', a "
            f"{type(layer).__name__} of {type(layer).__module__}"
        )
    _check_quantization(path, layer)
    if layer.kernel_constraint is not None:
        raise ValueError(
            "A kernel with adapters can have no constraint. "
            f"Received: layer '{path}', constraint {layer.kernel_constraint}"
        )


def _check_quantization(path, layer):
    if layer.quantization_mode is not None:
        raise ValueError(
            "Adapters are for layers that are not quantized. "
            f"Received: layer '{path}', quantized to {layer.quantization_mode}"
        )


def _train_only(model, weights):
    """Freezes all other weights, and layers as a whole where none is of these."""
    kept = {id(weight) for weight in weights}
    for _, layer in inner_layers(model):
        if layer.weights and kept.isdisjoint(map(id, layer.weights)):
            layer.trainable = False
    for weight in model.trainable_weights:
        weight.trainable = id(weight) in kept


def _layers_with_adapters(model):
    found = {}
    for path, layer in inner_layers(model):
        if _has_adapters(layer):
            _check_quantization(path, layer)
            found[id(layer)] = layer
    if not found:
        raise ValueError(
            f"`model` must have adapters, from `enable_lora`. Received: model={model}"
        )
    return list(found.values())


@contextlib.contextmanager
def _quick_collection():
    """Keras collects garbage after each weight that a layer loses: of what is made
    inside alone, for the whole of a large process takes seconds each time."""
    if gc.get_freeze_count():  # by the user, who wants it so
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _silence(adapter):
    """Has what was traced with an adapter go on without it."""
    adapter.assign(keras.ops.zeros(adapter.shape, dtype=adapter.dtype))


def _take_off(layer):
    """Leaves the layer without its two adapters, which it returns."""
    adapters = layer.lora_kernel_a, layer.lora_kernel_b
    del layer.lora_kernel_a, layer.lora_kernel_b
    layer.lora_enabled = False
    layer.lora_rank = layer.lora_alpha = None
    layer.kernel.trainable = True
    return adapters
