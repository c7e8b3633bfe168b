"""Rules for sentences of two clauses: and, but, because, if, when, that, who."""

from dataclasses import replace

from . import english, lexicon
from .grammar import COME, GO, Clause, Person, finish
from .lexicon import NOUNS, Adjective, Verb
from .morphology import Stem, particle


def _because(stem):
    return stem.infinitive() + "서"


def _reason(stem):
    return stem.plain("기 때문에")


def _and(stem):
    return stem.plain("고")


def _but(stem):
    return stem.plain("지만")


# Two clauses


def same_subject(g):
    """Return a sentence with one subject and two verbs."""
    who, tense = g.person(), g.rng.choice("pddf")
    first = g.clause(who, tense, g.verb(tense, active=True), full=0.5, time=False)
    second = g.clause(who, tense, g.verb(tense, active=True), full=0.5, time=False)
    if first.verb == second.verb:
        return same_subject(g)
    first.adverb = second.adverb = ("", "")
    first.time = g.rng.choice([*lexicon.TIMES[tense], ("", ""), ("", "")])
    ko = f"{first.korean(_and, tensed=False)} {second.korean(subject='')}"
    then = second.english(subject="").removeprefix("will ")
    return finish(ko, f"{first.english()} and {then}")


def _contrast(g):
    """Sample a verb and two different objects of the same kind."""
    verb = g.rng.choice([v for v in lexicon.VERBS if v.form in ("a", "gen")])
    if verb.en == "wear":
        return _contrast(g)
    kind = g.rng.choice(sorted(verb.objects))
    nouns = [n for n in NOUNS if kind in n.classes]
    if len(nouns) < 2:
        return _contrast(g)
    return verb, g.rng.sample(nouns, 2)


def one_not_other(g):
    """Return a sentence such as `She likes apples but does not like cheese`."""
    who, (verb, nouns) = g.person(), _contrast(g)
    tense = g.tense_of(verb, "pd")
    yes, no = Clause(who, verb, tense), g.negate(Clause(who, verb, tense))
    for clause, noun, mark in zip((yes, no), nouns, ("을", "은"), strict=True):
        ko, en = g.noun_phrase(noun, verb.form, plain=True)
        clause.before, clause.tail = [particle(ko, mark)], [en]
    ko = f"{yes.korean(_but)} {no.korean(subject='')}"
    return finish(ko, f"{yes.english()} but {no.english(subject='')}")


def two_subjects(g):
    """Return two clauses with different subjects, joined by `and` or `but`."""
    who = g.person()
    people = [who, g.other(who)]
    if g.chance(0.4):
        verb, nouns = _contrast(g)
        tense = g.tense_of(verb, "pd")
        clauses = [Clause(person, verb, tense) for person in people]
        for clause, noun in zip(clauses, nouns, strict=True):
            ko, en = g.noun_phrase(noun, verb.form)
            clause.before, clause.tail = [particle(ko, "을")], [en]
        ending, tensed, join = _but, True, "but"
    else:
        tense = g.rng.choice("pgddf")
        clauses = [
            g.clause(p, tense, g.verb(tense, active=True), full=0.5, time=False)
            for p in people
        ]
        ending, tensed, join = _and, False, "and"
    first, second = clauses
    ko = f"{first.korean(ending, tensed=tensed)} {second.korean()}"
    return finish(ko, f"{first.english()}, {join} {second.english()}")


# Weather: (Korean subject, predicate, English, whether people go outside).
_WEATHER = [
    ("비가", COME, "rain", False),
    ("눈이", COME, "snow", False),
    ("날씨가", Adjective("춥", "ㅂ", "be"), "cold", False),
    ("날씨가", Adjective("덥", "ㅂ", "be"), "hot", False),
    ("날씨가", Adjective("좋", "", "be"), "good", True),
]
_OUTSIDE = set("exercise swim walk play run ride plant".split()) | {"take"}
_INSIDE = set("read drink rest sleep watch draw bake study eat".split()) | {"listen to"}


def weather(g):
    """Return a sentence about something done because of the weather, or if it is so."""
    subject, verb, en, fine = g.rng.choice(_WEATHER)
    tense = g.rng.choice("dddpff")
    cause = Clause(Person("", "the weather"), verb, "d" if tense == "d" else "p")
    if verb is COME:
        cause.who, cause.verb = Person("", "it"), replace(verb, en=en)
    else:
        cause.tail = [en]
    outside = fine or g.chance(0.5)
    names = _OUTSIDE if outside else _INSIDE
    table = (*lexicon.VERBS, *lexicon.INTRANSITIVE)
    fit = [v for v in table if v.en in names and tense in v.tenses]
    then = g.clause(g.person(), tense, g.rng.choice(fit), full=0.6, time=False)
    then.adverb = ("", "")
    if outside and not fine:
        then.modal = "can" if tense != "f" and g.chance(0.5) else ""
        g.negate(then)
    if tense == "f":
        ko = cause.korean(lambda s: s.eu("면"), subject)
        en = f"if {cause.english()}, {then.english()}"
    else:
        if g.chance(0.6):
            ko = cause.korean(_because, subject, tensed=False)
        else:
            ko = cause.korean(_reason, subject)
        en = f"{then.english()} because {cause.english()}"
    return finish(f"{ko} {then.korean()}", en)


