"""The built-in corpus: Korean forms, English forms, and the split."""

import re
import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from korean_english import english, lexicon, pairs, rules
from korean_english.grammar import ME, Clause, Grammar
from korean_english.morphology import Stem, particle


@pytest.fixture(scope="module")
def corpus():
    return pairs()


@pytest.mark.parametrize(
    "word, kind, expected",
    [
        ("책", "은", "책은"),
        ("사과", "은", "사과는"),
        ("책", "이", "책이"),
        ("사과", "이", "사과가"),
        ("책", "을", "책을"),
        ("사과", "을", "사과를"),
        ("책", "과", "책과"),
        ("사과", "과", "사과와"),
        ("공원", "으로", "공원으로"),
        ("학교", "으로", "학교로"),
        ("서울", "으로", "서울로"),  # ㄹ counts as a vowel here, and only here
        ("지하철", "으로", "지하철로"),
        ("서울", "을", "서울을"),
        ("학생", "이에요", "학생이에요"),
        ("의사", "이에요", "의사예요"),
        ("학생", "이었", "학생이었"),
        ("의사", "이었", "의사였"),
        ("책", "에서", "책에서"),
        ("사과", "도", "사과도"),
    ],
)
def test_particle_follows_the_final_consonant(word, kind, expected):
    assert particle(word, kind) == expected


# Forms from a Korean dictionary: -아/어요, -았/었어요, -(으)ㄹ, -(으)ㄴ,
# -(으)면, -는, -고.
@pytest.mark.parametrize(
    "stem, irregular, forms",
    [
        ("먹", "", "먹어요 먹었어요 먹을 먹은 먹으면 먹는 먹고"),
        ("가", "", "가요 갔어요 갈 간 가면 가는 가고"),
        ("오", "", "와요 왔어요 올 온 오면 오는 오고"),
        ("마시", "", "마셔요 마셨어요 마실 마신 마시면 마시는 마시고"),
        ("배우", "", "배워요 배웠어요 배울 배운 배우면 배우는 배우고"),
        ("보내", "", "보내요 보냈어요 보낼 보낸 보내면 보내는 보내고"),
        ("켜", "", "켜요 켰어요 켤 켠 켜면 켜는 켜고"),
        ("쉬", "", "쉬어요 쉬었어요 쉴 쉰 쉬면 쉬는 쉬고"),
        ("닫", "", "닫아요 닫았어요 닫을 닫은 닫으면 닫는 닫고"),
        ("입", "", "입어요 입었어요 입을 입은 입으면 입는 입고"),
        ("씻", "", "씻어요 씻었어요 씻을 씻은 씻으면 씻는 씻고"),
        ("좋", "", "좋아요 좋았어요 좋을 좋은 좋으면 좋는 좋고"),
        ("춥", "ㅂ", "추워요 추웠어요 추울 추운 추우면 춥는 춥고"),
        ("돕", "ㅂ", "도와요 도왔어요 도울 도운 도우면 돕는 돕고"),
        ("듣", "ㄷ", "들어요 들었어요 들을 들은 들으면 듣는 듣고"),
        ("부르", "르", "불러요 불렀어요 부를 부른 부르면 부르는 부르고"),
        ("고르", "르", "골라요 골랐어요 고를 고른 고르면 고르는 고르고"),
        ("짓", "ㅅ", "지어요 지었어요 지을 지은 지으면 짓는 짓고"),
        ("빨갛", "ㅎ", "빨개요 빨갰어요 빨갈 빨간 빨가면 빨갛는 빨갛고"),
        ("하얗", "ㅎ", "하얘요 하얬어요 하얄 하얀 하야면 하얗는 하얗고"),
        ("쓰", "", "써요 썼어요 쓸 쓴 쓰면 쓰는 쓰고"),
        ("바쁘", "", "바빠요 바빴어요 바쁠 바쁜 바쁘면 바쁘는 바쁘고"),
        ("예쁘", "", "예뻐요 예뻤어요 예쁠 예쁜 예쁘면 예쁘는 예쁘고"),
        ("만들", "", "만들어요 만들었어요 만들 만든 만들면 만드는 만들고"),
        ("살", "", "살아요 살았어요 살 산 살면 사는 살고"),
        ("공부하", "", "공부해요 공부했어요 공부할 공부한 공부하면 공부하는 공부하고"),
        ("재미있", "", "재미있어요 재미있었어요 재미있을 재미있는 재미있으면 재미있는"),
    ],
)
def test_conjugation(stem, irregular, forms):
    stem = Stem(stem, irregular)
    actual = [
        stem.polite(),
        stem.past().polite(),
        stem.eul(),
        stem.eun(),
        stem.eu("면"),
        stem.neun(),
        stem.plain("고"),
    ]
    forms = forms.split()
    assert actual[: len(forms)] == forms


