"""The inputs of a generation request: checked, and as dense tensors."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_attn._types import Tensor
from keras_attn.decoding.loop import prompt_lengths
from keras_attn.decoding.step.step_model import StepModel
from keras_attn.decoding.strategies.logits_processors import TokenConstraints
from keras_attn.ops.static_value import check_ids

__all__ = [
    "absent_id",
    "checked_prefix",
    "dense_tensors",
    "extend_aligned_inputs",
    "ragged_ids",
    "shortest_prompt",
]


def dense_tensors(
    model: keras.Model,
    inputs: Any,
    target: str,
    vocabulary_sizes: Mapping[str, int],
    padding_ids: Mapping[str, int],
) -> dict[str, Tensor]:
    """Return the inputs of a model as a dict of dense tensors.

    Args:
        model: the model, up to its logits.
        inputs: dict of the model's inputs, or its only or first input.
        target: name of the target input, which may be missing.
        vocabulary_sizes: number of token ids, for each input of ids.
        padding_ids: id with which ragged values are padded, by input name.

    Raises:
        ValueError: for unknown or missing inputs, wrong dtypes, ranks or batch sizes,
            or ids outside a vocabulary.
    """
    names = [tensor.name for tensor in model.inputs]
    if not isinstance(inputs, dict):
        inputs = {names[0]: inputs}
    unknown = sorted(set(inputs) - set(names))
    if unknown or not inputs:
        raise ValueError(
            f"`inputs` must be a dict with some of the keys {sorted(names)}. "
            f"Received: inputs with keys {sorted(inputs)}"
        )
    missing = sorted(set(names) - {target} - set(inputs))
    if missing:
        raise ValueError(
            f"`inputs` must contain the model's inputs {missing} as well. "
            f"Received: inputs with keys {sorted(inputs)}"
        )
    tensors = {
        spec.name: _dense_tensor(
            spec,
            inputs[spec.name],
            vocabulary_sizes.get(spec.name),
            padding_ids.get(spec.name),
        )
        for spec in model.inputs
        if spec.name in inputs
    }
    batch_sizes = {name: int(tensor.shape[0]) for name, tensor in tensors.items()}
    if len(set(batch_sizes.values())) > 1:
        raise ValueError(
            f"All inputs must have the same batch size. Received: {batch_sizes=}"
        )
    return tensors


def _dense_tensor(
    spec: keras.KerasTensor,
    values: Any,
    vocabulary_size: int | None,
    padding_id: int | None,
) -> Tensor:
    name = spec.name
    if values is None:
        raise ValueError(f"Input '{name}' must not be None. Received: {name}=None")
    if hasattr(values, "to_tensor"):  # a ragged tensor, as tokenizers return it
        values = values.to_tensor(padding_id)
    elif (rows := ragged_ids(values)) is not None:
        values = _pad(rows, padding_id or 0)
    if not hasattr(values, "dtype"):
        values = np.asarray(values)
    dtype = str(getattr(values.dtype, "name", values.dtype))
    is_number = any(kind in dtype for kind in ("int", "float", "bool"))
    if not is_number or ("float" in dtype and "int" in spec.dtype):
        raise ValueError(
            f"Input '{name}' must have dtype {spec.dtype}. Received: dtype={dtype}"
        )
    if len(values.shape) != len(spec.shape):
        raise ValueError(
            f"Input '{name}' must have shape {tuple(spec.shape)}. "
            f"Received: shape={tuple(values.shape)}"
        )
    if vocabulary_size is not None:  # before a cast can wrap the ids around
        ids = _concrete_values(name, values)
        check_ids(ids, vocabulary_size, f"Token ids of input '{name}'")
    return ops.convert_to_tensor(values, dtype=spec.dtype)


def _concrete_values(name: str, tensor: Tensor) -> np.ndarray:
    try:
        return ops.convert_to_numpy(tensor)
    except Exception as error:  # each backend has its own error for traced tensors
        raise ValueError(
            f"Input '{name}' must be an eager tensor: generation cannot be called "
            "inside a compiled function; use `keras_attn.serving` to export a graph. "
            f"Received: {name}={tensor}"
        ) from error


# Ragged ids: sequences of different lengths.


def ragged_ids(values: Any) -> list[list[int]] | None:
    """Return the rows of a ragged tensor or of lists of different lengths, or None."""
    if hasattr(values, "to_tensor") and hasattr(values, "to_list"):
        return values.to_list()
    if not isinstance(values, (list, tuple)):
        return None
    if not all(isinstance(row, (list, tuple, np.ndarray)) for row in values):
        return None
    if len({len(row) for row in values}) < 2 or any(
        np.ndim(entry) for row in values for entry in row
    ):
        return None
    return [list(row) for row in values]


def _pad(rows: Sequence[Sequence[int]], padding_id: int) -> list[list[int]]:
    longest = max(map(len, rows), default=0)
    return [[*row, *[padding_id] * (longest - len(row))] for row in rows]


def absent_id(rows: Any, vocabulary_size: int) -> int:
    """Return an id that does not occur in `rows`: 0, or else the largest one.

    It is the same for most prompts, so that most share a compiled program. If all ids
    occur, it is 0.
    """
    present = {token_id for row in rows for token_id in row}
    candidates = (0, *reversed(range(vocabulary_size)))
    return next((i for i in candidates if i not in present), 0)


# Prompts and prefixes.


def shortest_prompt(prompt: Tensor, name: str, padding_id: int) -> int:
    """Return the length of the shortest prompt, without padding.

    Raises:
        ValueError: for a prompt without tokens, or with padding before a token.
    """
    if prompt.shape[1] == 0:
        raise ValueError(
            "A prompt must have at least one token. "
            f"Received: shape={tuple(prompt.shape)}"
        )
    is_token = ops.convert_to_numpy(prompt)[:, 1:] != padding_id
    if _follows_padding(is_token).any():
        raise ValueError(
            f"A prompt may have padding ({padding_id}) only at its end. "
            f"Received: {name}={prompt}"
        )
    return 1 + int(is_token.sum(axis=1).min(initial=is_token.shape[1]))


def _follows_padding(is_token: np.ndarray) -> np.ndarray:
    """Return where a token follows padding, bool `(B, P - 1)`."""
    return np.diff(is_token.astype(int)) > 0


def checked_prefix(
    vocabulary_size: int,
    prefix: Any,
    batch_size: int,
    constraints: TokenConstraints,
    max_new_tokens: int,
    padding_id: int,
) -> Tensor | None:
    """Return the prefix as int32 `(B, F)`, with -1 instead of padding, or None.

    Raises:
        ValueError: for a wrong shape, ids outside the vocabulary, or a prefix that the
            constraints forbid.
    """
    if prefix is None:
        return None
    values = np.asarray(prefix)
    if not batch_size and not values.size:
        values = np.zeros((0, 1), "int32")
    if values.ndim == 1:
        values = np.broadcast_to(values, (batch_size, len(values)))
    if values.ndim != 2 or values.shape[0] != batch_size or not values.shape[1]:
        raise ValueError(
            f"`prefix` must be ints of shape (F,) or ({batch_size}, F). "
            f"Received: shape={np.shape(prefix)}"
        )
    check_ids(values, vocabulary_size, "Token ids of `prefix`")
    is_token = values != padding_id
    index = np.arange(values.shape[1])
    is_early_end = np.isin(values, constraints.end_token_ids) & (
        index < constraints.min_new_tokens
    )
    is_banned = np.isin(values, constraints.banned_token_ids)
    for is_wrong, rule in (
        (_follows_padding(is_token), f"have padding ({padding_id}) only at its end"),
        (is_token & (index >= max_new_tokens), "not be longer than `max_new_tokens`"),
        (is_token & is_banned, "not contain a banned id"),
        (
            is_token & is_early_end,
            "not contain an end token among the first `min_new_tokens`",
        ),
    ):
        if is_wrong.any():
            raise ValueError(
                f"`prefix` must {rule}. Received: prefix={values.tolist()}"
            )
    return ops.convert_to_tensor(np.where(is_token, values, -1), dtype="int32")


# Inputs that are aligned with the target, such as segment ids.


def extend_aligned_inputs(
    step: StepModel, inputs: Mapping[str, Tensor], total: int, padding_id: int
) -> dict[str, Tensor]:
    """Return `inputs` with the aligned ones extended to `total` positions.

    One that has the length of the prompt is continued, for each batch element, by its
    value at the last token of the prompt.

    Args:
        step: the step model, with the names of the aligned inputs.
        inputs: dict of tensors, the model's inputs, with or without a prompt.
        total: int, number of positions that the model will process.
        padding_id: int, id of padding in prompts.

    Raises:
        ValueError: for any other length, or if the input cannot be continued: because
            later values affect earlier positions, or because it counts positions.
    """
    prompt = inputs.get(step.target)
    width = 1 if prompt is None else prompt.shape[1]
    extended = dict(inputs)
    for name in sorted(step.aligned_inputs & set(inputs)):
        values = inputs[name]
        length = values.shape[1]
        if length >= total:
            continue
        if length != width or name not in step.extendable_inputs:
            is_extendable = name in step.extendable_inputs
            also = f" or {width}, that of the prompt" if is_extendable else ""
            raise ValueError(
                f"Input '{name}' is aligned with the tokens and must have length "
                f"{total}, that of the prompt and the new tokens{also}. "
                f"Received: shape={tuple(values.shape)}"
            )
        batch_size = values.shape[0]
        lengths = np.full(batch_size, width)
        if prompt is not None:
            lengths = ops.convert_to_numpy(prompt_lengths(prompt, padding_id))
        known = ops.convert_to_numpy(values)
        if _counts_positions(known, lengths):
            raise ValueError(
                f"Input '{name}' seems to count positions and cannot be continued by "
                f"its last value; pass it with length {total}. "
                f"Received: {name}={known.tolist()}"
            )
        last = np.minimum(np.arange(total)[None], lengths[:, None] - 1)
        last = last.reshape(last.shape + (1,) * (known.ndim - 2))
        new = np.take_along_axis(known, last, axis=1)
        extended[name] = ops.convert_to_tensor(new, dtype=values.dtype)
    return extended


def _counts_positions(values: np.ndarray, lengths: np.ndarray) -> bool:
    """Return whether ints increase by one at each token, of at least two tokens."""
    if values.ndim != 2 or values.dtype.kind != "i" or lengths.max() < 2:
        return False
    steps = np.diff(values, axis=1)
    is_within = np.arange(steps.shape[1])[None] < lengths[:, None] - 1
    return bool((steps == 1)[is_within].all())
