"""Small random `transformers` models, saved as published models are."""

import pathlib
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import pytest
from tensors import array

from keras_attn import checkpoints
from keras_attn._types import Tensor

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
torch.set_num_threads(1)  # on models this small, several threads wait for each other


def save_reference(
    folder: pathlib.Path, architecture: str, config: Any, seed: int = 0
) -> Any:
    """Return a random `transformers` model in evaluation mode, saved in `folder`.

    All weights are random. The usual initial values of biases and scales, zeros and
    ones, would hide errors in their use.
    """
    reference = getattr(transformers, architecture)(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in reference.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim > 1:
                parameter.copy_(noise / parameter.shape[-1] ** 0.5)
            else:
                parameter.add_(0.3 * noise)
            padding_id = getattr(config, "pad_token_id", None)
            if "word_embeddings" in name and padding_id is not None:
                parameter[padding_id] = 0
    reference.save_pretrained(folder)
    return reference


def ids_and_mask(
    lengths: Sequence[int], vocabulary_size: int, padding_id: int = 0, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return random ids `(B, T)` of the given lengths, and their padding mask.

    Only padding positions have the padding id.
    """
    rng = np.random.default_rng(seed)
    mask = np.arange(max(lengths)) < np.array(lengths)[:, None]
    token_ids = np.setdiff1d(np.arange(vocabulary_size), [padding_id])
    ids = np.where(mask, rng.choice(token_ids, size=mask.shape), padding_id)
    return ids.astype("int32"), mask


def run_reference(model: Any, output: str = "logits", **inputs: Any) -> np.ndarray:
    """Return an output of a `transformers` model for NumPy arrays."""
    tensors = {
        name: torch.tensor(
            np.asarray(x), dtype=torch.long if np.asarray(x).dtype != float else None
        )
        for name, x in inputs.items()
    }
    with torch.no_grad():
        return getattr(model(**tensors), output).numpy()


def max_difference(
    values: Tensor, expected: Tensor, mask: np.ndarray | None = None
) -> float:
    """Return the largest absolute difference at the positions where `mask` is True."""
    values, expected = array(values), np.asarray(expected)
    assert values.shape == expected.shape
    if mask is not None:
        values, expected = values[mask], expected[mask]
    return np.abs(values - expected).max()


def load_in_transformers(
    model: keras.Model, folder: pathlib.Path, architecture: str
) -> tuple[Any, dict[str, Any]]:
    """Save a keras_attn model and load it with `transformers`.

    Returns:
        The `transformers` model and its loading info.
    """
    checkpoints.save(model, folder)
    loaded, loading_info = getattr(transformers, architecture).from_pretrained(
        folder, output_loading_info=True
    )
    assert not loading_info["unexpected_keys"], loading_info
    assert not loading_info["mismatched_keys"], loading_info
    return loaded.eval(), loading_info


def keras_round_trip(model: keras.Model, folder: pathlib.Path) -> keras.Model:
    """Return a model saved and loaded by Keras."""
    model.save(folder / "model.keras")
    return keras.models.load_model(folder / "model.keras")
