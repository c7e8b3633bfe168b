"""N-gram language models, as baselines."""

import numpy as np

# Discounts for counts 0, 1, 2 and 3+ if there is too little data to estimate them, as
# in KenLM.
FALLBACK_DISCOUNTS = (0.0, 0.5, 1.0, 1.5)


class KneserNey:
    """Interpolated modified Kneser-Ney smoothing, the strongest common n-gram model.

    The probability of a token after a history is its discounted relative count plus the
    discounted mass times its probability after the history without the oldest token.
    The distribution below the unigrams is uniform. For shorter histories, the count of
    a token is the number of different tokens that precede the n-gram. Each order has
    three discounts, for counts of 1, 2 and 3 or more, estimated from the numbers of
    n-grams that occur 1, 2, 3 and 4 times. There are no parameters to tune.

    Args:
        documents: list of int arrays `(T,)`, token ids to count.
        vocabulary_size: int, number of token ids.
        order: int, number of tokens in an n-gram; 1 for unigrams, 3 for trigrams.
        start_token_id: int, the token before the first token of a document.

    Raises:
        ValueError: if an id is outside the vocabulary, or if there are too many
            possible n-grams for int64 keys.

    Example:
        >>> import numpy as np
        >>> from ngram import KneserNey
        >>> trigram = KneserNey([np.array([4, 5, 4])], vocabulary_size=6, order=3)
        >>> trigram.probabilities([np.array([4, 5])]).shape  # of 4, and of 5 after 4
        (2,)

    Reference:
        Chen and Goodman 1999, "An empirical study of smoothing techniques for language
        modeling".
    """

    def __init__(self, documents, vocabulary_size, order, start_token_id=2):
        if vocabulary_size**order >= 2**63:
            raise ValueError(
                "`vocabulary_size ** order` must fit an int64. "
                f"Received: vocabulary_size={vocabulary_size}, order={order}"
            )
        self.vocabulary_size = vocabulary_size
        self.order = order
        self.start_token_id = start_token_id
        keys, counts = np.unique(self._keys(documents), return_counts=True)
        self.levels = {order: _Level(keys, counts, vocabulary_size)}
        for length in range(order - 1, 0, -1):
            # Each distinct n-gram counts once for the n-gram without its first token.
            keys, counts = np.unique(keys % vocabulary_size**length, return_counts=True)
            self.levels[length] = _Level(keys, counts, vocabulary_size)

    def probabilities(self, documents):
        """Return the probability of each token of all documents, float64 `(N,)`."""
        keys = self._keys(documents)
        probabilities = np.full(len(keys), 1 / self.vocabulary_size)
        for length in range(1, self.order + 1):
            probabilities = self.levels[length].interpolate(
                keys % self.vocabulary_size**length, probabilities
            )
        return probabilities

    def _keys(self, documents):
        """Return the n-gram that ends at each token as a number, int64 `(N,)`."""
        padding = np.full(self.order - 1, self.start_token_id, "int64")
        keys = [np.zeros(0, "int64")]
        for ids in documents:
            ids = np.asarray(ids, "int64")
            if ids.size and not 0 <= ids.min() <= ids.max() < self.vocabulary_size:
                raise ValueError(
                    f"Ids must be in [0, {self.vocabulary_size}). "
                    f"Received: ids from {ids.min()} to {ids.max()}"
                )
            padded = np.concatenate([padding, ids])
            key = np.zeros(len(ids), "int64")
            for i in range(self.order):
                key = key * self.vocabulary_size + padded[i : i + len(ids)]
            keys.append(key)
        return np.concatenate(keys)


class _Level:
    """Counts of all n-grams of a given length, and of their histories."""

    def __init__(self, keys, counts, vocabulary_size):
        self.vocabulary_size = vocabulary_size
        self.keys = keys
        discounts = _discounts(counts)[np.minimum(counts, 3)]
        self.discounted = counts - discounts
        # The keys are sorted, so n-grams with the same history are adjacent.
        self.histories, first = np.unique(keys // vocabulary_size, return_index=True)
        self.totals = np.add.reduceat(counts, first) if len(first) else counts
        self.freed_mass = np.add.reduceat(discounts, first) if len(first) else discounts

    def interpolate(self, keys, shorter):
        """Return the probabilities of n-grams, given those with shorter histories."""
        history, known = _find(self.histories, keys // self.vocabulary_size)
        gram, seen = _find(self.keys, keys)
        history, total = history[known], self.totals[history[known]]
        counts = np.where(seen[known], self.discounted[gram[known]], 0.0)
        result = shorter.copy()
        result[known] = (counts + self.freed_mass[history] * shorter[known]) / total
        return result


def _find(sorted_array, values):
    """Return indices of values in a sorted array, and whether they are in it.

    The index of a value that is not in the array is any valid one.
    """
    if not len(sorted_array):
        return np.zeros(len(values), "int64"), np.zeros(len(values), bool)
    indices = np.minimum(np.searchsorted(sorted_array, values), len(sorted_array) - 1)
    return indices, sorted_array[indices] == values


def _discounts(counts):
    """Return the discounts for counts 0, 1, 2 and 3 or more, float64 `(4,)`."""
    ones, twos, threes, fours = (float(np.sum(counts == i)) for i in (1, 2, 3, 4))
    if not ones * twos * threes * fours:
        return np.array(FALLBACK_DISCOUNTS)
    share = ones / (ones + 2 * twos)
    discounts = (
        0,
        *(
            i - (i + 1) * share * more / count
            for i, count, more in (
                (1, ones, twos),
                (2, twos, threes),
                (3, threes, fours),
            )
        ),
    )
    return np.array(discounts if min(discounts) >= 0 else FALLBACK_DISCOUNTS)
