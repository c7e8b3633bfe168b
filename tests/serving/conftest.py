"""A translator with two SentencePiece tokenizers, and other tokenizers."""

import pytest
from small_translator import ENGLISH, KOREAN, make

from keras_attn.text import (
    CharacterTokenizer,
    SentencePieceTokenizer,
    WordPieceTokenizer,
    WordTokenizer,
)


@pytest.fixture(scope="session")
def tokenizers():
    # tensorflow_text may mix up two SentencePiece models in one graph.
    return {
        "source": SentencePieceTokenizer.train(KOREAN * 5, 330),
        "target": SentencePieceTokenizer.train(ENGLISH * 5, 310),
        "word": WordTokenizer.train(KOREAN + ENGLISH, 60),
        "character": CharacterTokenizer.train(KOREAN + ENGLISH, 90),
        "word piece": WordPieceTokenizer.train((KOREAN + ENGLISH) * 3, 200),
    }


@pytest.fixture(scope="session")
def model(tokenizers):
    return make(
        tokenizers["source"].vocabulary_size, tokenizers["target"].vocabulary_size
    )
