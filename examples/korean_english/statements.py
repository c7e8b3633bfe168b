"""Rules for sentences of one clause: statements and requests."""

from dataclasses import replace

from . import english, lexicon
from .grammar import ME, US, Clause, Person, finish
from .lexicon import NOUNS, WEEKDAYS, Adjective, Verb
from .morphology import Stem, particle


def statement(g):
    """Return a statement."""
    clause = g.clause(g.person())
    if clause.tense == "f" and clause.who in (ME, US) and g.chance(0.4):
        clause.intend = True
    ko = clause.korean(subject="subject" if g.chance(0.12) else "topic")
    if g.chance(0.2) and clause.time[0]:
        # In Korean the time may come first; in English it comes last.
        time, clause.time = clause.time, ("", clause.time[1])
        ko = f"{time[0]} {clause.korean()}"
    return finish(ko, clause.english())


def going(g):
    """Return a statement about going to a place."""
    clause = g.going(g.person(), "pgdf")
    return finish(clause.korean(), clause.english())


def also(g):
    """Return a statement with `also`."""
    clause = g.clause(g.person(), full=0.6)
    clause.adverb = ("", "also")
    subject = particle(clause.who.ko, "도")
    return finish(clause.korean(subject=subject), clause.english())


def negation(g):
    """Return a negative statement."""
    clause = g.clause(g.person(), full=0.7, count=False)
    clause.adverb = ("", "")
    g.negate(clause)
    return finish(clause.korean(), clause.english())


def modal(g):
    """Return a statement with `want to`, `can`, `cannot` or `must`."""
    who = g.person()
    kind = g.rng.choice(["want", "want", "can", "cannot", "cannot", "must"])
    verb = g.verb("pd" if kind in ("want", "cannot") else "p", modal=True)
    tenses = "pd" if kind in ("want", "cannot") else "p"
    clause = g.clause(who, tenses, verb, 0.7, time=False, count=kind != "cannot")
    clause.adverb = ("", "")
    clause.modal = "can" if kind == "cannot" else kind
    if kind == "cannot" or (kind == "want" and g.chance(0.25)):
        g.negate(clause)
    if clause.tense == "d" or kind == "must":
        times = lexicon.TIMES["d" if clause.tense == "d" else "p"]
        clause.time = g.rng.choice([*times, ("", "")])
    return finish(clause.korean(), clause.english())


def request(g):
    """Return a request or a suggestion."""
    verb = g.verb("pgdf", transitive=0.85, modal=True)
    clause = g.clause(ME, "f", verb, full=0.6)
    body = " ".join(["", clause.time[0], *clause.before]).split()
    stem = Stem(verb.ko, verb.irregular)
    tail = [*clause.tail, clause.time[1]]
    kind = g.rng.random()
    if kind < 0.35 and verb.objects:
        ko, en = stem.infinitive() + " 주세요", "please"
    elif kind < 0.65:
        ko, en = stem.eu("세요"), "please"
    elif kind < 0.8:
        ko, en = stem.plain("지 마세요"), "please do not"
    else:
        ko, en = stem.eul() + "까요", "shall we"
    mark = "?" if en == "shall we" else "."
    return finish(" ".join([*body, ko]), english.join(en, verb.en, *tail), mark)


def give(g):
    """Return a statement with an indirect object."""
    verb = g.rng.choice(lexicon.GIVE)
    who = g.person()
    to = g.other(who)
    clause = Clause(who, verb, g.rng.choice("gdddfp"))
    ko, en = g.noun_phrase(g.noun(verb.objects), "a")
    # 에게 is the written form, 한테 the spoken one.
    clause.before = [
        particle(to.ko, g.rng.choice(["에게", "한테"])),
        particle(ko, "을"),
    ]
    clause.tail = [en, "to " + to.me]
    if g.chance(0.5):
        g.add_time(clause)
    if g.chance(0.2):
        g.negate(clause)
    return finish(clause.korean(), clause.english())


def span(g):
    """Return a statement with `from ... to ...` or `leave for`."""
    who, kind = g.person(), g.rng.random()
    if kind < 0.6:
        days = kind < 0.25
        doing = "work rest exercise wait" if days else "sleep play swim walk dance work"
        verb = g.rng.choice([v for v in lexicon.INTRANSITIVE if v.en in doing.split()])
        clause = Clause(who, verb, g.tense_of(verb, "pdf"))
        units = WEEKDAYS if days else lexicon.NUMERALS
        first, last = sorted(g.rng.sample(range(len(units)), 2))
        (ko, en), (ko2, en2) = units[first], units[last]
        if not days:
            ko, ko2 = ko + " 시", ko2 + " 시"
        clause.before = [particle(ko, "부터"), particle(ko2, "까지")]
        clause.tail = [f"from {en} to {en2}"]
    else:
        verb = Verb("떠나", "", "leave for")
        ko, _, en, _ = g.rng.choice([p for p in lexicon.PLACES[1:] if "in" not in p[3]])
        clause = Clause(who, verb, g.rng.choice("df"))
        clause.before, clause.tail = [particle(ko, "으로")], [en.removeprefix("to ")]
        g.add_time(clause)
    return finish(clause.korean(), clause.english())


# be, have


