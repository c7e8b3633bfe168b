"""Static values of tensors, and a range check of token ids."""

import keras
import numpy as np

from keras_attn._types import Tensor

__all__ = ["check_ids", "static_value"]


def check_ids(
    ids: int | list[int] | np.ndarray,
    upper_bound: int | None,
    description: str,
    argument: str = "id",
) -> None:
    """Raise a ValueError if an id is not an int in `[0, upper_bound)`.

    Args:
        ids: An int, a list of ints or a NumPy array.
        upper_bound: The exclusive upper bound; `None` accepts every id from 0 on.
        description: The subject of the error message.
        argument: Name of the received value in the error message.
    """
    ids = np.asarray(ids)
    if ids.dtype.kind not in "iu" and ids.size:
        raise ValueError(
            f"{description} must be ints. Received: {argument}={ids.flat[0]!r}"
        )
    if upper_bound is None:
        out_of_range = ids < 0
    else:
        out_of_range = np.logical_or(ids < 0, ids >= upper_bound)
    if out_of_range.any():
        raise ValueError(
            f"{description} must be in [0, {upper_bound or 'inf'}). "
            f"Received: {argument}={ids[out_of_range].flat[0]}"
        )


def static_value(tensor: Tensor) -> np.ndarray | None:
    """Return the values of `tensor` as a NumPy array if they are available.

    They are if this needs neither tracing nor waiting for a device.

    Returns:
        The array, or `None` for a symbolic or traced tensor, and for a PyTorch tensor
        on an accelerator: copying it would wait for all queued work.
    """
    if isinstance(tensor, keras.KerasTensor):
        return None
    if keras.backend.backend() == "torch" and tensor.device.type != "cpu":
        return None
    try:
        return np.asarray(keras.ops.convert_to_numpy(tensor))
    except Exception:  # Each backend raises its own type for a traced tensor.
        return None
