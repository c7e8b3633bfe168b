"""Padding to the few shapes that XLA compiles."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from keras_attn.serving import shape_buckets


@pytest.mark.parametrize(
    "smallest, include, first",
    [
        (16, 100, (16, 32, 64, 100, 128)),
        (16, 64, (16, 32, 64, 128)),
        (16, 7, (7, 16, 32)),
        (1, 1, (1, 2, 4, 8)),
    ],
)
def test_sizes_double(smallest, include, first):
    sizes = shape_buckets.bucket_sizes(smallest, include)
    assert sizes[: len(first)] == first
    assert list(sizes) == sorted(set(sizes)) and sizes[-1] == 2**29


def test_next_size_is_the_smallest_sufficient_one():
    sizes = shape_buckets.bucket_sizes(16, 100)
    for number in range(1, 300):
        expected = min(size for size in sizes if size >= number)
        assert int(shape_buckets.next_size(tf.constant(number), sizes)) == expected


@pytest.mark.parametrize("batch_size, length", [(3, 4), (5, 4), (3, 6), (8, 9)])
def test_new_elements_repeat_the_first_and_new_positions_are_0(batch_size, length):
    ids = np.arange(12, dtype="int32").reshape(3, 4) + 1
    padded = shape_buckets.pad_batch(
        tf.constant(ids), tf.constant(batch_size), tf.constant(length)
    )
    expected = np.zeros((batch_size, length), "int32")
    expected[:, :4] = [*ids, *[ids[0]] * (batch_size - 3)]
    np.testing.assert_array_equal(padded, expected)


def test_empty_batch_or_length():
    for shape in itertools.product((0, 1), (0, 1)):
        padded = shape_buckets.pad_batch(tf.zeros(shape, tf.int32), 2, tf.constant(3))
        np.testing.assert_array_equal(padded, np.zeros((2, 3), "int32"))
    assert shape_buckets.pad_batch(tf.ones((1, 4)), 2).shape == (2, 4)
