"""The word tables as objects: nouns with plurals, verbs and adjectives."""

from dataclasses import dataclass

from . import tables

# Lasting states take only expressions of years and months; the verbs of LONG may.
LASTING = {"raise", "live", "build"}
LONG = LASTING | set(
    "learn teach study practice work travel plant buy sell write quit exercise".split()
)


@dataclass(frozen=True)
class Noun:
    ko: str
    en: str
    plural: str
    article: str
    counter: str
    classes: frozenset


@dataclass(frozen=True)
class Verb:
    ko: str
    irregular: str
    en: str
    objects: frozenset = frozenset()
    form: str = ""
    places: str = ""
    tenses: str = ""


@dataclass(frozen=True)
class Adjective:
    ko: str
    irregular: str
    en: str
    comparative: str = ""
    classes: frozenset = frozenset()


def _rows(table):
    """Yield the cells of each line of a table."""
    for line in table.strip().splitlines():
        yield [cell.strip() for cell in line.split("|")]


def _plural(en):
    """Return the regular plural of an English noun."""
    if en.endswith(("s", "sh", "ch", "x")):
        return en + "es"
    if en.endswith("y") and en[-2] not in "aeiou":
        return en[:-1] + "ies"
    return en + "s"


def _noun(ko, en, article, counter, classes):
    """Return the noun of a row of the table."""
    en, _, plural = en.partition("/")
    if article in ("-", "s"):
        plural = en
    return Noun(
        ko,
        en,
        plural or _plural(en),
        article,
        counter,
        frozenset(classes.split()),
    )


def _stem(text):
    """Split a Korean stem from its irregular class."""
    stem, _, irregular = text.partition("/")
    return stem, irregular


NOUNS = [_noun(*row) for row in _rows(tables.NOUNS)]
VERBS = [
    Verb(*_stem(ko), en, frozenset(objects.split()), form, places, tenses)
    for ko, en, objects, form, places, tenses in _rows(tables.VERBS)
]
INTRANSITIVE = [
    Verb(*_stem(ko), en, places=places, tenses=tenses)
    for ko, en, places, tenses in _rows(tables.INTRANSITIVE)
]
GIVE = [
    Verb(*_stem(ko), en, frozenset(objects.split()), tenses="pgdfm")
    for ko, en, objects, _ in _rows(tables.GIVE)
]
PLACES = [(*row[:3], frozenset(row[3].split())) for row in _rows(tables.PLACES)]
ADJECTIVES = [
    Adjective(*_stem(ko), en, er, frozenset(classes.split()))
    for ko, en, er, classes in _rows(tables.ADJECTIVES)
]
FEELINGS = [Adjective(*_stem(ko), en) for ko, en in _rows(tables.FEELINGS)]
ROLES = [_noun(ko, en, "a", "명", "who") for ko, en in _rows(tables.ROLES)]
NAMES = [tuple(row) for row in _rows(tables.NAMES)]
KIN = [tuple(row) for row in _rows(tables.KIN)]
NUMERALS = [tuple(row) for row in _rows(tables.NUMERALS)]
COUNTERS = {ko: (one, many) for ko, one, many in _rows(tables.COUNTERS)}
OFTEN = [tuple(row) for row in _rows(tables.OFTEN)]
WEEKDAYS = [tuple(row) for row in _rows(tables.WEEKDAYS)]
VEHICLES = [tuple(row) for row in _rows(tables.VEHICLES)]
WHERE = [tuple(row) for row in _rows(tables.WHERE)]
TIMES = {tense: [] for tense in "pgdfDF"}
for tense, *words in _rows(tables.TIMES):
    TIMES[tense].append(tuple(words))
TOOLS = {}
for verb, *words in _rows(tables.TOOLS):
    TOOLS.setdefault(verb, []).append(tuple(words))
