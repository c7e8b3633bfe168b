"""What rows are given to begin with: prompts to read, prefixes to generate first."""

import numpy as np
from keras import ops

from keras_attn.ops.concrete import check_ids

__all__ = ["checked_prefix", "shortest_prompt"]


def shortest_prompt(prompt, name, padding_id):
    """Length of the shortest prompt, padding not counted."""
    if prompt.shape[1] == 0:
        raise ValueError(
            f"A prompt has a token at least. Received: shape={tuple(prompt.shape)}"
        )
    is_token = ops.convert_to_numpy(prompt)[:, 1:] != padding_id
    if _padded_inside(is_token).any():
        raise ValueError(
            f"A prompt has padding ({padding_id}) at its end only. "
            f"Received: {name}={prompt}"
        )
    return 1 + int(is_token.sum(axis=1).min(initial=is_token.shape[1]))


def _padded_inside(is_token):
    """Where a token follows padding, bool `(B, P - 1)`."""
    return np.diff(is_token.astype(int)) > 0


def checked_prefix(model, prefix, rows, constraints, max_length, padding_id):
    """The tokens that rows begin with, int32 `(B, F)`, -1 in place of padding; or None.

    Args:
        model: the model up to its logits.
        prefix, max_length, padding_id: see `keras_attn.decoding.generate`.
        rows: int B.
        constraints: a `Constraints`, which a prefix must keep.

    Raises:
        ValueError: for another shape, ids outside the vocabulary, or what may not be.
    """
    if prefix is None:
        return None
    values = np.asarray(prefix)
    if values.ndim == 1:
        values = np.broadcast_to(values, (rows, len(values)))
    if values.ndim != 2 or values.shape[0] != rows or not values.shape[1]:
        raise ValueError(
            f"`prefix` must be ints of shape (F,) or ({rows}, F). "
            f"Received: shape={np.shape(prefix)}"
        )
    check_ids(values, model.outputs[0].shape[-1], "Token ids of `prefix`")
    is_token = values != padding_id
    place = np.arange(values.shape[1])
    ends_early = np.isin(values, constraints.end_token_ids) & (
        place + 1 < constraints.min_length
    )
    for wrong, why in (
        (_padded_inside(is_token), f"have padding ({padding_id}) at its end only"),
        (is_token & (place >= max_length), "be no longer than `max_length`"),
        (is_token & np.isin(values, constraints.banned_token_ids), "hold no banned id"),
        (is_token & ends_early, "hold no end token before `min_length`"),
    ):
        if wrong.any():
            raise ValueError(f"`prefix` must {why}. Received: prefix={values.tolist()}")
    return ops.convert_to_tensor(np.where(is_token, values, -1), dtype="int32")
