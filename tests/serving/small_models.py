"""Small models: a language model, and a translator with other input names."""

import keras
import numpy as np

from keras_attn import layers
from keras_attn.models import causal_language_model


def language_model(vocabulary_size, seed=8, **options):
    """Return an untrained language model whose outputs depend on the prompt."""
    model = causal_language_model(
        vocabulary_size,
        num_layers=1,
        hidden_dim=8,
        intermediate_dim=12,
        num_heads=2,
        **options,
    )
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        if len(weight.shape) > 1:
            weight.assign(rng.normal(size=weight.shape))
    return model


def other_names(vocabulary_size, fixed_length=None, names=("text", "summary")):
    """Return a translator with other input names and an int64 source."""
    text = keras.Input((fixed_length,), dtype="int64", name=names[0])
    summary = keras.Input((None,), dtype="int32", name=names[1])
    embedding = layers.TokenEmbedding(vocabulary_size, 8)
    rng = np.random.default_rng(2)
    position = layers.SinusoidalPositionEmbedding()
    encoded = layers.TransformerEncoder(8, 2)(position(embedding(text)))
    decoded = layers.TransformerDecoder(8, 2)(position(embedding(summary)), encoded)
    model = keras.Model([summary, text], embedding(decoded, reverse=True))
    for weight in model.weights:
        if len(weight.shape) > 1:
            weight.assign(rng.normal(size=weight.shape))
    return model
