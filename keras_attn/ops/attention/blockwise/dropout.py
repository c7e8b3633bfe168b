"""Dropout whose random bits can be recomputed from few random numbers."""

import keras
from keras import ops

from keras_attn._types import Shape, Tensor

__all__ = ["hash_bits", "random_bits"]


def random_bits(
    shape: Shape, seed: keras.random.SeedGenerator | int | None, stream: int
) -> Tensor:
    """Return int32 numbers of 32 random bits, different for each `stream`."""
    halves = []
    for half in range(2):
        # An int seed always draws the same numbers, a generator new ones per call.
        own = seed + 4 * stream + half if isinstance(seed, int) else seed
        halves.append(keras.random.randint(shape, 0, 2**16, dtype="int32", seed=own))
    return ops.bitwise_xor(ops.left_shift(halves[0], 16), halves[1])


def hash_bits(bits: Tensor) -> Tensor:
    """Return the hashes of int32 numbers, int32; similar numbers get unrelated hashes.

    The gradient recomputes the dropout mask from the bits of T queries and S keys, so
    that no number per pair is stored. The constants are those of Prospector's best
    32-bit hash (https://github.com/skeeto/hash-prospector), without its last shift,
    which changes the lower bits only.
    """
    for shift, factor in (16, 0x21F0AAAD), (15, 0xD35A2D97 - 2**32):
        bits = ops.bitwise_xor(bits, ops.right_shift(bits, shift))
        bits = bits * ops.cast(factor, "int32")
    return bits
