"""Texts that are difficult for tokenizers."""

import random

LINES = [
    "",
    " ",
    "   \t\n \r",
    "Hello, World! It's a test: don't we've 3.14, 1,000,000 1e-5 ½ ² №?",
    "naïve café Ångström Ünïcödé ÀÉÎÕÜ œ æ ø ð þ ß ẞ",
    "e\u0301 o\u0308\u0304 A\u030a a\u0300\u0301\u0302b \u0301start \u20e3 \u034f",
    "İstanbul IĞDIR ıı ŞŞ ΣΑΣ ΟΔΥΣΣΕΥΣ σς Σ ǅ ŉ ΐ ᾼ \u212b \u2126",
    "나는 학교에 간다. 한국어를 배운다! ㅋㅋㅋ ㄱ가힣",
    "ᄒ\u1161\u11ab글 한글 \u115f\u1160 \u3164 \u1100\uac00\ud7a3\ua960",
    "我爱北京天安门。你好，世界 中文English混合123 日本語 カタカナ ﾊﾝｶｸ",
    "豈更車 \U0002f800\U00020000\U0002b820\U0002b920 㐀㐁䶿龥鿿\ufa0e",
    "😀 👩‍👩‍👧 👍🏽 🇰🇷 ❤️ ☺ ✈︎ a😀b 1️⃣ \U000e0067\U000e0062",
    "zero\u200bwidth\u200djoin\u200cnon \ufeffbom \u2060wj soft\u00adhyphen",
    "nul\0mid \x01\x02\x1f ctrl\x7f\x80\x9f \x0b\x0c\x85 vt",
    "\u00a0nbsp\u00a0x\u2003em\u3000ideo\u2028ls\u2029ps\u1680og",
    "rtl\u200f\u200e\u202aembed\u202c private \ue000\uf8ff \ufffd\ufffd",
    "$100 + 20% = <b>^`|~ @#&*()_-[]{}\\/ ## # ##ing ## ¿¡§¶†‡·‧",
    "“quotes” ‘single’ «guillemets» — – … ‐‑‒–— ‿⁀ ︳＿ 【】「」",
    "http://example.com/?a=b&c=d#e user@mail.co.uk U.S.A. snake_case",
    "[CLS] [SEP] [PAD] [UNK] [MASK] [unused1] </s> <s> <pad> <unk> <extra_id_0>",
    "<|endoftext|> <0x41> >>eng<< ▁under▁score ▁",
    "ﬁ ﬂ Ⅳ ㎏ ＡＢＣ １２３ Ⓐ 𝒜𝓑 𝟘𝟙 Ꭰ ꭰ Ა",
    "العربية مُحَمَّد עִבְרִית हिन्दी বাংলা தமிழ் ภาษาไทย ٠١٢٣",
    "Привет МИР ёлка Йод Việt Nam tiếng Việt Đà Nẵng",
    "  leading,   trailing\r\nand \t between  ",
]
LONG = [
    "word " * 2 + letter * length + " after"
    for length in (99, 100, 101, 201)
    for letter in ("a", "é", "가", "😀", "İ", "e\u0301")
]
_RANDOM = random.Random(0)
_LETTERS = "".join(LINES)
MIXED = [
    "".join(_RANDOM.choices(_LETTERS, k=_RANDOM.randint(1, 40))) for _ in range(250)
]
TEXTS = LINES + LONG + MIXED