# Feeling -> (Korean verbs of its effects, whether they are negated).
_EFFECTS = {
    "hungry": ("먹 요리하 굽", False),
    "tired": ("자 쉬", False),
    "sick": ("쉬 일하 운동하 수영하 춤추 공부하", None),
    "busy": ("만나 자 쉬 먹 운동하 읽 보 놀", True),
    "happy": ("웃 춤추 부르", False),
    "sad": ("울 마시 듣", False),
}


def because_feeling(g):
    """Return a sentence about something done because of a feeling."""
    who = g.person(known=True)
    if not who.pronoun:
        return because_feeling(g)
    tense = g.rng.choice("ddp")
    cause = g.feeling(who, tense)
    if cause.tail[0] not in _EFFECTS:
        return because_feeling(g)
    verbs, negative = _EFFECTS[cause.tail[0]]
    table = [
        v for v in (*lexicon.VERBS, *lexicon.INTRANSITIVE) if v.ko in verbs.split()
    ]
    verb = g.rng.choice(table)
    if tense not in verb.tenses:
        return because_feeling(g)
    then = g.clause(who, tense, verb, full=0.6, time=False)
    then.adverb = ("", "")
    rests = verb.en == "rest"
    if negative or (negative is None and not rests):
        then.modal = "can"
        g.negate(then)
    times = [("어제", "yesterday"), ("오늘 아침에", "this morning"), ("", ""), ("", "")]
    time = g.rng.choice(times) if tense == "d" else ("", "")
    cause.time = (time[0], "")
    then.time = ("", time[1])
    if g.chance(0.6):
        ko = cause.korean(_because, tensed=False)
    else:
        ko = cause.korean(_reason)
    ko = f"{ko} {then.korean(subject='')}"
    return finish(ko, f"{then.english()} because {cause.english(subject=who.pronoun)}")


_LEISURE = _OUTSIDE | _INSIDE | set("practice cook help meet sing dance clean".split())


def if_have(g):
    """Return a sentence about something done if somebody has time or money."""
    who = g.person(known=True)
    if not who.pronoun:
        return if_have(g)
    noun, noun_en = g.rng.choice([("시간이", "time"), ("돈이", "money")])
    cause = Clause(who, Verb("있", "", "have"), "p", [noun], [noun_en])
    if noun_en == "money":
        verbs = [v for v in lexicon.VERBS if v.en in ("buy", "build", "learn")]
        verb = g.rng.choice(verbs)
    else:
        table = (*lexicon.VERBS, *lexicon.INTRANSITIVE)
        verb = g.rng.choice([v for v in table if v.en in _LEISURE])
    then = g.clause(who, "f", verb, full=0.6, time=False)
    ko = cause.korean(lambda s: s.eu("면")) + " " + then.korean(subject="")
    return finish(ko, f"if {cause.english()}, {then.english(subject=who.pronoun)}")


def around(g):
    """Return a sentence with `before`, `after` or `when`."""
    who, tense = g.person(known=True), g.rng.choice("pdf")
    main = g.clause(who, tense, g.verb(tense, active=True), full=0.5, time=False)
    other = g.clause(who, "f", g.verb("f", active=True), full=0.2, time=False)
    if main.verb == other.verb or not who.pronoun or other.verb.en == "wait":
        return around(g)
    kind = g.rng.random()
    if kind < 0.66:
        before = kind < 0.33
        ending = (
            (lambda s: s.plain("기 전에")) if before else lambda s: s.eun() + " 후에"
        )
        ko = other.korean(ending, subject="", tensed=False)
        doing = english.join(english.gerund(other.verb.en), *other.tail)
        en = f"{main.english()} {'before' if before else 'after'} {doing}"
    else:
        busy = "study work walk cook exercise clean draw travel rest draw".split()
        at_once = ["drink", "eat", "sing", "listen to"]
        if tense == "f":
            return around(g)
        verbs = [v for v in (*lexicon.VERBS, *lexicon.INTRANSITIVE) if v.en in busy]
        other = g.clause(who, "f", g.rng.choice(verbs), full=0.2, time=False)
        verbs = [v for v in lexicon.VERBS if v.en in at_once]
        main = g.clause(who, tense, g.rng.choice(verbs), full=0, time=False)
        other.tense = tense
        ko = other.korean(lambda s: s.eul() + " 때", subject="", tensed=False)
        en = f"{main.english()} when {other.english(subject=who.pronoun)}"
    return finish(f"{who.topic()} {ko} {main.korean(subject='')}", en)


