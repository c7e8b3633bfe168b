"""Initial values of the models, chosen by `benchmarks/learning.py`."""

import keras

__all__ = ["QKV_GAIN", "embeddings_initializer"]

# The query, key and value of PyTorch's `MultiheadAttention` are one matrix (3 D, D), and
# Xavier initial values of that are smaller by this factor than those of three (D, D).
QKV_GAIN = 2**-0.5


def embeddings_initializer() -> keras.initializers.Initializer:
    """Return the initializer of token embeddings and of a separate output projection.

    The deviation of BERT and GPT-2. Times `sqrt(hidden_dim)` the vectors are smaller
    than the sinusoids, and the logits are close to equal at first.
    """
    return keras.initializers.RandomNormal(stddev=0.02)
