"""Rules for yes-no questions and for questions with a question word."""

from . import lexicon
from .grammar import ME, US, Clause, Person, finish
from .lexicon import NOUNS
from .morphology import particle


def yes_no(g):
    """Return a yes-no question."""
    who = g.other(ME) if g.chance(0.5) else g.person(names=True)
    if who is US:
        who = g.kin()
    clause = g.going(who) if g.chance(0.15) else g.clause(who, full=0.8)
    clause.adverb = ("", "")
    if g.chance(0.15):
        g.negate(clause)
    return finish(clause.korean(), clause.english(question=True), "?")


def wh_question(g):
    """Return a question with a question word."""
    who = g.rng.choice([g.person(names=True), g.kin(), g.role()])
    kind = g.rng.choice(["who", "what", "whom", "where", "to", "when", "why", "how"])
    if kind in ("to", "how"):
        clause = g.going(who)
        time, clause.time = clause.time, ("", "")
        if kind == "to":
            clause.before, clause.tail, wh = ["어디에"], [], "where"
            clause.time = time
        else:
            clause.before = [clause.before[0], "어떻게"]
            clause.tail, wh = clause.tail[:1], "how"
        return finish(clause.korean(), clause.english(question=True, wh=wh), "?")
    if kind == "what":
        verb = g.rng.choice([v for v in lexicon.VERBS if v.form in ("a", "gen", "the")])
    elif kind == "whom":
        verb = g.rng.choice([v for v in lexicon.VERBS if v.form == "who"])
    else:
        verb = g.verb(active=True)
    clause = g.clause(who, verb=verb, full=0.6, time=kind not in ("when",))
    clause.adverb = ("", "")
    if kind == "who":
        clause.who = Person("누가", "who")
        return finish(clause.korean(subject="누가"), clause.english(), "?")
    if kind in ("what", "whom"):
        wh, ko = ("what", "뭐를") if kind == "what" else ("who", "누구를")
        clause.before = [*clause.before[:-1], ko]
        clause.tail = clause.tail[1:]
    elif kind == "where":
        if not verb.places or any("에서" in part for part in clause.before):
            return wh_question(g)
        clause.before.insert(0, "어디에서")
        wh = "where"
    else:
        ko, wh = ("언제", "when") if kind == "when" else ("왜", "why")
        clause.before.insert(0, ko)
    return finish(clause.korean(), clause.english(question=True, wh=wh), "?")


def how_many(g):
    """Return a question with how many."""
    who = g.person(names=True)
    verb = g.rng.choice([v for v in lexicon.VERBS if v.form == "a" and "m" in v.tenses])
    if verb.en in ("wear", "ride", "drive"):
        return how_many(g)
    nouns = [n for n in NOUNS if n.classes & verb.objects and n.counter]
    if not nouns:
        return how_many(g)
    noun = g.rng.choice(nouns)
    units = lexicon.COUNTERS.get(noun.counter)
    counted = f"{units[1]} of {noun.plural}" if units else noun.plural
    clause = Clause(who, verb, g.tense_of(verb, "df"))
    clause.before = [particle(noun.ko, "을"), f"몇 {noun.counter}"]
    if g.chance(0.5):
        g.add_time(clause)
    return finish(
        clause.korean(), clause.english(question=True, wh="how many " + counted), "?"
    )