def errand(g):
    """Return a sentence about going to a place and doing something there."""
    who, tense = g.person(), g.rng.choice("ddfp")
    ko_place, _, to, tags = g.rng.choice(lexicon.PLACES)
    verbs = [
        v
        for v in (*lexicon.VERBS, *lexicon.INTRANSITIVE)
        if v.places in tags
        and "f" in v.tenses
        and v.form != "who"
        and v.en not in ("wait", *lexicon.LASTING, "travel")
    ]
    if not verbs:
        return errand(g)
    verb = g.rng.choice([v for v in verbs if v.places])
    do = g.clause(who, "f", verb, full=0, time=False)
    go = Clause(who, g.rng.choice([GO, GO, COME]), tense)
    g.add_time(go)
    time, go.time = go.time, ("", "")
    place = particle(ko_place, "에")
    stem = Stem(verb.ko, verb.irregular)
    if g.chance(0.55):
        ko = [
            who.topic(),
            time[0],
            place,
            *do.before,
            stem.eu("러"),
            go.korean(subject=""),
        ]
        en = [go.english(), to, "to", verb.en, *do.tail, time[1]]
    else:
        do.tense = tense
        went = go.verb.ko + "서"
        if go.verb is COME:
            went = "와서"
        ko = [who.topic(), time[0], place, went, do.korean(subject="")]
        then = do.english(subject="")
        then = then.removeprefix("will ")
        en = [go.english(), to, "and", then, time[1]]
    return finish(english.join(*ko), english.join(*en))


# Relative clauses


def relative_object(g):
    """Return a sentence with a relative clause such as `the cake that she made`."""
    maker, tense = g.person(known=True), g.rng.choice("dddpf")
    if not maker.pronoun:
        return relative_object(g)
    verbs = [v for v in lexicon.VERBS if v.form == "a" and tense in v.tenses]
    verb = g.rng.choice([v for v in verbs if "m" in v.tenses])
    noun = g.noun(verb.objects)
    if noun.article == "the" or "subject" in noun.classes:
        return relative_object(g)
    part = Clause(maker, verb, tense)
    if tense != "p" and verb.en not in lexicon.LASTING and g.chance(0.3):
        part.time = g.rng.choice(lexicon.TIMES[tense])
    form = {"d": Stem.eun, "p": Stem.neun, "f": Stem.eul}[tense]
    ko = part.korean(form, subject="subject", tensed=False) + " " + noun.ko
    en = f"the {noun.en} that {part.english()}"
    adjective = g.adjective_for(noun)
    if g.chance(0.4) and adjective:
        person = "3p" if noun.article == "s" else "3s"
        main = Clause(Person(ko, en, person), replace(adjective, en="be"), "p")
        main.tail = [adjective.en]
        return finish(main.korean(), main.english())
    uses = [v for v in lexicon.VERBS if v.objects & noun.classes and v.en != verb.en]
    uses = [v for v in uses if v.form in "a the" and "d" in v.tenses]
    if not uses:
        return relative_object(g)
    use = g.rng.choice(uses)
    who = g.other(maker)
    main = Clause(who, use, g.tense_of(use, "df"), [particle(ko, "을")], [en])
    return finish(main.korean(), main.english())


def relative_subject(g):
    """Return a sentence with a relative clause such as `the man who works here`."""
    noun = g.rng.choice(lexicon.ROLES)
    part = g.clause(Person("", "who"), "pd", full=0.9, time=False)
    if part.verb.form == "who":
        return relative_subject(g)
    part.adverb = ("", "")
    form = Stem.eun if part.tense == "d" else Stem.neun
    ko = part.korean(form, subject="", tensed=False) + " " + noun.ko
    en = f"the {noun.en} {part.english()}"
    kind = g.rng.random()
    if kind < 0.4:
        main = g.feeling(Person(ko, en), "p")
    elif kind < 0.7:
        owner = g.kin()
        pronoun = {"남자": "he", "여자": "she"}.get(noun.ko, owner.pronoun)
        if noun.ko == "아이" or owner.pronoun != pronoun:
            return relative_subject(g)
        be = english.clause(en, "be", "3s", "p", tail=[owner.en])
        return finish(f"{particle(ko, '은')} {particle(owner.ko, '이에요')}", be)
    else:
        verb = g.rng.choice([v for v in lexicon.VERBS if v.form == "who"])
        who = g.person(names=True)
        main = Clause(who, verb, g.tense_of(verb), [particle(ko, "을")], [en])
    return finish(main.korean(), main.english())
