"""Looking at the values of a tensor, where there are any."""

import keras
import numpy as np

__all__ = ["check_ids", "concrete"]


def check_ids(ids, bound, what, received="id"):
    """Raise where an id lies outside `[0, bound)`.

    Args:
        ids: an int or NumPy array of them.
        bound: int, or None where any id from 0 on will do.
        what: str, what the ids are, for the message.
        received: str, what to call the bad one in it.
    """
    ids = np.asarray(ids)
    if ids.dtype.kind not in "iu" and ids.size:
        raise ValueError(f"{what} must be ints. Received: {received}={ids.flat[0]!r}")
    outside = ids < 0 if bound is None else np.logical_or(ids < 0, ids >= bound)
    if outside.any():
        raise ValueError(
            f"{what} must be in [0, {bound or 'inf'}). "
            f"Received: {received}={ids[outside].flat[0]}"
        )


def concrete(tensor):
    """The values of `tensor` as a NumPy array, or None.

    None for what has no values yet (a symbolic or traced tensor), and for what lies
    on an accelerator under PyTorch, where a look would wait for all queued work.
    """
    if isinstance(tensor, keras.KerasTensor):
        return None
    if keras.backend.backend() == "torch" and tensor.device.type != "cpu":
        return None
    try:
        return keras.ops.convert_to_numpy(tensor)
    except Exception:  # Each backend has an exception of its own for "not yet".
        return None
