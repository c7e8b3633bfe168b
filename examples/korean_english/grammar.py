"""Clauses in both languages, and sampling of their parts.

A `Clause` holds the parts of a clause (subject, verb, object, time, place, tool) and is
rendered in both word orders: subject-time-place-object-verb in Korean,
subject-verb-object-place-time in English. The rules of `rules.RULES` combine clauses.
"""

from dataclasses import dataclass, field, replace

from . import english, lexicon
from .lexicon import FEELINGS, INTRANSITIVE, NOUNS, OFTEN, PLACES, VERBS
from .morphology import Stem, particle

GO = lexicon.Verb("가", "", "go")
COME = lexicon.Verb("오", "", "come")
_SIZES = {"big", "small", "heavy", "pretty", "long", "short"}
# Verbs whose object is not counted: one does not ride three horses.
_SINGLE = {"wear", "ride", "drive", "choose"}


@dataclass(frozen=True)
class Person:
    """A person, as a subject or an object; `pronoun` is "" if the gender is unknown."""

    ko: str
    en: str
    person: str = "3s"
    pronoun: str = ""
    object_en: str = ""

    def topic(self):
        """Return the Korean with the topic particle."""
        return particle(self.ko, "은")

    def subject(self):
        """Return the Korean with the subject particle."""
        return "제가" if self.ko == "저" else particle(self.ko, "이")

    @property
    def me(self):
        """The English object form."""
        return self.object_en or self.en


ME = Person("저", "I", "1s", "I", "me")
US = Person("우리", "we", "1p", "we", "us")


@dataclass
class Clause:
    """A clause that is rendered in Korean and in English."""

    who: Person
    verb: object
    tense: str
    before: list = field(default_factory=list)  # Korean between subject and verb
    tail: list = field(default_factory=list)  # English after the verb
    time: tuple = ("", "")
    modal: str = ""
    negative: str = ""  # "", "short" (안, 못) or "long" (-지 않-, -지 못하-)
    adverb: tuple = ("", "")
    intend: bool = False  # -겠- for the future, an intention of the speaker

    def stem(self, tensed=True):
        """Return the stem of the verb with modal and negation."""
        stem = Stem(self.verb.ko, self.verb.irregular)
        short = ""
        if self.negative and self.modal == "can":
            if self.negative == "short":
                short = "못 "
            else:
                stem = Stem(stem.plain("지 못하"))
        elif self.modal == "can":
            stem = Stem(stem.eul() + " 수 있")
        elif self.modal == "must":
            stem = Stem(stem.infinitive() + "야 하")
        elif self.modal == "want":
            wish = "고 싶" if self.who.person[0] == "1" else "고 싶어 하"
            stem = Stem(stem.plain(wish))
        elif self.tense == "g":
            stem = Stem(stem.plain("고 있"))
        if self.negative and self.modal != "can":
            if self.negative == "short":
                short = "안 "
            else:
                stem = Stem(stem.plain("지 않"))
        if tensed and self.tense == "d":
            stem = stem.past()
        return Stem(short + stem.text, stem.irregular)

    def korean(self, ending="polite", subject="topic", tensed=True):
        """Return the clause in Korean.

        Args:
            ending: "polite", or a function from a stem to the verb.
            subject: "topic" (은/는), "subject" (이/가), or the text of the subject.
            tensed: bool, whether the stem has the past marker.
        """
        stem = self.stem(tensed)
        if ending != "polite":
            verb = ending(stem)
        elif self.intend:
            verb = stem.plain("겠어요")
        elif self.tense == "f":
            verb = stem.eul() + " 거예요"
        else:
            verb = stem.polite()
        if subject in ("topic", "subject"):
            subject = getattr(self.who, subject)()
        return english.join(subject, self.time[0], self.adverb[0], *self.before, verb)

    def english(self, subject=None, question=False, wh="", tail=None):
        """Return the clause in English, as a statement or a question."""
        tail = self.tail if tail is None else tail
        parts = dict(
            verb=self.verb.en,
            person=self.who.person,
            tense=self.tense,
            modal=self.modal,
            negative=bool(self.negative),
            adverb=self.adverb[1],
            tail=[*tail, self.time[1]],
        )
        subject = self.who.en if subject is None else subject
        if question:
            return english.question(subject, **parts, wh=wh)
        return english.clause(subject, **parts)


