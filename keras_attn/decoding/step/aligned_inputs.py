"""Which of the tensors that do not depend on the target run beside it.

Segment ids do, position by position; an encoder's output that is attended to does
not. Where both lengths are free their shapes look alike. So each call is tried with a
target of one length and other tensors of another: what makes it fail runs beside.
"""

import itertools

import keras

from keras_attn._graph import functional
from keras_attn.decoding.step.recurrent import has_step

__all__ = ["beside_the_target", "may_run_beside"]

# Small, since learned positions may be few; not 1, which goes with every length.
TARGET_LENGTH, OTHER_LENGTH = 2, 3


def beside_the_target(calls, moving, target):
    """What calls read at the positions of their target tokens only.

    Layers with a cache are left out: they say themselves what is a context.

    Args:
        calls: those of a `Graph` that are to be replayed.
        moving: ids of the tensors that depend on the target.
        target: the `keras.KerasTensor` of the target ids.

    Returns:
        A dict from such calls to sets of `id(tensor)`.
    """
    if not any(_candidates(call, moving) for call in calls):
        return {}
    known = {id(target): _moving_spec(target)}
    found = {}
    for call in calls:
        candidates = _candidates(call, moving)
        for chosen in _subsets(candidates):
            outputs = _outputs(call, known, chosen, traced=bool(candidates))
            if outputs is not None:
                break
        else:
            chosen, outputs = (), [_moving_spec(tensor) for tensor in call.outputs]
        known.update(zip(map(id, call.outputs), outputs))
        if chosen:
            found[call] = {id(tensor) for tensor in chosen}
    return found


def may_run_beside(tensor):
    """Whether it has positions, and not one that goes with all of the target's."""
    return len(tensor.shape) > 1 and tensor.shape[1] != 1


def _candidates(call, moving):
    if has_step(call.operation):
        return []
    tensors = {id(tensor): tensor for tensor in call.inputs if id(tensor) not in moving}
    return [tensor for tensor in tensors.values() if may_run_beside(tensor)]


def _subsets(tensors):
    """None of them first, all of them last."""
    for size in range(len(tensors) + 1):
        yield from itertools.combinations(tensors, size)


def _outputs(call, known, beside, traced):
    """The call's output specs, `beside` being as long as the target; None if it fails.

    Args:
        call: a `Call`.
        known: id -> spec of the moving tensors so far.
        beside: fixed tensors.
        traced: bool, whether to trace the call, since a layer may tell the shape of
            its output without a look at all of its inputs.
    """
    beside = {id(tensor) for tensor in beside}

    def spec(tensor):
        if id(tensor) in known:
            return known[id(tensor)]
        return _moving_spec(tensor) if id(tensor) in beside else _fixed_spec(tensor)

    operation = call.operation
    if has_step(operation):
        return [_moving_spec(tensor) for tensor in call.outputs]
    args, kwargs = functional.map_tensors(spec, (call.args, call.kwargs))
    try:
        if traced:
            run = _Run(call)
            outputs = run.compute_output_spec([spec(tensor) for tensor in call.inputs])
        else:
            outputs = operation.compute_output_spec(*args, **kwargs)
    except Exception:
        # Each backend and layer has errors of its own for shapes that do not fit.
        return None
    outputs = keras.tree.flatten(outputs)
    return outputs if len(outputs) == len(call.outputs) else None


class _Run(keras.layers.Layer):
    """A call as a layer of its own, whose output shape Keras finds by tracing it."""

    def __init__(self, call):
        super().__init__(dtype=getattr(call.operation, "dtype_policy", None))
        self._call = lambda: call  # in a lambda, or Keras would track what is in it
        self.built = True

    def call(self, tensors):
        return functional.call_again(self._call(), tensors)


def _moving_spec(tensor):
    return _spec(tensor, (tensor.shape[0], TARGET_LENGTH, *tensor.shape[2:]))


def _fixed_spec(tensor):
    return _spec(tensor, tensor.shape)


def _spec(tensor, shape):
    batch, *axes = shape
    axes = [OTHER_LENGTH if axis is None else axis for axis in axes]
    return keras.KerasTensor((batch, *axes), dtype=tensor.dtype)
