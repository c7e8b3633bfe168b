"""Loading of saved tokenizers of any class."""

import os

from keras_attn.text.published.bert import BertTokenizer
from keras_attn.text.published.json_tokenizer import JsonTokenizer
from keras_attn.text.published.published_sentence_piece import (
    MarianTokenizer,
    PublishedSentencePieceTokenizer,
)
from keras_attn.text.tokenizers import tokenizer_file
from keras_attn.text.tokenizers.character import CharacterTokenizer
from keras_attn.text.tokenizers.sentence_piece import SentencePieceTokenizer
from keras_attn.text.tokenizers.tokenizer import Tokenizer
from keras_attn.text.tokenizers.word import WordTokenizer
from keras_attn.text.tokenizers.word_piece import WordPieceTokenizer

# The class name in a saved file -> the class. A name here may never change: existing
# files contain it.
CLASSES: dict[str, type[Tokenizer]] = {
    "BertTokenizer": BertTokenizer,
    "CharacterTokenizer": CharacterTokenizer,
    "JsonTokenizer": JsonTokenizer,
    "MarianTokenizer": MarianTokenizer,
    "PublishedSentencePieceTokenizer": PublishedSentencePieceTokenizer,
    "SentencePieceTokenizer": SentencePieceTokenizer,
    "WordPieceTokenizer": WordPieceTokenizer,
    "WordTokenizer": WordTokenizer,
}


def load_tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """Load a tokenizer of any class from a file written by `Tokenizer.save`.

    Args:
        path: `str` or `os.PathLike`, the file.

    Returns:
        A `Tokenizer` of the class that was saved.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the file was not written by `save`.

    Example:
        >>> import os, tempfile
        >>> from keras_attn import text
        >>> tokenizer = text.CharacterTokenizer.train(["hello"])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "characters.json")
        ...     tokenizer.save(path)
        ...     loaded = text.load_tokenizer(path)
        >>> type(loaded).__name__
        'CharacterTokenizer'
        >>> loaded.pieces("hell")
        ['h', 'e', 'l', 'l']
    """
    class_name, config = tokenizer_file.read(path)
    if class_name not in CLASSES:
        raise tokenizer_file.invalid_file(path)
    return tokenizer_file.rebuild(CLASSES[class_name].from_config, config, path)
