import pytest

from keras_attn import text

ENGLISH = [
    "The cat sat on the mat.",
    "The dog didn't sit on the cat, did it?",
    "A well-known cat: 3.14 meters long (really).",
    "Walking dogs walked where they walk.",
]
KOREAN = [
    "고양이가 매트 위에 앉았다.",
    "강아지는 고양이 위에 앉지 않았다.",
    "나는 학교에서 한국어를 배운다!",
]
SENTENCES = ENGLISH * 3 + KOREAN * 3
SIZES = {
    "SentencePieceTokenizer": 340,
    "WordPieceTokenizer": 400,
    "WordTokenizer": 60,
    "CharacterTokenizer": 90,
}


@pytest.fixture(scope="session")
def trained():
    return {
        name: getattr(text, name).train(SENTENCES, size) for name, size in SIZES.items()
    }


@pytest.fixture(params=SIZES)
def tokenizer(request, trained):
    return trained[request.param]
