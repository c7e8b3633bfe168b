"""Kneser-Ney smoothing: values computed by hand, and a slow reference."""

import collections
import itertools

import numpy as np
import pytest
from ngram import KneserNey

S, A, B, C = 2, 3, 4, 5  # the start token and three other tokens


def test_unigrams_by_hand():
    # Counts 1, 1, 2, 3, 4: there are two ones and one of each other count. So the share
    # is 2 / (2 + 2), and the discounts are 1 - 1/2, 2 - 3/2 and 3 - 4/2.
    model = KneserNey([np.array([0, 1, 3, 3, 4, 4, 4, 5, 5, 5, 5])], 6, order=1)
    mass = 0.5 + 0.5 + 0.5 + 1 + 1
    expected = np.array([0.5, 0.5, 0, 1.5, 2, 3]) + mass / 6
    probabilities = model.probabilities([np.arange(6)])
    np.testing.assert_allclose(probabilities, expected / 11, rtol=1e-12)


def test_bigrams_by_hand():
    model = KneserNey([np.array([A, B, A, B, A, C])], 6, order=2)
    # Too few to estimate discounts: 1/2 and 1. Pairs: SA 1, AB 2, BA 2, AC 1.
    # Different tokens before A: S and B; before B: A; before C: A; 4 in all.
    mass = 1 + 0.5 + 0.5
    twice, once, never = (1 + mass / 6) / 4, (0.5 + mass / 6) / 4, mass / 6 / 4
    documents = [np.array([A, C, B]), np.array([A, B]), np.array([1])]
    probabilities = model.probabilities(documents)
    expected = [
        0.5 + 0.5 * twice,  # A after S
        (0.5 + (1 + 0.5) * once) / 3,  # C after A
        once,  # B after C, which no token follows
        0.5 + 0.5 * twice,
        (1 + (1 + 0.5) * once) / 3,  # B after A
        0.5 * never,  # 1 after S
    ]
    np.testing.assert_allclose(probabilities, expected, rtol=1e-12)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_probabilities_sum_to_one_and_equal_those_of_the_reference(order):
    rng = np.random.default_rng(order)
    size = 40
    documents = [rng.geometric(0.1, 100).clip(3, size - 1) for _ in range(4)]
    documents[0][:12] = [3, 4, 5, 6] * 3
    model = KneserNey(documents, size, order)
    reference = _reference(documents, size, order)
    for history in itertools.product([3, 4, 20], repeat=3):
        probabilities = [
            model.probabilities([np.array([*history, token])])[-1]
            for token in range(size)
        ]
        assert sum(probabilities) == pytest.approx(1, abs=1e-12)
        padded = (S,) * (order - 1) + history
        context = padded[len(padded) - order + 1 :]
        expected = [reference(context, token) for token in range(size)]
        np.testing.assert_allclose(probabilities, expected, rtol=1e-12)


def test_documents_are_independent():
    documents = [np.array([A, B]), np.array([C, A])]
    model = KneserNey([np.array([A, B, C] * 5)], 6, order=3)
    separate = [model.probabilities([ids]) for ids in documents]
    np.testing.assert_array_equal(
        model.probabilities(documents), np.concatenate(separate)
    )


def test_bad_input():
    with pytest.raises(ValueError, match="Received: ids from 3 to 6"):
        KneserNey([np.array([3, 6])], 6, order=2)
    with pytest.raises(ValueError, match="int64. Received: vocabulary_size=100000"):
        KneserNey([np.array([3])], 100000, order=4)


def _reference(documents, size, order):
    """Return a recursive function for the probability of a token after a history."""
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
        discounts = [i - (i + 1) * share * n[i + 1] / n[i] for i in (1, 2, 3)]
        return (
            discounts[min(count, 3) - 1] if min(discounts) >= 0 else min(count, 3) / 2
        )

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
        count = followers.get(token, 0) - discounts.get(token, 0)
        total = sum(followers.values())
        return (count + sum(discounts.values()) * shorter) / total

    return probability