def _thing(g):
    """Sample a subject and an adjective: this, that or somebody's thing, or a place."""
    adjective = g.rng.choice(lexicon.ADJECTIVES)
    fit = [n for n in NOUNS if "subject" not in n.classes and n.article in ("a", "-")]
    fit += [n for n in NOUNS if "room" in n.classes]
    noun = g.rng.choice([n for n in fit if adjective in g.adjectives_for(n)])
    if "room" in noun.classes:
        return Person(noun.ko, "the " + noun.en), noun, adjective
    if g.chance(0.65):
        whose, whose_en = g.rng.choice([("이", "this"), ("그", "that")])
    else:
        whose, whose_en = g.owner()
    return Person(f"{whose} {noun.ko}", f"{whose_en} {noun.en}"), noun, adjective


def description(g):
    """Return a statement or a question with an adjective."""
    who, _, adjective = _thing(g)
    clause = Clause(who, replace(adjective, en="be"), g.rng.choice("pppd"))
    clause.tail = [adjective.en]
    if g.chance(0.25):
        clause.adverb, clause.tail = ("아주", ""), ["very " + adjective.en]
    elif g.chance(0.3):
        g.negate(clause)
    if g.chance(0.2):
        return finish(clause.korean(), clause.english(question=True), "?")
    return finish(clause.korean(), clause.english())


def feeling(g):
    """Return a statement or a question about a feeling."""
    clause = g.feeling(g.person(), g.rng.choice("pd"))
    if g.chance(0.3):
        g.negate(clause)
    if clause.tense == "d" and g.chance(0.5):
        clause.time = g.rng.choice(lexicon.TIMES["d"])
    if clause.who not in (ME, US) and g.chance(0.25):
        return finish(clause.korean(), clause.english(question=True), "?")
    return finish(clause.korean(), clause.english())


def comparison(g):
    """Return a comparison of two things."""
    who, noun, _ = _thing(g)
    adjective = g.adjective_for(noun, comparative=True)
    if adjective is None or "room" in noun.classes:
        return description(g)
    # Only things with a common class are compared.
    kinds = noun.classes - {"thing", "gift", "small", "lose", "borrow"}
    others = [n for n in NOUNS if n.classes & kinds and n.classes & adjective.classes]
    if adjective.en in ("big", "small"):
        others = []
    than = g.rng.choice([n for n in (*others, noun) if n.article in "a-"])
    this, this_en = ("그", "that") if who.en.startswith("this") else ("이", "this")
    more = adjective.comparative
    clause = Clause(who, replace(adjective, en="be"), "p")
    clause.before = [f"{this} {than.ko}보다", "더"]
    more = "more " + adjective.en if more == "more" else more
    clause.tail = [more, f"than {this_en} {than.en}"]
    return finish(clause.korean(), clause.english())


def copula(g):
    """Return a statement or a question about somebody's role."""
    who = g.rng.choice([g.person(names=True), g.kin(), ME, g.kin()])
    grown = who.ko.endswith(("머니", "버지", "삼촌", "이모"))
    role = g.rng.choice(lexicon.ROLES[grown:10])
    clause = Clause(who, Adjective("", "", "be"), g.rng.choice("ppd"))
    clause.tail = [english.a(role.en)]
    kind = g.rng.random()
    past = clause.tense == "d"
    if kind < 0.2:
        clause.negative = "long"
        ko = particle(role.ko, "이") + (" 아니었어요" if past else " 아니에요")
    else:
        ko = particle(role.ko, "이었") + "어요" if past else particle(role.ko, "이에요")
    ko = f"{who.topic()} {ko}"
    if kind > 0.8 and who is not ME:
        return finish(ko, clause.english(question=True), "?")
    return finish(ko, clause.english())


def existence(g):
    """Return a sentence with `there is`, or with `have`."""
    if g.chance(0.3):
        who = g.person()
        noun = g.noun({"animal", "thing"}, countable=True)
        ko, en = g.counted(noun, particle(noun.ko, "이"), noun.en, noun.plural)
        clause = Clause(who, Verb("있", "", "have"), g.rng.choice("ppd"))
        clause.before, clause.tail = [ko], [en]
        return finish(clause.korean(), clause.english())
    if g.chance(0.3):
        noun = g.rng.choice(lexicon.ROLES)
        where, where_en, *_ = g.rng.choice(
            [p for p in lexicon.PLACES if p[0] not in ("집", "강")]
        )
    else:
        noun = g.noun({"small", "animal", "fruit"}, countable=True)
        at, at_en, classes = g.rng.choice(lexicon.WHERE)
        spot = g.noun(set(classes.split()))
        if spot.ko == noun.ko:
            return existence(g)
        where, where_en = f"{spot.ko} {at}", f"{at_en} the {spot.en}"
    tense = g.rng.choice("ppd")
    there_is = Clause(Person("", "there", "3p"), Adjective("", "", "be"), tense)
    if g.chance(0.2):
        ko = "없었어요" if tense == "d" else "없어요"
        there_is.tail = ["no " + noun.plural, where_en]
        return finish(f"{where}에 {particle(noun.ko, '이')} {ko}", there_is.english())
    ko, en = g.counted(noun, particle(noun.ko, "이"), noun.en, noun.plural)
    if en.startswith("one "):
        there_is.who = Person("", "there", "3s")
    there_is.tail = [en, where_en]
    ending = "있었어요" if tense == "d" else "있어요"
    ko = f"{where}에 {ko} {ending}"
    if g.chance(0.2):
        return finish(ko, there_is.english(question=True), "?")
    return finish(ko, there_is.english())