class Grammar:
    """A sampler of people, nouns, verbs and clauses; `rng` is a `random.Random`."""

    def __init__(self, rng):
        self.rng = rng

    def chance(self, probability):
        """Return True with the given probability."""
        return self.rng.random() < probability

    # People

    def person(self, known=False, names=False):
        """Sample a person; with `known`, only people whose role has a pronoun."""
        kind = self.rng.random()
        if not names and kind < 0.25:
            return ME
        if not names and kind < 0.35:
            return US
        if names or kind < 0.65:
            return Person(*self._name())
        if known or kind < 0.8:
            return self.kin()
        return self.role()

    def _name(self):
        """Sample the arguments of a `Person` with a first name."""
        ko, en, pronoun = self.rng.choice(lexicon.NAMES)
        return ko, en, "3s", pronoun

    def owner(self):
        """Sample a possessive, in Korean and in English."""
        if self.chance(0.45):
            return "제", "my"
        if self.chance(0.2):
            return "우리", "our"
        ko, en, *_ = self.rng.choice(lexicon.NAMES)
        return particle(ko, "의"), en + "'s"

    def kin(self):
        """Sample a relative of somebody."""
        ko, en, pronoun = self.rng.choice(lexicon.KIN)
        whose, whose_en = self.owner()
        return Person(f"{whose} {ko}", f"{whose_en} {en}", "3s", pronoun)

    def role(self):
        """Sample a person by role, such as a teacher or the teachers."""
        noun = self.rng.choice(lexicon.ROLES)
        kind = self.rng.random()
        if kind < 0.2:
            return Person(noun.ko + "들", "the " + noun.plural, "3p", "they")
        if kind < 0.4:
            return Person("그 " + noun.ko, "that " + noun.en)
        return Person(noun.ko, "the " + noun.en)

    def other(self, who, names=False):
        """Sample a person other than `who`, for an object or a second clause."""
        while True:
            person = self.person(names=names)
            same = {person.ko, who.ko}
            if person.ko != who.ko and not {"저", "우리"} >= same:
                return person

    # Nouns

    def adjectives_for(self, noun, comparative=False):
        """Return the adjectives that fit a noun."""
        return [
            adjective
            for adjective in lexicon.ADJECTIVES
            if adjective.classes & noun.classes
            and (adjective.comparative or not comparative)
            and not (noun.article == "-" and adjective.en in _SIZES)
            and not ("read" in noun.classes and adjective.en in ("big", "small"))
        ]

    def adjective_for(self, noun, comparative=False):
        """Sample an adjective that fits a noun, or return None."""
        fit = self.adjectives_for(noun, comparative)
        return self.rng.choice(fit) if fit else None

    def noun(self, classes, countable=False):
        """Sample a noun of one of the classes."""
        fit = [
            noun
            for noun in NOUNS
            if noun.classes & classes and (noun.counter or not countable)
        ]
        return self.rng.choice(fit)

    def noun_phrase(self, noun, form="a", plain=False, count=True):
        """Sample an object; return it in Korean, without a particle, and in English.

        `form` is that of the verb: "a" indefinite, "the" definite, "gen" generic
        (plural).
        """
        if form == "gen":
            return noun.ko, noun.plural
        kind = self.rng.random()
        adjective = None
        # "the red door" would imply that there are other doors.
        describable = noun.article in "a-s" and "subject" not in noun.classes
        if describable and not plain and self.chance(0.25):
            adjective = self.adjective_for(noun)
        ko, en, plural = noun.ko, noun.en, noun.plural
        if adjective:
            attribute = Stem(adjective.ko, adjective.irregular).eun()
            ko = f"{attribute} {ko}"
            en, plural = f"{adjective.en} {en}", f"{adjective.en} {plural}"
        if noun.article not in "a-s" or plain:
            return ko, self.with_article(noun, en, form)
        if form == "a" and noun.counter and count and kind < 0.25:
            return self.counted(noun, ko, en, plural)
        if kind < 0.33 and noun.article == "a":
            this, this_en = self.rng.choice([("이", "this"), ("그", "that")])
            return f"{this} {ko}", f"{this_en} {en}"
        if kind < 0.42 and noun.article == "a" and not adjective:
            whose, whose_en = self.owner()
            return f"{whose} {ko}", f"{whose_en} {en}"
        return ko, self.with_article(noun, en, form)

    def with_article(self, noun, en, form):
        """Return an English noun phrase with its article."""
        if form == "the" or noun.article == "the":
            return "the " + en
        return english.a(en) if noun.article == "a" else en

    def counted(self, noun, ko, en, plural):
        """Sample a number for a noun; return both in Korean and in English."""
        number, number_en = self.rng.choice(lexicon.NUMERALS[:8])
        measure = lexicon.COUNTERS.get(noun.counter)
        if measure:
            unit = measure[0 if number == "한" else 1]
            en = f"{number_en} {unit} of {plural}"
        else:
            en = f"{number_en} {en if number == '한' else plural}"
        return f"{ko} {number} {noun.counter}", en

    # Clauses

    def object_of(self, verb, who, plain=False, count=True):
        """Sample the object of a verb.

        Returns:
            A tuple of the Korean with its particle, the English, and the noun (None for
            a person).
        """
        people = verb.form == "who" or (verb.objects >= {"who"} and self.chance(0.6))
        if people:
            person = self.other(who)
            return particle(person.ko, "을"), person.me, None
        noun = self.noun(verb.objects - {"who"})
        count = count and verb.en not in _SINGLE
        ko, en = self.noun_phrase(noun, verb.form, plain, count)
        if not plain and verb.form != "the" and self.chance(0.08):
            second = self.noun(verb.objects - {"who"})
            alike = second.classes & noun.classes - {"thing", "gift"}
            if second.ko != noun.ko and second.article == noun.article and alike:
                ko2, en2 = self.noun_phrase(second, verb.form, plain=True)
                ko = f"{particle(ko, '과')} {ko2}"
                return particle(ko, "을"), f"{en} and {en2}", noun
        return particle(ko, "을"), en, noun

    def place(self, activity):
        """Sample one of the places of an activity."""
        fit = [place for place in PLACES if activity in place[3]]
        return self.rng.choice(fit)

    def tense_of(self, verb, tenses="pgdf"):
        """Sample one of `tenses` that the verb has."""
        return self.rng.choice([t for t in verb.tenses if t in tenses])

    def verb(self, tenses="pgdf", transitive=0.75, modal=False, active=False):
        """Sample a verb with one of `tenses`; `active` excludes states (know, like)."""
        table = VERBS if self.chance(transitive) else INTRANSITIVE
        need = "m" if modal else "f" if active else ""
        while True:
            verb = self.rng.choice(table)
            if active and verb.en in (*lexicon.LASTING, "travel", "quit"):
                continue
            if set(verb.tenses) & set(tenses) and need in verb.tenses:
                return verb

    def clause(self, who, tenses="pgdf", verb=None, full=1.0, time=True, count=True):
        """Sample a clause; `full` scales the probability of its optional parts."""
        verb = verb or self.verb(tenses)
        out = Clause(who, verb, self.tense_of(verb, tenses))
        noun = None
        if verb.objects:
            ko, en, noun = self.object_of(verb, who, count=count)
            out.before, out.tail = [ko], [en]
        active = "f" in verb.tenses
        tools = lexicon.TOOLS.get(verb.en)
        if verb.en == "eat" and not noun.classes & {"cook", "spicy"}:
            tools = None
        if tools and self.chance(0.15 * full):
            tool, tool_en = self.rng.choice(tools)
            out.before.insert(0, particle(tool, "으로"))
            out.tail.append(tool_en)
        together = verb.places and "m" in verb.tenses and verb.form != "who"
        together = together and verb.en != "sleep"
        if together and self.chance(0.12 * full):
            friend = self.other(who, names=True)
            out.before.insert(0, particle(friend.ko, "과") + " 같이")
            out.tail.append("with " + friend.me)
        if verb.places and ("L" in verb.tenses or self.chance(0.4 * full)):
            ko, en, *_ = self.place(verb.places)
            out.before.insert(0, particle(ko, "에서"))
            out.tail.append(en)
        if time and self.chance(0.5 * full) and (active or out.tense == "d"):
            self.add_time(out)
        elif active and out.tense == "p" and self.chance(0.25 * full):
            out.adverb = self.rng.choice(OFTEN)
        if verb.en == "walk" and not out.before and self.chance(0.5):
            (ko, _, en, *_), (ko2, _, en2, *_) = self.rng.sample(
                [place for place in PLACES[1:] if not place[3] & {"in", "city"}], 2
            )
            out.before = [particle(ko, "에서"), particle(ko2, "까지")]
            out.tail = ["from " + en[3:], en2]
        return out

    def add_time(self, clause):
        """Sample a time expression for a clause."""
        tense, kind = clause.tense, self.rng.random()
        if clause.verb.en in lexicon.LASTING:
            times = lexicon.TIMES.get(tense.upper())
            clause.time = self.rng.choice(times) if times else ("", "")
        elif tense != "g" and kind < 0.15:
            ko, en = self.rng.choice(lexicon.WEEKDAYS)
            clause.time = (particle(ko, "에"), "on " + en)
        elif tense != "g" and kind < 0.25:
            ko, en = self.rng.choice(lexicon.NUMERALS)
            clause.time = (ko + " 시에", f"at {en} o'clock")
        else:
            times = lexicon.TIMES[tense]
            if clause.verb.en in lexicon.LONG:
                times = times + lexicon.TIMES.get(tense.upper(), [])
            clause.time = self.rng.choice(times)

    def going(self, who, tenses="pdf"):
        """Sample a clause about going or coming to a place."""
        verb = replace(self.rng.choice([GO, GO, COME]), tenses="pgdfm")
        out = Clause(who, verb, self.tense_of(verb, tenses))
        ko, _, to, tags = self.rng.choice(PLACES)
        goal = particle(ko, "에" if self.chance(0.7) else "으로")
        out.before, out.tail = [goal], [to]
        if not tags & {"in"} and ko != "제주도" and self.chance(0.3):
            # Subways and taxis do not go to other cities.
            rides = lexicon.VEHICLES[:: 2 if "city" in tags else 1]
            vehicle, by = self.rng.choice(rides)
            out.before.append(particle(vehicle, "으로"))
            out.tail.append(by)
        if self.chance(0.45):
            self.add_time(out)
        return out

    def negate(self, clause):
        """Negate a clause, in the long form for compounds of 하다."""
        short = not clause.verb.ko.endswith("하") and " " not in clause.verb.ko
        compound = clause.tense == "g" or clause.modal == "want"
        if short and not compound and self.chance(0.5):
            clause.negative = "short"
        else:
            clause.negative = "long"
        return clause

    def feeling(self, who, tense):
        """Sample a clause about a feeling of `who`."""
        out = Clause(who, None, tense)
        adjective = self.rng.choice(FEELINGS)
        out.verb = replace(adjective, en="be")
        out.tail = [adjective.en]
        return out


def finish(ko, en, mark="."):
    """Return the pair of sentences with punctuation."""
    return ko + mark, english.sentence(en, mark)
