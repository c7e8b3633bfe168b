"""A generated Korean-English corpus, so that the example needs no download.

`pairs()` samples sentences from a small grammar with real particles and endings,
tenses, negation, questions, counters, relative and subordinate clauses, in the polite
style.
The mapping is deterministic by design: pronouns are explicit, tense markers determine
the tense, and articles follow from the noun and the verb. A small model can therefore
learn it within minutes, and its score measures learning, not variation in translation.
"""

import random
import re
from collections import Counter

from .grammar import Grammar
from .rules import RULES

__all__ = ["pairs"]


def _words(pair):
    """Return the English words of a pair, in lower case."""
    return re.findall(r"\w+", pair[1].lower())


def pairs(num_train=6000, num_valid=300, seed=0):
    """Generate Korean-English sentence pairs for training and for validation.

    Args:
        num_train: int, number of training pairs.
        num_valid: int, number of held-out pairs, which are new sentences of words that
            occur in the training pairs.
        seed: int. The same seed generates the same pairs on any machine.

    Returns:
        A tuple `(train, valid)` of lists of `(korean, english)` pairs of strings. No
        sentence of either language occurs twice, so none of `valid` occurs in `train`.
        If `num_train` is at least 6000, each English word of `valid` occurs at least
        five times in `train`.

    Raises:
        ValueError: if a number of pairs is negative.

    Example:
        >>> from korean_english import pairs
        >>> train, valid = pairs(num_train=100, num_valid=10, seed=1)
        >>> len(train), len(valid)
        (100, 10)
    """
    for name, number in (("num_train", num_train), ("num_valid", num_valid)):
        if number < 0:
            raise ValueError(
                f"`{name}` must not be negative. Received: {name}={number}"
            )
    rng = random.Random(seed)
    grammar = Grammar(rng)
    rules, weights = list(RULES), list(RULES.values())
    korean, english, train, valid = set(), set(), [], []

    def draw():
        while True:
            ko, en = rng.choices(rules, weights)[0](grammar)
            if ko not in korean and en not in english:
                korean.add(ko)
                english.add(en)
                return ko, en

    while len(train) < num_train:
        train.append(draw())
    counts = Counter(word for pair in train for word in _words(pair))
    min_count = 5 if num_train >= 6000 else 0
    while len(valid) < num_valid:
        pair = draw()
        if all(counts[word] >= min_count for word in _words(pair)):
            valid.append(pair)
    return train, valid
