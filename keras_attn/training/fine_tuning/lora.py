"""Low-rank adapters for the dense layers of a model: add, merge and remove."""

import contextlib
import gc
import re
from collections.abc import Iterable, Iterator, Mapping

import keras

from keras_attn._keras_internals import inner_layers
from keras_attn._types import Model
from keras_attn.ops import low_rank
from keras_attn.training.fine_tuning.compiled_state import (
    make_all_trainable,
    reset_compiled_functions,
)
from keras_attn.training.fine_tuning.freeze import unfreeze

__all__ = ["enable_lora", "merge_lora", "remove_lora"]


def enable_lora(
    model: Model,
    rank: int,
    pattern: str = r"(^|/)(query|value)$",
    alpha: float | None = None,
    also_train: str | None = None,
) -> list[str]:
    """Add low-rank adapters to dense layers and freeze all other weights.

    The kernel of a layer is kept, and `alpha / rank * a @ b` is added to it. `a` is
    initialized randomly and `b` with zeros, so that the outputs of the model do not
    change at first. The adapters are those of the `enable_lora` method of Keras layers.

    Compile the model afterwards to train it, since an optimizer is built for a fixed
    list of weights. Saved models include the adapters. `keras.models.load_model`
    restores them and the frozen weights, so that training can continue. For a model
    with layers of a custom class, or if only the weights are saved, build the model,
    call this function, and call `load_weights`. A model without adapters loads such
    weights in merged form.

    Args:
        model: A built `keras.Model`.
        rank: Positive int. Rank of the adapters.
        pattern: Regular expression to search in the path of a layer, such as
            `"encoder_0/self_attention/query"`. The default matches the query and value
            projections of attention layers, as in the paper.
        alpha: Number. The adapters are scaled by `alpha / rank`. Defaults to `None`,
            which selects `rank`.
        also_train: Regular expression to search in the paths of layers that are
            trained in full, such as `"^(pooler|logits)$"` for a new head. Defaults to
            `None`: only the adapters are trained.

    Returns:
        A list of the paths of the layers that have adapters.

    Raises:
        ValueError: If `rank` is not a positive int; if the model is not built or has
            adapters already; if a pattern matches no layer; or if a layer that
            `pattern` matches is quantized, has a kernel constraint, or would lose its
            adapters on loading: the dense and embedding layers of Keras load both
            adapters as zeros, which can never be trained again.

    Example:
        >>> from keras_attn import models, training
        >>> model = models.text_classifier(
        ...     20, 3, num_layers=1, hidden_dim=8, intermediate_dim=8, num_heads=2
        ... )
        >>> training.enable_lora(model, rank=2, also_train="^logits$")
        ['encoder_0/self_attention/query', 'encoder_0/self_attention/value']
        >>> for weight in model.trainable_weights:
        ...     print(weight.path)
        encoder_0/self_attention/query/lora_kernel_a
        encoder_0/self_attention/query/lora_kernel_b
        encoder_0/self_attention/value/lora_kernel_a
        encoder_0/self_attention/value/lora_kernel_b
        logits/kernel
        logits/bias

    Reference:
        Hu et al., 2021, "LoRA: Low-Rank Adaptation of Large Language Models",
        https://arxiv.org/abs/2106.09685
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
            f"{_shortened(with_adapters)}"
        )
    candidates = {path: x for path, x in layers.items() if hasattr(x, "enable_lora")}
    adapted = _matching("pattern", pattern, candidates)
    for path, layer in adapted.items():
        _check_supported(path, layer)
    fully_trained = {}
    if also_train is not None:
        with_weights = {path: x for path, x in layers.items() if x.weights}
        fully_trained = _matching("also_train", also_train, with_weights)
    trained = [weight for layer in fully_trained.values() for weight in layer.weights]
    make_all_trainable(model)  # before `Layer.enable_lora`, which freezes the kernel
    for layer in adapted.values():
        layer.enable_lora(rank, lora_alpha=alpha)
        trained += [layer.lora_kernel_a, layer.lora_kernel_b]
    _freeze_all_except(model, trained)
    reset_compiled_functions(model)
    return list(adapted)


def merge_lora(model: Model) -> None:
    """Add the adapters of a model to its kernels and remove them.

    The outputs do not change, up to rounding. All weights of the model are trainable
    afterwards; compile it to train it.

    Args:
        model: A `keras.Model` with adapters.

    Raises:
        ValueError: If the model has no adapters, or if a layer with adapters is
            quantized.

    Example:
        >>> from keras_attn import models, training
        >>> model = models.text_classifier(
        ...     20, 3, num_layers=1, hidden_dim=8, intermediate_dim=8, num_heads=2
        ... )
        >>> paths = training.enable_lora(model, rank=2)
        >>> training.merge_lora(model)
        >>> [w.path for w in model.weights if "lora" in w.path]
        []
    """
    with _limited_garbage_collection():
        for layer in _layers_with_adapters(model):
            scale = layer.lora_alpha / layer.lora_rank
            a, b = _detach_adapters(layer)
            layer.kernel.assign(low_rank.merge_adapter(layer.kernel, a, b, scale))
            _zero(b)
    unfreeze(model)


def remove_lora(model: Model) -> None:
    """Remove the adapters of a model, which restores its original kernels.

    All weights of the model are trainable afterwards; compile it to train it.

    Args:
        model: A `keras.Model` with adapters.

    Raises:
        ValueError: If the model has no adapters, or if a layer with adapters is
            quantized.

    Example:
        >>> from keras_attn import models, training
        >>> model = models.text_classifier(
        ...     20, 3, num_layers=1, hidden_dim=8, intermediate_dim=8, num_heads=2
        ... )
        >>> paths = training.enable_lora(model, rank=2)
        >>> training.remove_lora(model)
        >>> [w.path for w in model.weights if "lora" in w.path]
        []
    """
    with _limited_garbage_collection():
        for layer in _layers_with_adapters(model):
            _zero(_detach_adapters(layer)[1])
    unfreeze(model)


def _has_adapters(layer: keras.layers.Layer) -> bool:
    return getattr(layer, "lora_enabled", False)


def _matching(
    argument: str, pattern: str, layers: Mapping[str, keras.layers.Layer]
) -> dict[str, keras.layers.Layer]:
    """Return the layers whose path contains the pattern, each under one path."""
    matching, seen = {}, set()
    for path, layer in layers.items():
        if re.search(pattern, path) and id(layer) not in seen:
            matching[path] = layer
            seen.add(id(layer))
    if not matching:
        raise ValueError(
            f"`{argument}` must match the path of at least one of the layers "
            f"{_shortened(layers)}. Received: {argument}={pattern!r}"
        )
    return matching


def _shortened(paths: Iterable[str], limit: int = 12) -> str:
    """Return the first paths and the number of the others as a string."""
    paths = [*paths]
    more = f" and {len(paths) - limit} more" if len(paths) > limit else ""
    return f"{paths[:limit]}{more}"


def _check_supported(path: str, layer: keras.layers.Layer) -> None:
    """Raise a ValueError if a layer cannot have adapters."""
    if not getattr(layer, "saves_lora_adapters", False):
        raise ValueError(
            "Adapters require dense layers of keras_attn: other layers load their "
            "adapters from a file as zeros, which can never be trained again. Train "
            f"the layer in full with `also_train`. Received: layer '{path}', a "
            f"{type(layer).__name__} of {type(layer).__module__}"
        )
    _check_not_quantized(path, layer)
    if layer.kernel_constraint is not None:
        raise ValueError(
            "A layer with adapters cannot have a kernel constraint. "
            f"Received: layer '{path}', constraint {layer.kernel_constraint}"
        )


def _check_not_quantized(path: str, layer: keras.layers.Layer) -> None:
    """Raise a ValueError if a layer is quantized."""
    if layer.quantization_mode is not None:
        raise ValueError(
            "A layer with adapters cannot be quantized. "
            f"Received: layer '{path}', quantized to {layer.quantization_mode}"
        )


def _freeze_all_except(model: keras.Model, weights: list[keras.Variable]) -> None:
    """Freeze all other weights; layers without any of `weights` are frozen as such."""
    trainable_ids = {id(weight) for weight in weights}
    for _, layer in inner_layers(model):
        if layer.weights and trainable_ids.isdisjoint(map(id, layer.weights)):
            layer.trainable = False
    for weight in model.trainable_weights:
        weight.trainable = id(weight) in trainable_ids


def _layers_with_adapters(model: keras.Model) -> list[keras.layers.Layer]:
    """Return the layers with adapters, each once, or raise a ValueError."""
    layers = {}
    for path, layer in inner_layers(model):
        if _has_adapters(layer):
            _check_not_quantized(path, layer)
            layers[id(layer)] = layer
    if not layers:
        raise ValueError(
            f"`model` must have adapters, from `enable_lora`. Received: model={model}"
        )
    return list(layers.values())


@contextlib.contextmanager
def _limited_garbage_collection() -> Iterator[None]:
    """Limit garbage collection to objects that are created in this context.

    Keras collects garbage each time a layer loses a weight, which takes seconds per
    weight in a large process.
    """
    if gc.get_freeze_count():  # objects frozen by the user must stay frozen
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _zero(adapter: keras.Variable) -> None:
    """Assign zeros, which disables the adapter in functions traced with it."""
    adapter.assign(keras.ops.zeros(adapter.shape, dtype=adapter.dtype))


def _detach_adapters(
    layer: keras.layers.Layer,
) -> tuple[keras.Variable, keras.Variable]:
    """Remove both adapters from a layer and return them."""
    adapters = layer.lora_kernel_a, layer.lora_kernel_b
    del layer.lora_kernel_a, layer.lora_kernel_b
    layer.lora_enabled = False
    layer.lora_rank = layer.lora_alpha = None
    layer.kernel.trainable = True
    return adapters
