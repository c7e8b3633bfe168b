"""A Korean to English corpus made on the spot, so that the example needs no download.

`pairs()` draws sentences from a small grammar: real particles and endings, tenses,
negation, questions, counters, relative and subordinate clauses, in the polite style.
The mapping is regular on purpose (pronouns are said, tense marks decide the tense,
articles follow from the noun and the verb), so that a small model can learn it
within minutes and its score says whether it learned, not how people would differ.
"""

import random
import re
from collections import Counter

from .grammar import Grammar
from .rules import RULES

__all__ = ["pairs"]


def _words(pair):
    return re.findall(r"\w+", pair[1].lower())


def pairs(num_train=6000, num_valid=300, seed=0):
    """Korean-English sentence pairs for training and for validation.

    Args:
        num_train: Number of training pairs.
        num_valid: Number of held-out pairs: new sentences of known words.
        seed: Integer; the same seed gives the same pairs on any machine.

    Returns:
        `(train, valid)`, lists of `(korean, english)` tuples of strings. No sentence
        of either language occurs twice, so none of `valid` occurs in `train`. Every
        English word of `valid` occurs at least five times in `train`, if `train` is
        of the default size or more.

    Raises:
        ValueError: For a negative number of pairs.

    Example:

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
    enough = 5 if num_train >= 6000 else 0
    while len(valid) < num_valid:
        pair = draw()
        if all(counts[word] >= enough for word in _words(pair)):
            valid.append(pair)
    return train, valid
