"""Looking at the values of a tensor, where there are any."""

import keras

__all__ = ["concrete"]


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
