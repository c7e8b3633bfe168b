"""Labelled texts: a small built-in corpus, and texts read from files."""

import collections
import itertools
import pathlib
import random

__all__ = ["built_in", "read", "split"]

THINGS = """
    kettle, lamp, headphones, backpack, keyboard, blender, jacket, tent, speaker,
    office chair
"""
OPENINGS = ["", "Hi, ", "Hello there, ", "Good morning, ", "Sorry to bother you, "]

# Topic -> sentences of customers, with `{}` for the product. The held-out sentences
# paraphrase the training sentences: pretrained models recognize them, models that count
# words do not.
TRAINED = {
    "delivery": """
        the {} still has not arrived | when will my {} be delivered |
        the tracking of my {} has not moved for days |
        the driver left the {} at the wrong address | the {} got lost in the mail |
        can you ship the {} sooner | my package with the {} is late again
    """,
    "refund": """
        I want my money back for the {} | please refund the {} |
        how do I return the {} | I sent the {} back and got no refund yet |
        I would like to exchange the {} | where is the refund for the {} |
        the {} is going back to you, what about my money
    """,
    "billing": """
        I was charged twice for the {} | the invoice for the {} is wrong |
        my card was declined when I paid for the {} |
        there is a charge for a {} I never ordered | can I pay for the {} by card |
        send me an invoice for the {} | the price on the bill for the {} is too high
    """,
    "defect": """
        the {} stopped working after a week | the {} arrived broken |
        my {} makes a strange noise | a part of the {} is missing |
        the {} does not switch on | there is a crack in the {} |
        the {} fell apart on the first day
    """,
    "account": """
        I cannot log in to see my {} order | I forgot my password and need the {} page |
        please change the email address on my account, the {} is under the old one |
        how do I delete my account after buying the {} |
        my login does not work since I bought the {} |
        the site says my username is unknown though I bought a {} |
        reset my password please, I want to order a {}
    """,
    "praise": """
        I love my new {} | the {} is great, thank you | best {} I have ever had |
        thanks for the quick help with the {} | the {} works perfectly |
        I am very happy with the {} | what a wonderful {}
    """,
}
HELD_OUT = {
    "delivery": """
        the courier never turned up with the {} | my {} is stuck somewhere on the way |
        it was meant to get here on Monday, where is the {} |
        how long until the {} reaches me | nobody dropped off my {} |
        the parcel service cannot find the {}
    """,
    "refund": """
        I changed my mind about the {} and expect to be reimbursed |
        the {} is not for me, may I give it back | take the {} back and repay me |
        please reverse the purchase of the {} and credit me |
        the {} does not suit me, I would rather have the cash |
        I mailed the {} to your warehouse, when am I repaid
    """,
    "billing": """
        you took too much from my bank for the {} |
        why does my statement list the {} two times |
        the amount you asked for the {} differs from the offer |
        I need a receipt for the {} for my taxes |
        does the {} come with instalments or all at once |
        your shop debited the {} although I cancelled at checkout
    """,
    "defect": """
        the {} died already | my {} is faulty and will not turn on |
        the {} came damaged and useless | the {} overheats and smells burnt |
        a screw of the {} came loose and it wobbles |
        there are scratches all over the {}
    """,
    "account": """
        I am locked out of my profile, with the {} in it |
        signing in fails although the {} was bought with this address |
        I need new credentials to look at the {} |
        someone hacked my profile and bought a {} |
        your page does not recognise me when I look up the {} |
        how can I change my phone number for the {} I follow
    """,
    "praise": """
        the {} exceeded my hopes, well done | fantastic {}, five stars |
        such a lovely {}, my family adores it | could not be more pleased with the {} |
        your support was amazing when I chose the {} | the {} was worth every cent
    """,
}


def built_in(seed=0):
    """Return messages to a shop with their topics, 420 for training and 180 held out.

    The held-out messages are 36 sentences with 5 products each. None of these sentences
    is in the training messages with any product.

    Returns:
        A tuple `(train, valid)` of lists of `(text, label)` pairs.
    """
    things = [thing.strip() for thing in THINGS.split(",")]
    rng = random.Random(seed)

    def fill(topics, things):
        pairs = []
        for label, sentences in topics.items():
            for sentence in sentences.split("|"):
                sentence = " ".join(sentence.split())
                for thing in things:
                    text = rng.choice(OPENINGS) + sentence.format(thing) + "."
                    pairs.append((text[0].upper() + text[1:], label))
        rng.shuffle(pairs)
        return pairs

    return fill(TRAINED, things), fill(HELD_OUT, things[::2])


def read(path):
    """Read labelled texts from a file or a folder.

    Args:
        path: path of a UTF-8 file with one line `text<TAB>label` per text, or of a
            folder with one subfolder per label, whose files are the texts.

    Returns:
        A list of `(text, label)` pairs.

    Raises:
        FileNotFoundError: if `path` does not exist.
        ValueError: if a line has no text or no label, or if there are fewer than two
            labels.
    """
    path = pathlib.Path(path)
    if not path.exists():
        raise FileNotFoundError(
            f"Expected a file or a folder of labelled texts. Received: path={path}"
        )
    pairs = list(_read_folder(path) if path.is_dir() else _read_file(path))
    labels = sorted({label for _, label in pairs})
    if len(labels) < 2:
        raise ValueError(
            f"Expected at least two labels. Received: labels={labels}, path={path}"
        )
    return pairs


def _read_file(path):
    """Yield the text and the label of each line."""
    lines = path.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        text, _, label = map(str.strip, line.rpartition("\t"))
        if text and label:
            yield text, label
        elif line.strip():
            raise ValueError(
                f"Expected text<TAB>label. Received: {line!r}, line {number} of {path}"
            )


def _read_folder(path):
    """Yield the text and the label of each file."""
    for file in sorted(path.glob("*/*")):
        if file.is_file():
            yield file.read_text(encoding="utf-8").strip(), file.parent.name


def split(pairs, valid_share, seed):
    """Split pairs into training and held-out pairs, stratified by label.

    Duplicate texts are removed, so that no text is in both lists.

    Returns:
        A tuple `(train, valid)` of lists of `(text, label)` pairs.

    Raises:
        ValueError: if a label has only one text.
    """
    by_label = sorted(dict(pairs).items(), key=lambda pair: pair[1])
    counts = collections.Counter(label for _, label in by_label)
    rare = sorted(label for label, count in counts.items() if count < 2)
    if rare:
        raise ValueError(
            "Expected at least two texts per label, one for training and one held out. "
            f"Received: one text of {rare}"
        )
    rng, train, valid = random.Random(seed), [], []
    for _, group in itertools.groupby(by_label, key=lambda pair: pair[1]):
        group = list(group)
        rng.shuffle(group)
        count = max(1, round(valid_share * len(group)))
        valid += group[:count]
        train += group[count:]
    rng.shuffle(train)
    return train, valid
