"""Texts, and a small model to translate them with."""

import numpy as np

from keras_attn.models import recurrent_translator, transformer_translator

KOREAN = ["나는 학교에 간다.", "고양이가 매트 위에 앉았다.", "한국어를 배운다!"]
ENGLISH = ["I go to school.", "The cat sat on the mat.", "We learn Korean!"]


def make(source_size, target_size, seed=8):
    """Untrained, but what it says differs from text to text and from word to word."""
    model = transformer_translator(
        source_size,
        target_size,
        num_layers=1,
        hidden_dim=8,
        intermediate_dim=12,
        num_heads=2,
        share_embeddings=False,
    )
    return lively(model, seed)


def make_recurrent(source_size, target_size, seed=8):
    """Likewise, with a state and what was attended to as its cache."""
    model = recurrent_translator(
        source_size, target_size, hidden_dim=8, share_embeddings=False
    )
    return lively(model, seed)


def lively(model, seed):
    """Random weights, but no random biases, with which one token always wins."""
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        if len(weight.shape) > 1:
            fan_in = np.prod(weight.shape[:-1])
            weight.assign(rng.normal(size=weight.shape) / np.sqrt(fan_in))
    return model
