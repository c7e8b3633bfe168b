"""Texts and small models that translate them."""

import numpy as np

from keras_attn.models import recurrent_translator, transformer_translator

KOREAN = ["나는 학교에 간다.", "고양이가 매트 위에 앉았다.", "한국어를 배운다!"]
ENGLISH = ["I go to school.", "The cat sat on the mat.", "We learn Korean!"]


def make(source_size, target_size, seed=8):
    """Return an untrained translator whose outputs depend on the text."""
    model = transformer_translator(
        source_size,
        target_size,
        num_layers=1,
        hidden_dim=8,
        intermediate_dim=12,
        num_heads=2,
        share_embeddings=False,
    )
    return randomize(model, seed)


def make_recurrent(source_size, target_size, seed=8):
    """Return an untrained recurrent translator, whose cache is its state."""
    model = recurrent_translator(
        source_size, target_size, hidden_dim=8, share_embeddings=False
    )
    return randomize(model, seed)


def randomize(model, seed):
    """Assign random weights. Random biases would always generate the same token."""
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        if len(weight.shape) > 1:
            fan_in = np.prod(weight.shape[:-1])
            weight.assign(rng.normal(size=weight.shape) / np.sqrt(fan_in))
    return model
