"""Small random models of `transformers`, saved as models are published."""

import keras
import numpy as np
import pytest
from tensors import array

from keras_attn import checkpoints

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
torch.set_num_threads(1)  # on models this small, more of them wait for each other


def published(folder, architecture, config, seed=0):
    """A model of theirs in evaluation, its weights random, and saved in `folder`.

    Weights are random throughout: fresh biases are zeros and fresh scales ones, which
    hides what is done with them.
    """
    model = getattr(transformers, architecture)(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim > 1:
                parameter.copy_(noise / parameter.shape[-1] ** 0.5)
            else:
                parameter.add_(0.3 * noise)
            padding = getattr(config, "pad_token_id", None)
            if "word_embeddings" in name and padding is not None:
                parameter[padding] = 0
    model.save_pretrained(folder)
    return model


def ids_and_mask(lengths, vocabulary_size, padding_id=0, seed=0):
    """Ids `(B, T)`, each row of its length and then padded, and where they are real.

    Padding is not among the real ids.
    """
    rng = np.random.default_rng(seed)
    keep = np.arange(max(lengths)) < np.array(lengths)[:, None]
    real = np.setdiff1d(np.arange(vocabulary_size), [padding_id])
    ids = np.where(keep, rng.choice(real, size=keep.shape), padding_id)
    return ids.astype("int32"), keep


def theirs(model, output="logits", **inputs):
    """What a model of theirs gives for arrays."""
    inputs = {
        name: torch.tensor(
            np.asarray(x), dtype=torch.long if np.asarray(x).dtype != float else None
        )
        for name, x in inputs.items()
    }
    with torch.no_grad():
        return getattr(model(**inputs), output).numpy()


def difference(found, expected, keep=None):
    """The largest difference, where `keep` is True."""
    found, expected = array(found), np.asarray(expected)
    assert found.shape == expected.shape
    if keep is not None:
        found, expected = found[keep], expected[keep]
    return np.abs(found - expected).max()


def saved_back(model, folder, architecture):
    """What `transformers` makes of a model of ours that was saved."""
    checkpoints.save(model, folder)
    found, told = getattr(transformers, architecture).from_pretrained(
        folder, output_loading_info=True
    )
    assert not told["unexpected_keys"] and not told["mismatched_keys"], told
    return found.eval(), told


def saved_by_keras(model, folder):
    """The model, out of a file of Keras's."""
    model.save(folder / "model.keras")
    return keras.models.load_model(folder / "model.keras")
