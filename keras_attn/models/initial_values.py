"""Initial values of the models, chosen by `benchmarks/learning.py`."""

import keras

__all__ = ["QKV_GAIN", "embeddings_initializer", "output_gain"]

# The query, key and value of PyTorch's `MultiheadAttention` are one matrix (3 D, D).
# Its Xavier initial values are smaller by this factor than those of three (D, D).
QKV_GAIN = 2**-0.5


def embeddings_initializer(hidden_dim: int) -> keras.initializers.Initializer:
    """Return the initializer of token embeddings and of a separate output projection.

    Its standard deviation is half of `hidden_dim ** -0.5`, the default of
    `TokenEmbedding`: vectors times `sqrt(hidden_dim)` are then smaller than the
    sinusoids, and logits near 0. For a width of 512 it is 0.022; BERT and GPT-2 have
    0.02.
    """
    return keras.initializers.RandomNormal(stddev=0.5 * hidden_dim**-0.5)


def output_gain(num_layers: int, num_branches: int, normalize_first: bool) -> float:
    """Return the factor of the last layer of each residual branch.

    The sum of all branches of a stack is then about as large as one branch. GPT-2 does
    so with its two branches per block. Post-norm blocks, whose sums are normalized,
    keep their branches as they are.

    Args:
        num_layers: int, number of blocks of the stack.
        num_branches: int, number of branches of a block: 2, or 3 with cross-attention.
        normalize_first: bool, whether the blocks are pre-norm.
    """
    return (num_branches * num_layers) ** -0.5 if normalize_first else 1.0
