import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_attn.text.data.length_buckets import Buckets, default_boundaries, pad


@pytest.mark.parametrize("max_length", [1, 7, 8, 9, 64, 100, 128, 1000])
def test_boundaries(max_length):
    bounds = default_boundaries(max_length)
    assert bounds[-1] == max_length
    assert sorted(set(bounds)) == bounds
    assert len(bounds) <= 13


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=60),
    st.lists(st.integers(1, 7), min_size=3, max_size=3),
    st.randoms(use_true_random=False),
)
def test_batches_contain_every_example_once(lengths, sizes, random):
    bounds = [5, 11, 20]
    buckets = Buckets(lengths, bounds, sizes)
    order = list(range(len(lengths)))
    random.shuffle(order)
    batches = buckets.batches(order)
    assert sorted(i for _, batch in batches for i in batch) == sorted(order)
    for bucket, batch in batches:
        assert all(lengths[i] <= bounds[bucket] for i in batch)
        assert len(batch) <= sizes[bucket]
        # Examples keep their order inside a batch.
        assert [i for i in order if i in batch] == list(batch)
    partial = [bucket for bucket, batch in batches if len(batch) < sizes[bucket]]
    assert len(partial) <= 1
    # Only buckets that contain an example are used.
    assert {b for b, _ in batches} <= set(np.searchsorted(bounds, lengths).tolist())
    # The number of batches of each shape depends on the lengths alone.
    again = buckets.batches(sorted(order))
    assert sorted((b, len(n)) for b, n in again) == sorted(
        (b, len(n)) for b, n in batches
    )


def test_a_single_bucket_preserves_the_order():
    buckets = Buckets([3] * 7, [5, 9], [2, 2])
    batches = [batch.tolist() for _, batch in buckets.batches(np.arange(7))]
    assert batches == [[0, 1], [2, 3], [4, 5], [6]]


def test_pad():
    sequences = [np.array([1, 2]), np.array([], np.int32), np.array([3, 4, 5])]
    expected = [[1, 2, 0, 0], [0, 0, 0, 0], [3, 4, 5, 0]]
    result = pad(sequences, 4, 0)
    assert result.dtype == np.int32
    np.testing.assert_array_equal(result, expected)
