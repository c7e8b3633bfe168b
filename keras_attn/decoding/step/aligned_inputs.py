"""The tensors that are aligned with the target, though they do not depend on it.

Inputs such as segment ids do not depend on the target, but have one entry per target
position. An encoder output does not, though its shape `(B, None, D)` looks alike. To
distinguish them, each call is traced with a target of length 2 and all other tensors of
unknown length at length 3. If it fails, the smallest set of tensors is found that must
have length 2 as well: these are aligned with the target.
"""

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import keras

from keras_attn._graph import functional
from keras_attn._keras_internals import Untracked
from keras_attn.decoding.step.recurrent import is_cached

__all__ = ["find_aligned", "may_be_aligned"]

# Small, since learned positions may be few; not 1, which broadcasts to every length.
_TARGET_LENGTH, _OTHER_LENGTH = 2, 3


def find_aligned(
    calls: Sequence[functional.Call], dependent: set[int], target: keras.KerasTensor
) -> dict[functional.Call, set[int]]:
    """Return the inputs of calls that are read at the positions of the target only.

    Layers with a cache are left out: they declare which arguments are a context.

    Args:
        calls: the calls of a `Graph` that are replayed.
        dependent: ids of the tensors that depend on the target.
        target: the target input.

    Returns:
        A dict from such calls to sets of `id(tensor)`.
    """
    if not any(_candidates(call, dependent) for call in calls):
        return {}
    specs = {id(target): _aligned_spec(target)}
    result = {}
    for call in calls:
        candidates = _candidates(call, dependent)
        for chosen in _subsets(candidates):
            outputs = _output_specs(call, specs, chosen, is_traced=bool(candidates))
            if outputs is not None:
                break
        else:
            chosen, outputs = (), [_aligned_spec(tensor) for tensor in call.outputs]
        specs.update(zip(map(id, call.outputs), outputs))
        if chosen:
            result[call] = {id(tensor) for tensor in chosen}
    return result


def may_be_aligned(tensor: keras.KerasTensor) -> bool:
    """Return whether a tensor has a second axis that does not broadcast."""
    return len(tensor.shape) > 1 and tensor.shape[1] != 1


def _candidates(call: functional.Call, dependent: set[int]) -> list[keras.KerasTensor]:
    if is_cached(call.operation):
        return []
    tensors = {id(t): t for t in call.inputs if id(t) not in dependent}
    return [tensor for tensor in tensors.values() if may_be_aligned(tensor)]


def _subsets(tensors: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Yield all subsets, the empty one first and the whole one last."""
    for size in range(len(tensors) + 1):
        yield from itertools.combinations(tensors, size)


def _output_specs(
    call: functional.Call,
    specs: Mapping[int, keras.KerasTensor],
    aligned: Collection[keras.KerasTensor],
    is_traced: bool,
) -> list[keras.KerasTensor] | None:
    """Return the output specs of a call, or None if it fails.

    Args:
        call: the call.
        specs: id -> spec of the dependent tensors so far.
        aligned: fixed tensors that get the length of the target.
        is_traced: whether to trace the call, since a layer may compute the shape of its
            output without all of its inputs.
    """
    aligned_ids = {id(tensor) for tensor in aligned}

    def spec(tensor: keras.KerasTensor) -> keras.KerasTensor:
        if id(tensor) in specs:
            return specs[id(tensor)]
        is_aligned = id(tensor) in aligned_ids
        return _aligned_spec(tensor) if is_aligned else _fixed_spec(tensor)

    operation: Any = call.operation
    if is_cached(operation):
        return [_aligned_spec(tensor) for tensor in call.outputs]
    args, kwargs = functional.map_tensors(spec, (call.args, call.kwargs))
    try:
        if is_traced:
            traced = _TracedCall(call)
            outputs = traced.compute_output_spec([spec(t) for t in call.inputs])
        else:
            outputs = operation.compute_output_spec(*args, **kwargs)
    except Exception:
        # Each backend and layer has its own errors for shapes that do not fit.
        return None
    outputs = keras.tree.flatten(outputs)
    return outputs if len(outputs) == len(call.outputs) else None


class _TracedCall(keras.layers.Layer):
    """A call as a layer of its own, whose output shape Keras computes by tracing."""

    def __init__(self, call: functional.Call) -> None:
        super().__init__(dtype=getattr(call.operation, "dtype_policy", None))
        self._call = Untracked(call)
        self.built = True

    def call(self, tensors: list[Any]) -> Any:
        return functional.replay_call(self._call.value, tensors)


def _aligned_spec(tensor: keras.KerasTensor) -> keras.KerasTensor:
    return _spec(tensor, (tensor.shape[0], _TARGET_LENGTH, *tensor.shape[2:]))


def _fixed_spec(tensor: keras.KerasTensor) -> keras.KerasTensor:
    return _spec(tensor, tensor.shape)


def _spec(tensor: keras.KerasTensor, shape: Any) -> keras.KerasTensor:
    batch, *axes = shape
    axes = [_OTHER_LENGTH if axis is None else axis for axis in axes]
    return keras.KerasTensor((batch, *axes), dtype=tensor.dtype)
