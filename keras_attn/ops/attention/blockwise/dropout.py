"""Dropout that is drawn again where it is needed, from few random numbers."""

import keras
from keras import ops

__all__ = ["mixed", "random_bits"]


def random_bits(shape, seed, stream):
    """int32 of which every bit is random; other numbers for another `stream`."""
    halves = []
    for half in range(2):
        # An int is a seed to start from; a generator gives new numbers by itself.
        own = seed + 4 * stream + half if isinstance(seed, int) else seed
        halves.append(keras.random.randint(shape, 0, 2**16, dtype="int32", seed=own))
    return ops.bitwise_xor(ops.left_shift(halves[0], 16), halves[1])


def mixed(bits):
    """int32 hashed: of two that differ in any bit the results are unlike.

    What is dropped is thus drawn again in the gradient from bits of T queries and S
    keys, with no number kept for each pair. The constants are those of Prospector's
    best 32-bit hash (https://github.com/skeeto/hash-prospector); what it does after
    the last product changes the lower bits only.
    """
    for shift, factor in (16, 0x21F0AAAD), (15, 0xD35A2D97 - 2**32):
        bits = ops.bitwise_xor(bits, ops.right_shift(bits, shift))
        bits = bits * ops.cast(factor, "int32")
    return bits
