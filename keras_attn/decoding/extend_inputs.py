"""Inputs that run beside the target, such as segment ids, for tokens not yet there."""

import numpy as np
from keras import ops

from keras_attn.decoding.loop import prompt_lengths

__all__ = ["continue_inputs"]


def continue_inputs(step, inputs, total, padding_id):
    """`inputs` with those in `step.beside` long enough for `total` positions.

    One as long as the prompt goes on, in each row, with its value at the row's last
    prompt token.

    Args:
        step: a `StepModel`.
        inputs: dict of tensors, the model's inputs, with a prompt or without.
        total: int, number of positions that will be fed to the model.
        padding_id: int, what prompts are padded with.

    Returns:
        A dict of tensors.

    Raises:
        ValueError: for another length, or for one as long as the prompt where that
            will not do: where what comes later has a part in what came before, or the
            values count positions.
    """
    prompt = inputs.get(step.target)
    width = 1 if prompt is None else prompt.shape[1]
    continued = dict(inputs)
    for name in sorted(step.beside & set(inputs)):
        values = inputs[name]
        length = values.shape[1]
        if length >= total:
            continue
        if length != width or name not in step.continued:
            also = f" or {width}, as the prompt" if name in step.continued else ""
            raise ValueError(
                f"Input '{name}' runs beside the tokens and must be of length "
                f"{total}, that of the prompt and what follows it{also}. "
                f"Received: shape={tuple(values.shape)}"
            )
        rows = values.shape[0]
        lengths = np.full(rows, width)
        if prompt is not None:
            lengths = ops.convert_to_numpy(prompt_lengths(prompt, padding_id))
        known = ops.convert_to_numpy(values)
        if _counts(known, lengths):
            raise ValueError(
                f"Input '{name}' counts positions, it seems, and cannot be continued "
                f"by its last value; give it in the length of {total}. "
                f"Received: {name}={known.tolist()}"
            )
        last = np.minimum(np.arange(total)[None], lengths[:, None] - 1)
        last = last.reshape(last.shape + (1,) * (known.ndim - 2))
        found = np.take_along_axis(known, last, axis=1)
        continued[name] = ops.convert_to_tensor(found, dtype=values.dtype)
    return continued


def _counts(values, lengths):
    """Whether whole numbers go up by one at each token of each row, two at least."""
    if values.ndim != 2 or values.dtype.kind != "i" or lengths.max() < 2:
        return False
    steps = np.diff(values, axis=1)
    within = np.arange(steps.shape[1])[None] < lengths[:, None] - 1
    return bool((steps == 1)[within].all())
