"""N-gram language models: what a model of a text has to beat."""

import numpy as np

# Discounts where there is too little to estimate them from, those of KenLM.
FEW_DATA = (0.0, 0.5, 1.0, 1.5)


class KneserNey:
    """Interpolated modified Kneser-Ney, the strongest of the usual n-gram models.

    The probability of a token after a history is its discounted count there, plus what
    the discounts have freed times the probability after the history shortened by its
    oldest token; after the empty one stands the uniform distribution. Shorter histories
    count not how often a token followed but after how many different ones. There are
    three discounts for each length, for counts of 1, 2 and more, estimated from how
    many counts are 1, 2, 3 and 4. Nothing is tuned. With `order=1` it is the unigram
    model.

    Args:
        documents: list of int arrays `(T,)`, the ids to count.
        vocabulary_size: int V, ids lie below it.
        order: int, tokens of an n-gram: 3 for a trigram model.
        start_token_id: int, what stands before the first token of a document.

    Raises:
        ValueError: for ids outside the vocabulary, or n-grams too many to number.

    Example:
        >>> trigram = KneserNey([np.array([4, 5, 4])], vocabulary_size=6, order=3)
        >>> trigram.probabilities([np.array([4, 5])])  # of 4, then of 5 after 4

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
            # Without its oldest token each different n-gram counts once.
            keys, counts = np.unique(keys % vocabulary_size**length, return_counts=True)
            self.levels[length] = _Level(keys, counts, vocabulary_size)

    def probabilities(self, documents):
        """Of each token of each document in turn, float64 `(total number,)`."""
        keys = self._keys(documents)
        found = np.full(len(keys), 1 / self.vocabulary_size)
        for length in range(1, self.order + 1):
            found = self.levels[length].refine(
                keys % self.vocabulary_size**length, found
            )
        return found

    def _keys(self, documents):
        """One number for each token and those before it, int64 `(total number,)`."""
        padding = np.full(self.order - 1, self.start_token_id, "int64")
        keys = [np.zeros(0, "int64")]
        for ids in documents:
            ids = np.asarray(ids, "int64")
            if ids.size and not 0 <= ids.min() <= ids.max() < self.vocabulary_size:
                raise ValueError(
                    f"Ids must lie in [0, {self.vocabulary_size}). "
                    f"Received: ids from {ids.min()} to {ids.max()}"
                )
            padded = np.concatenate([padding, ids])
            key = np.zeros(len(ids), "int64")
            for i in range(self.order):
                key = key * self.vocabulary_size + padded[i : i + len(ids)]
            keys.append(key)
        return np.concatenate(keys)


class _Level:
    """The n-grams of one length: what they and their histories are counted as."""

    def __init__(self, keys, counts, vocabulary_size):
        self.vocabulary_size = vocabulary_size
        self.keys = keys
        discounts = _discounts(counts)[np.minimum(counts, 3)]
        self.kept = counts - discounts
        # Sorted as the keys are, n-grams of one history lie side by side.
        self.histories, first = np.unique(keys // vocabulary_size, return_index=True)
        self.totals = np.add.reduceat(counts, first) if len(first) else counts
        self.freed = np.add.reduceat(discounts, first) if len(first) else discounts

    def refine(self, keys, shorter):
        """Probabilities of n-grams from those with the shorter history."""
        history, known = _places(self.histories, keys // self.vocabulary_size)
        gram, seen = _places(self.keys, keys)
        found = shorter.copy()
        total = self.totals[history[known]]
        kept = np.where(seen[known], self.kept[gram[known]], 0.0)
        found[known] = (kept + self.freed[history[known]] * shorter[known]) / total
        return found


def _places(ordered, values):
    """Where values stand in a sorted array, and whether they do; else a place in it."""
    if not len(ordered):
        return np.zeros(len(values), "int64"), np.zeros(len(values), bool)
    places = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    return places, ordered[places] == values


def _discounts(counts):
    """Of counts 0, 1, 2 and more, float64 `(4,)`."""
    ones, twos, threes, fours = (float(np.sum(counts == i)) for i in (1, 2, 3, 4))
    if not ones * twos * threes * fours:
        return np.array(FEW_DATA)
    share = ones / (ones + 2 * twos)
    found = (
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
    return np.array(found if min(found) >= 0 else FEW_DATA)
