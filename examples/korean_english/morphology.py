"""Korean particles and verb endings, which depend on the preceding sound.

A Hangul syllable is `0xAC00 + (initial * 21 + vowel) * 28 + final`, so the final
consonant of a word, which determines its particles, can be computed. The module covers
the corpus only: the polite -아요/어요 style and the endings that join clauses, for
regular stems, the contractions, and the ㅂ, ㄷ, 르, ㅅ, ㅎ, 으, ㄹ and 하 irregulars.
"""

_VOWELS = "ㅏㅐㅑㅒㅓㅔㅕㅖㅗㅘㅙㅚㅛㅜㅝㅞㅟㅠㅡㅢㅣ"
_FINALS = " ㄱㄲㄳㄴㄵㄶㄷㄹㄺㄻㄼㄽㄾㄿㅀㅁㅂㅄㅅㅆㅇㅈㅊㅋㅌㅍㅎ"
# Last vowel of the stem -> its contraction with the following 아/어.
_CONTRACTIONS = {
    "ㅏ": "ㅏ",
    "ㅗ": "ㅘ",
    "ㅓ": "ㅓ",
    "ㅕ": "ㅕ",
    "ㅐ": "ㅐ",
    "ㅔ": "ㅔ",
    "ㅜ": "ㅝ",
    "ㅣ": "ㅕ",
    "ㅡ": "ㅓ",
    "ㅚ": "ㅙ",
}
_PARTICLES = {
    "은": ("은", "는"),
    "이": ("이", "가"),
    "을": ("을", "를"),
    "과": ("과", "와"),
    "으로": ("으로", "로"),
    "이에요": ("이에요", "예요"),
    "이었": ("이었", "였"),
}


def _split(syllable):
    """Return the initial as an index, the vowel and the final of a syllable."""
    code = ord(syllable) - 0xAC00
    if not 0 <= code < 11172:
        raise ValueError(
            f"Expected a Hangul syllable at the end of a word. "
            f"Received: syllable={syllable!r}"
        )
    return code // 588, _VOWELS[code // 28 % 21], _FINALS[code % 28].strip()


def _join(initial, vowel, final=""):
    """Return the syllable of an initial, a vowel and a final."""
    code = (initial * 21 + _VOWELS.index(vowel)) * 28 + _FINALS.index(final or " ")
    return chr(0xAC00 + code)


def final_consonant(word):
    """Return the final consonant of the last syllable, or an empty string."""
    return _split(word[-1])[2]


def _with_final(word, final):
    """Replace the final consonant of the last syllable."""
    initial, vowel, _ = _split(word[-1])
    return word[:-1] + _join(initial, vowel, final)


def particle(word, kind):
    """Return `word` with the form of a particle that its final consonant requires.

    `kind` is the form after a consonant: "은", "이", "을", "과", "으로", "이에요" (the
    copula), "이었" (its past stem). Other particles have only one form.
    """
    if kind not in _PARTICLES:
        return word + kind
    final = final_consonant(word)
    # After ㄹ the direction particle is 로, as after a vowel.
    closed = bool(final) and not (kind == "으로" and final == "ㄹ")
    return word + _PARTICLES[kind][0 if closed else 1]


class Stem:
    """A verb or adjective stem: 먹-, 춥- (ㅂ irregular), 먹었- (past), 먹고 싶-.

    Args:
        text: dictionary form without 다.
        irregular: "ㅂ", "ㄷ", "르", "ㅅ", "ㅎ" or "" (the 으, ㄹ and 하 classes are
            recognized from the stem).
    """

    def __init__(self, text, irregular=""):
        self.text, self.irregular = text, irregular

    def infinitive(self):
        """Return the form with 아/어: 가, 먹어, 와, 추워, 들어, 불러, 하얘, 해."""
        text, kind = self.text, self.irregular
        if text.endswith("하"):
            return text[:-1] + "해"
        initial, vowel, final = _split(text[-1])
        if kind == "르":
            # 부르 -> 불러, 고르 -> 골라: ㄹ doubles; the vowel before 르 matters.
            before = _split(text[-2])[1]
            return _with_final(text[:-1], "ㄹ") + ("라" if before in "ㅏㅗ" else "러")
        if kind == "ㅂ":
            # Only 돕- (and 곱-) keeps the bright vowel.
            open_ = _with_final(text, "")
            return open_ + ("와" if text == "돕" else "워")
        if kind == "ㅎ":
            return text[:-1] + _join(initial, "ㅒ" if vowel == "ㅑ" else "ㅐ")
        if kind in ("ㄷ", "ㅅ"):
            text = _with_final(text, "ㄹ" if kind == "ㄷ" else "")
            return text + ("아" if vowel in "ㅏㅗ" else "어")
        past = final == "ㅆ"
        if final:
            return text + ("아" if vowel in "ㅏㅑㅗ" and not past else "어")
        if vowel == "ㅡ" and len(text) > 1 and text[-2] != " ":
            # 바쁘 -> 바빠 but 예쁘 -> 예뻐: 으 drops; the vowel before it matters.
            before = _split(text[-2])[1]
            return text[:-1] + _join(initial, "ㅏ" if before in "ㅏㅗ" else "ㅓ")
        if vowel in _CONTRACTIONS:
            return text[:-1] + _join(initial, _CONTRACTIONS[vowel])
        return text + "어"  # 쉬 -> 쉬어, 뛰 -> 뛰어

    def polite(self):
        """Return the -아요/어요 form."""
        return self.infinitive() + "요"

    def past(self):
        """Return the past stem: 먹었-, 갔-, 추웠-."""
        return Stem(_with_final(self.infinitive(), "ㅆ"))

    def _open(self):
        """Return the stem before -(으) endings, and its final consonant."""
        text, kind = self.text, self.irregular
        if kind == "ㅂ":
            return _with_final(text, "") + "우", ""
        if kind == "ㄷ":
            return _with_final(text, "ㄹ") + "으", ""
        if kind == "ㅅ":
            return _with_final(text, "") + "으", ""
        if kind == "ㅎ":
            return _with_final(text, ""), ""
        final = final_consonant(text)
        if final and final != "ㄹ":
            return text + "으", ""
        return text, final

    def eu(self, ending):
        """Add an ending that takes 으 after a consonant: 면, 러, 려고, 세요."""
        text, final = self._open()
        if final == "ㄹ" and ending[0] in "세니":
            text = _with_final(text, "")
        return text + ending

    def eul(self):
        """Return the -(으)ㄹ form: 갈, 먹을, 만들, 추울."""
        return _with_final(self._open()[0], "ㄹ")

    def eun(self):
        """Return the -(으)ㄴ form, a past for verbs: 산, 먹은, 만든, 추운, 빨간."""
        if self.text.endswith("있"):
            return self.neun()  # 맛있는, 재미있는
        return _with_final(self._open()[0], "ㄴ")

    def neun(self):
        """Return the -는 form: 먹는, 사는 (ㄹ drops)."""
        return self.plain("는")

    def plain(self, ending):
        """Add an ending that does not change the stem: 고, 지만, 지 않, 기 때문에."""
        text = self.text
        if ending[0] == "는" and final_consonant(text) == "ㄹ":
            text = _with_final(text, "")
        return text + ending