def test_rieul_drops_before_the_polite_request():
    assert Stem("만들").eu("세요") == "만드세요"
    assert Stem("읽").eu("세요") == "읽으세요"


@pytest.mark.parametrize(
    "tense, modal, negative, korean, expected",
    [
        ("p", "", "", "저는 먹어요", "I eat"),
        ("p", "", "short", "저는 안 먹어요", "I do not eat"),
        ("d", "", "long", "저는 먹지 않았어요", "I did not eat"),
        ("g", "", "", "저는 먹고 있어요", "I am eating"),
        ("f", "", "long", "저는 먹지 않을 거예요", "I will not eat"),
        ("d", "want", "", "저는 먹고 싶었어요", "I wanted to eat"),
        ("p", "can", "", "저는 먹을 수 있어요", "I can eat"),
        ("d", "can", "short", "저는 못 먹었어요", "I could not eat"),
        ("p", "can", "long", "저는 먹지 못해요", "I cannot eat"),
        ("p", "must", "", "저는 먹어야 해요", "I must eat"),
    ],
)
def test_one_clause_in_both_languages(tense, modal, negative, korean, expected):
    clause = Clause(ME, lexicon.Verb("먹", "", "eat"), tense)
    clause.modal, clause.negative = modal, negative
    assert clause.korean() == korean
    assert clause.english() == expected


def test_english_inflection():
    assert english.third_person("study") == "studies"
    assert english.third_person("watch") == "watches"
    assert english.past_tense("turn on") == "turned on"
    assert english.past_tense("plant") == "planted"
    assert english.gerund("swim") == "swimming"
    assert english.gerund("write") == "writing"
    assert english.a("orange bag") == "an orange bag"
    eat = dict(verb="eat", person="3s", tense="p")
    assert english.question("Mina", **eat, wh="what") == "what does Mina eat"


def test_sizes_and_determinism(corpus):
    train, valid = corpus
    assert (len(train), len(valid)) == (6000, 300)
    assert pairs(200, 20, seed=3) == pairs(200, 20, seed=3)
    assert pairs(200, 20, seed=3) != pairs(200, 20, seed=4)
    with pytest.raises(ValueError, match="Received: num_valid=-1"):
        pairs(10, -1)


def test_validation_sentences_are_new_in_both_languages(corpus):
    train, valid = corpus
    for side in (0, 1):
        sentences = [pair[side] for pair in train + valid]
        assert len(set(sentences)) == len(sentences)


def test_validation_words_are_known(corpus):
    train, valid = corpus
    words = Counter(w for _, en in train for w in re.findall(r"\w+", en.lower()))
    for _, en in valid:
        assert all(words[w] >= 5 for w in re.findall(r"\w+", en.lower())), en


def test_every_word_of_the_tables_is_used_often(corpus):
    text = "\n".join(ko for ko, _ in corpus[0])
    for noun in (*lexicon.NOUNS, *lexicon.ROLES):
        assert text.count(noun.ko) >= 10, noun
    for verb in (*lexicon.VERBS, *lexicon.INTRANSITIVE, *lexicon.ADJECTIVES):
        stem = Stem(verb.ko, verb.irregular)
        forms = {stem.text, stem.infinitive(), stem.eul(), stem.eun()}
        forms.add(stem.past().text)
        assert sum(text.count(form) for form in forms) >= 10, verb


def test_every_rule_returns_sentences():
    import random

    for rule in rules.RULES:
        grammar = Grammar(random.Random(5))
        for _ in range(50):
            ko, en = rule(grammar)
            assert re.fullmatch(r"[가-힣0-9 ]+[.?]", ko), ko
            assert re.fullmatch(r"[A-Z][A-Za-z', ]*[.?]", en), en
            assert "  " not in ko + en
            assert ko[-1] == en[-1]
            assert not re.search(r"\ba [aeiou]|\ban [^aeiou]|\bthe the\b", en), en


def test_lengths_reach_from_two_words_to_two_clauses(corpus):
    lengths = [len(en.split()) for _, en in corpus[0]]
    assert min(lengths) == 2
    assert max(lengths) >= 18
