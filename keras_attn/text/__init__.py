"""Text in, token ids out: tokenizers and `tf.data` pipelines.

Only this part of the library (and `serving`) needs TensorFlow and tensorflow_text,
whatever the Keras backend is.
"""

from keras_attn.text.bert import BertTokenizer
from keras_attn.text.character import CharacterTokenizer
from keras_attn.text.dataset import translation_dataset
from keras_attn.text.json_tokenizer import JsonTokenizer
from keras_attn.text.pairs import read_pairs
from keras_attn.text.published import load_published_tokenizer
from keras_attn.text.published_sentence_piece import (
    MarianTokenizer,
    PublishedSentencePieceTokenizer,
)
from keras_attn.text.sentence_piece import SentencePieceTokenizer
from keras_attn.text.tokenizer import Tokenizer
from keras_attn.text.tokenizer_file import load_tokenizer
from keras_attn.text.word import WordTokenizer
from keras_attn.text.word_piece import WordPieceTokenizer

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
