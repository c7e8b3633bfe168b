"""Kneser-Ney against numbers worked out by hand, and against a slow way to do it."""

import collections
import itertools

import numpy as np
import pytest
from ngram import KneserNey

S, A, B, C = 2, 3, 4, 5  # the start token, and three others


def test_unigrams_by_hand():
    # Counts 1, 1, 2, 3, 4: of the ones there are 2, of the others 1. So the share is
    # 2 / (2 + 2), and the discounts are 1 - 1/2, 2 - 3/2 and 3 - 4/2.
    model = KneserNey([np.array([0, 1, 3, 3, 4, 4, 4, 5, 5, 5, 5])], 6, order=1)
    freed = 0.5 + 0.5 + 0.5 + 1 + 1
    expected = np.array([0.5, 0.5, 0, 1.5, 2, 3]) + freed / 6
    found = model.probabilities([np.arange(6)])
    np.testing.assert_allclose(found, expected / 11, rtol=1e-12)


def test_bigrams_by_hand():
    model = KneserNey([np.array([A, B, A, B, A, C])], 6, order=2)
    # Too few to estimate discounts: 1/2 and 1. Pairs: SA 1, AB 2, BA 2, AC 1.
    # Different tokens before A: S and B; before B: A; before C: A; 4 in all.
    freed = 1 + 0.5 + 0.5
    twice, once, never = (1 + freed / 6) / 4, (0.5 + freed / 6) / 4, freed / 6 / 4
    found = model.probabilities([np.array([A, C, B]), np.array([A, B]), np.array([1])])
    expected = [
        0.5 + 0.5 * twice,  # A after S
        (0.5 + (1 + 0.5) * once) / 3,  # C after A
        once,  # B after C, after which nothing was seen
        0.5 + 0.5 * twice,
        (1 + (1 + 0.5) * once) / 3,  # B after A
        0.5 * never,  # 1 after S
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_probabilities_sum_to_one_and_are_those_of_a_slow_model(order):
    rng = np.random.default_rng(order)
    size = 40
    documents = [rng.geometric(0.1, 100).clip(3, size - 1) for _ in range(4)]
    documents[0][:12] = [3, 4, 5, 6] * 3
    model = KneserNey(documents, size, order)
    slow = _slow(documents, size, order)
    for history in itertools.product([3, 4, 20], repeat=3):
        found = [
            model.probabilities([np.array([*history, token])])[-1]
            for token in range(size)
        ]
        assert sum(found) == pytest.approx(1, abs=1e-12)
        padded = (S,) * (order - 1) + history
        expected = [slow(padded[len(padded) - order + 1 :], t) for t in range(size)]
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_document_does_not_run_into_the_next():
    documents = [np.array([A, B]), np.array([C, A])]
    model = KneserNey([np.array([A, B, C] * 5)], 6, order=3)
    apart = [model.probabilities([ids]) for ids in documents]
    np.testing.assert_array_equal(model.probabilities(documents), np.concatenate(apart))


def test_bad_input():
    with pytest.raises(ValueError, match="Received: ids from 3 to 6"):
        KneserNey([np.array([3, 6])], 6, order=2)
    with pytest.raises(ValueError, match="int64. Received: vocabulary_size=100000"):
        KneserNey([np.array([3])], 100000, order=4)


def _slow(documents, size, order):
    """The probability of a token after a history, by dictionaries and recursion."""
    grams = collections.Counter()
    for ids in documents:
        padded = [S] * (order - 1) + ids.tolist()
        grams.update(tuple(padded[i : i + order]) for i in range(len(ids)))
    levels = {order: grams}
    for length in range(order - 1, 0, -1):
        levels[length] = collections.Counter(gram[1:] for gram in levels[length + 1])

    def discount(length, count):
        n = collections.Counter(levels[length].values())
        if not all(n[i] for i in (1, 2, 3, 4)):
            return min(count, 3) / 2
        share = n[1] / (n[1] + 2 * n[2])
        found = [i - (i + 1) * share * n[i + 1] / n[i] for i in (1, 2, 3)]
        return found[min(count, 3) - 1] if min(found) >= 0 else min(count, 3) / 2

    def probability(history, token):
        length = len(history) + 1
        shorter = probability(history[1:], token) if history else 1 / size
        followers = {
            gram[-1]: count
            for gram, count in levels[length].items()
            if gram[:-1] == tuple(history)
        }
        if not followers:
            return shorter
        discounts = {t: discount(length, count) for t, count in followers.items()}
        kept = followers.get(token, 0) - discounts.get(token, 0)
        total = sum(followers.values())
        return (kept + sum(discounts.values()) * shorter) / total

    return probability
