"""Tokenizers and `tf.data` pipelines.

Only this part of the library and `serving` need TensorFlow and tensorflow_text,
regardless of the Keras backend.
"""

from keras_attn.text.data.pairs import read_pairs
from keras_attn.text.data.translation import translation_dataset
from keras_attn.text.load import load_tokenizer
from keras_attn.text.published.bert import BertTokenizer
from keras_attn.text.published.from_folder import load_published_tokenizer
from keras_attn.text.published.json_tokenizer import JsonTokenizer
from keras_attn.text.published.published_sentence_piece import (
    MarianTokenizer,
    PublishedSentencePieceTokenizer,
)
from keras_attn.text.tokenizers.character import CharacterTokenizer
from keras_attn.text.tokenizers.sentence_piece import SentencePieceTokenizer
from keras_attn.text.tokenizers.tokenizer import Tokenizer
from keras_attn.text.tokenizers.word import WordTokenizer
from keras_attn.text.tokenizers.word_piece import WordPieceTokenizer

__all__ = [
    "BertTokenizer",
    "CharacterTokenizer",
    "JsonTokenizer",
    "MarianTokenizer",
    "PublishedSentencePieceTokenizer",
    "SentencePieceTokenizer",
    "Tokenizer",
    "WordPieceTokenizer",
    "WordTokenizer",
    "load_published_tokenizer",
    "load_tokenizer",
    "read_pairs",
    "translation_dataset",
]
