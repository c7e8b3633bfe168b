"""English inflection: verbs, do-support, articles, questions."""

_PAST = {
    "eat": "ate",
    "drink": "drank",
    "read": "read",
    "write": "wrote",
    "buy": "bought",
    "sell": "sold",
    "make": "made",
    "wear": "wore",
    "draw": "drew",
    "sing": "sang",
    "teach": "taught",
    "cut": "cut",
    "choose": "chose",
    "find": "found",
    "lose": "lost",
    "quit": "quit",
    "ride": "rode",
    "drive": "drove",
    "build": "built",
    "know": "knew",
    "forget": "forgot",
    "meet": "met",
    "take": "took",
    "sleep": "slept",
    "run": "ran",
    "swim": "swam",
    "give": "gave",
    "send": "sent",
    "go": "went",
    "come": "came",
    "leave": "left",
    "have": "had",
}
_DOUBLE = {"cut", "run", "swim", "quit", "forget"}
_BE = {"1s": "am", "1p": "are", "3s": "is", "3p": "are"}


def third_person(verb):
    """Return the third person singular of a verb, which may have a particle."""
    head, space, rest = verb.partition(" ")
    if head == "have":
        head = "has"
    elif head.endswith(("s", "sh", "ch", "x", "o")):
        head += "es"
    elif head.endswith("y") and head[-2] not in "aeiou":
        head = head[:-1] + "ies"
    else:
        head += "s"
    return head + space + rest


def past_tense(verb):
    """Return the past tense of a verb, which may have a particle."""
    head, space, rest = verb.partition(" ")
    if head in _PAST:
        head = _PAST[head]
    elif head.endswith("e"):
        head += "d"
    elif head.endswith("y") and head[-2] not in "aeiou":
        head = head[:-1] + "ied"
    else:
        head += head[-1] + "ed" if head in _DOUBLE else "ed"
    return head + space + rest


def gerund(verb):
    """Return the -ing form of a verb, which may have a particle."""
    head, space, rest = verb.partition(" ")
    if head.endswith("e") and not head.endswith("ee"):
        head = head[:-1]
    elif head in _DOUBLE:
        head += head[-1]
    return head + "ing" + space + rest


def a(noun_phrase):
    """Return a noun phrase with the indefinite article chosen by its first letter."""
    return ("an " if noun_phrase[0] in "aeiou" else "a ") + noun_phrase


def verb_phrase(verb, person, tense, modal="", negative=False):
    """Return the auxiliary (or "") and the main verb that agree with a subject.

    Args:
        verb: base form, including "be", with a particle after it ("turn on").
        person: "1s", "1p", "3s" or "3p".
        tense: "p" present, "g" progressive, "d" past, "f" future.
        modal: "", "can", "must" or "want".
        negative: bool, whether a simple tense takes do-support.
    """
    if modal == "can":
        return ("could" if tense == "d" else "can"), verb
    if modal == "must":
        return "must", verb
    if modal == "want":
        verb = "want to " + verb
    if tense == "f":
        return "will", verb
    if verb == "be" or tense == "g":
        be = ("were" if person[1] == "p" else "was") if tense == "d" else _BE[person]
        return be, "" if verb == "be" else gerund(verb)
    third = person == "3s" and tense == "p"
    if negative:
        do = "did" if tense == "d" else "does" if third else "do"
        return do, verb
    if tense == "d":
        return "", past_tense(verb)
    return "", third_person(verb) if third else verb


def clause(subject, verb, person, tense, modal="", negative=False, adverb="", tail=()):
    """Return a statement: subject, auxiliary, not, adverb, verb, then `tail`."""
    auxiliary, main = verb_phrase(verb, person, tense, modal, negative)
    no = "not" if negative else ""
    if auxiliary == "can" and negative:
        auxiliary, no = "cannot", ""
    return join(subject, auxiliary, no, adverb, main, *tail)


def question(
    subject, verb, person, tense, modal="", negative=False, adverb="", tail=(), wh=""
):
    """Return a question with inversion and do-support, which begins with `wh`."""
    auxiliary, main = verb_phrase(verb, person, tense, modal, negative)
    if not auxiliary:
        auxiliary, main = verb_phrase(verb, person, tense, modal, True)
    no = "not" if negative else ""
    return join(wh, auxiliary, subject, no, adverb, main, *tail)


def join(*parts):
    """Join the parts that are not empty with spaces."""
    return " ".join(part for part in parts if part)


def sentence(text, mark="."):
    """Return text with a capital letter and a punctuation mark."""
    return text[0].upper() + text[1:] + mark
