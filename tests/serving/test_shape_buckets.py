"""The few shapes that XLA has to compile."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from keras_attn.serving import shape_buckets


@pytest.mark.parametrize(
    "least, through, first",
    [
        (16, 100, (16, 32, 64, 100, 128)),
        (16, 64, (16, 32, 64, 128)),
        (16, 7, (7, 16, 32)),
        (1, 1, (1, 2, 4, 8)),
    ],
)
def test_sizes_double(least, through, first):
    sizes = shape_buckets.doubling(least, through)
    assert sizes[: len(first)] == first
    assert list(sizes) == sorted(set(sizes)) and sizes[-1] == 2**29


def test_the_next_size_is_the_least_that_is_enough():
    sizes = shape_buckets.doubling(16, 100)
    for number in range(1, 300):
        expected = min(size for size in sizes if size >= number)
        assert int(shape_buckets.next_size(tf.constant(number), sizes)) == expected


@pytest.mark.parametrize("rows, length", [(3, 4), (5, 4), (3, 6), (8, 9)])
def test_new_rows_are_the_first_and_new_places_0(rows, length):
    ids = np.arange(12, dtype="int32").reshape(3, 4) + 1
    found = shape_buckets.padded(
        tf.constant(ids), tf.constant(rows), tf.constant(length)
    )
    expected = np.zeros((rows, length), "int32")
    expected[:, :4] = [*ids, *[ids[0]] * (rows - 3)]
    np.testing.assert_array_equal(found, expected)


def test_no_row_or_no_length():
    for shape in itertools.product((0, 1), (0, 1)):
        found = shape_buckets.padded(tf.zeros(shape, tf.int32), 2, tf.constant(3))
        np.testing.assert_array_equal(found, np.zeros((2, 3), "int32"))
    assert shape_buckets.padded(tf.ones((1, 4)), 2).shape == (2, 4)
