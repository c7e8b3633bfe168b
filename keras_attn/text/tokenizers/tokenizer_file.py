"""The file a tokenizer is saved in: JSON, self-contained, written whole or not."""

import json
import os

FORMAT = "keras_attn.tokenizer"
VERSION = 1


def write(path, class_name, config):
    """Writes the file under another name first, so that a failure leaves nothing."""
    path = os.fspath(path)
    if os.path.isdir(path):
        raise IsADirectoryError(
            f"Expected a file to write the tokenizer to, found a folder. "
            f"Received: path={path!r}"
        )
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise FileNotFoundError(
            f"Expected an existing folder to write the tokenizer in. "
            f"Received: path={path!r}"
        )
    content = {
        "format": FORMAT,
        "version": VERSION,
        "class": class_name,
        "config": config,
    }
    partial = f"{path}.{os.getpid()}.partial"
    try:
        with open(partial, "w", encoding="ascii") as file:
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        if os.path.exists(partial):
            os.remove(partial)
        raise


def load_tokenizer(path):
    """Reads a tokenizer of any class from a file written by its `save`.

    Args:
        path: Path of the file.

    Returns:
        The tokenizer.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it was not written by `save`.

    Example:
        tokenizer = CharacterTokenizer.train(["hello"])
        tokenizer.save("/tmp/characters.json")
        load_tokenizer("/tmp/characters.json").tokenize(["hell"])
    """
    # Here, not above: the classes import this file.
    from keras_attn.text.published import bert, json_tokenizer
    from keras_attn.text.published import sentence_piece as published_sentence_piece
    from keras_attn.text.tokenizers import character, sentence_piece, word, word_piece

    classes = [
        bert.BertTokenizer,
        character.CharacterTokenizer,
        json_tokenizer.JsonTokenizer,
        published_sentence_piece.MarianTokenizer,
        published_sentence_piece.PublishedSentencePieceTokenizer,
        sentence_piece.SentencePieceTokenizer,
        word.WordTokenizer,
        word_piece.WordPieceTokenizer,
    ]
    classes = {cls.__name__: cls for cls in classes}
    path = os.fspath(path)
    if not os.path.exists(path):
        raise FileNotFoundError(
            f"Expected a file written by a tokenizer's `save`, found none. "
            f"Received: path={path!r}"
        )
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        if content["format"] != FORMAT or content["version"] != VERSION:
            raise ValueError(f"format {content['format']} {content['version']}")
        return classes[content["class"]].from_config(content["config"])
    except (
        IsADirectoryError,
        KeyError,
        TypeError,
        ValueError,
        RecursionError,
    ) as error:
        raise ValueError(
            f"Expected a file written by a tokenizer's `save` (format {FORMAT}, "
            f"version {VERSION}). Received: path={path!r}"
        ) from error
