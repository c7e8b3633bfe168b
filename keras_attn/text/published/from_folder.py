"""Creation of a tokenizer from the folder of a published model."""

import os
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Literal

from keras_attn.text.published.bert import BertTokenizer
from keras_attn.text.published.json_tokenizer import JsonTokenizer
from keras_attn.text.published.model_folder import ModelFolder
from keras_attn.text.published.published_sentence_piece import (
    MarianTokenizer,
    PublishedSentencePieceTokenizer,
)
from keras_attn.text.tokenizers.sentence_piece_model import SentencePieceModel
from keras_attn.text.tokenizers.tokenizer import Tokenizer

Side = Literal["source", "target"] | None

# Names of tokenizer classes, and of model types for folders without a specific class.
_BERT = {"BertTokenizer", "DistilBertTokenizer", "bert", "distilbert"}
_SENTENCE_PIECE = {"T5Tokenizer", "LlamaTokenizer", "t5", "mt5", "llama", "mistral"}
# Unspecific tokenizer classes.
_ANY_CLASS = {None, "TokenizersBackend", "PreTrainedTokenizer"}
_BERT_TOKENS = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
}
_SENTENCE_PIECE_TOKENS = {
    "pad_token": "<pad>",
    "unk_token": "<unk>",
    "eos_token": "</s>",
}


def load_published_tokenizer(
    folder: str | os.PathLike[str], side: Side = None
) -> Tokenizer:
    """Load the tokenizer of a published model from its folder.

    Nothing is downloaded, and no code in the folder is run. The class depends on the
    files in the folder:

    - WordPiece of BERT, MiniLM, DistilBERT (`vocab.txt`, or `tokenizer.json`): a
      `BertTokenizer`;
    - SentencePiece of T5 (`spiece.model`), Llama and Mistral (`tokenizer.model`): a
      `PublishedSentencePieceTokenizer`;
    - SentencePiece of Marian (`source.spm`, `target.spm`, `vocab.json`): a
      `MarianTokenizer` of the given `side`;
    - any other `tokenizer.json`, such as the byte-level BPE of GPT-2, RoBERTa, BART,
      Llama 3 and Qwen: a `JsonTokenizer`, which requires `pip install tokenizers` and
      works eagerly and in `tf.data` pipelines, but cannot be exported.

    The ids are those of `transformers`, except that the string of a special token in a
    text is tokenized as ordinary text. Start and end tokens are added on request:
    `tokenize(texts, add_start=True, add_end=True)` adds `[CLS]` and `[SEP]` for BERT;
    the source of T5 and Marian has only an end token. If a model has no padding token,
    the end token is used; if it has no start token (Qwen), the one in its config is
    used.

    Args:
        folder: Path of a folder as published: `config.json`, `tokenizer_config.json`
            and the files above.
        side: `"source"` or `"target"` of a translation model. The two sides of Marian
            have different pieces. For all models, the sides may have different start
            tokens; that of a target is the start token of the decoder. Default: the
            start token of a target, if the model has a separate decoder.

    Returns:
        A `Tokenizer`.

    Raises:
        FileNotFoundError: If the folder does not exist or contains no tokenizer.
        ImportError: If `tokenizers` is required and not installed.
        ValueError: If a file cannot be read, or `side` is missing or invalid.

    Example:
        >>> import pathlib, tempfile
        >>> from keras_attn.text import load_published_tokenizer
        >>> vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "first", "text", "##s"]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "vocab.txt")
        ...     _ = path.write_text("\\n".join(vocabulary))
        ...     tokenizer = load_published_tokenizer(folder)
        >>> type(tokenizer).__name__
        'BertTokenizer'
        >>> tokenizer.pieces("First texts", add_start=True, add_end=True)
        ['[CLS]', 'first', 'text', '##s', '[SEP]']
    """
    if side not in (None, "source", "target"):
        raise ValueError(
            f"Expected side to be 'source', 'target' or None. Received: side={side!r}"
        )
    files = ModelFolder(folder)
    if files.has_files("source.spm", "target.spm", "vocab.json"):
        return _create_marian(files, side)
    # Added ordinary words take precedence over the vocabulary, which only the
    # `tokenizers` package implements.
    runs_in_graph = all(is_special for _, is_special in files.added_tokens.values())
    if runs_in_graph and _is_named(files, _SENTENCE_PIECE):
        for name in ("spiece.model", "tokenizer.model"):
            if files.has_files(name):
                return _create_sentence_piece(files, name, side)
    if runs_in_graph and _is_bert(files):
        return _create_bert(files)
    if files.has_files("tokenizer.json"):
        return _create_json(files, side)
    raise FileNotFoundError(
        "Expected the files of a tokenizer: `vocab.txt` of BERT, `spiece.model` of T5, "
        "`tokenizer.model` of Llama, `source.spm`, `target.spm` and `vocab.json` of "
        "Marian, or `tokenizer.json` of these and others. Received: "
        f"folder={files.path!s}, with {sorted(f.name for f in files.path.iterdir())}"
    )


def _is_named(folder: ModelFolder, names: AbstractSet[str | None]) -> bool:
    """Return whether the tokenizer class, or else the model type, is in `names`."""
    name = folder.tokenizer_class
    return (folder.model_type if name in _ANY_CLASS else name) in names


def _is_bert(folder: ModelFolder) -> bool:
    types = [
        (folder.tokenizer_json.get(part) or {}).get("type")
        for part in ("model", "normalizer", "pre_tokenizer")
    ]
    if any(types):
        return types == ["WordPiece", "BertNormalizer", "BertPreTokenizer"]
    return folder.has_files("vocab.txt") and _is_named(folder, _BERT | {None})


def _create_bert(folder: ModelFolder) -> BertTokenizer:
    if folder.tokenizer_json:
        vocabulary = _tokens_by_id(folder.tokenizer_json["model"]["vocab"], folder)
    else:
        lines = (folder.path / "vocab.txt").read_text(encoding="utf-8").split("\n")
        vocabulary = lines[:-1] if lines[-1] == "" else lines
    vocabulary += _added_after(vocabulary, folder)
    normalizer = folder.tokenizer_json.get("normalizer", {})
    special_ids = folder.special_ids(vocabulary, _BERT_TOKENS, "source")
    special_ids["source_start_id"] = special_ids["start_token_id"]

    def setting(name: str, normalizer_name: str, default: bool | None) -> Any:
        return folder.settings.get(name, normalizer.get(normalizer_name, default))

    return BertTokenizer(
        vocabulary,
        special_ids,
        lower_case=setting("do_lower_case", "lowercase", True),
        strip_accents=setting("strip_accents", "strip_accents", None),
        split_chinese=setting("tokenize_chinese_chars", "handle_chinese_chars", True),
    )


def _create_sentence_piece(
    folder: ModelFolder, name: str, side: Side
) -> PublishedSentencePieceTokenizer:
    model = (folder.path / name).read_bytes()
    vocabulary = SentencePieceModel(model).tokens
    extra = _added_after(vocabulary, folder)
    if not extra and _is_named(folder, {"T5Tokenizer", "t5"}):
        num_extra = folder.settings.get("extra_ids", 100)
        extra = [f"<extra_id_{i}>" for i in reversed(range(num_extra))]
    ids = folder.special_ids(vocabulary + extra, _SENTENCE_PIECE_TOKENS, side)
    return PublishedSentencePieceTokenizer(model, ids, extra)


def _create_marian(folder: ModelFolder, side: Side) -> MarianTokenizer:
    if side is None:
        raise ValueError(
            "Expected side to be 'source' or 'target', since the two sides of a Marian "
            "model have different tokenizers. Received: side=None"
        )
    name = "vocab.json"
    if side == "target" and folder.has_files("target_vocab.json"):
        name = "target_vocab.json"
    vocabulary = _tokens_by_id(folder.read_json(name), folder)
    return MarianTokenizer(
        (folder.path / f"{side}.spm").read_bytes(),
        vocabulary,
        folder.special_ids(vocabulary, _SENTENCE_PIECE_TOKENS, "target"),
    )


def _create_json(folder: ModelFolder, side: Side) -> JsonTokenizer:
    text = (folder.path / "tokenizer.json").read_text(encoding="utf-8")
    vocabulary = JsonTokenizer(text, {}).tokens()
    return JsonTokenizer(text, folder.special_ids(vocabulary, {}, side))


def _tokens_by_id(ids: Mapping[str, int], folder: ModelFolder) -> list[str]:
    """Return the tokens of a dict from tokens to ids, as a list by id."""
    tokens = sorted(ids, key=ids.__getitem__)
    if [ids[token] for token in tokens] != list(range(len(tokens))):
        raise ValueError(
            "Expected a vocabulary with consecutive ids from 0 on. "
            f"Received: {len(tokens)} tokens in {folder.path!s}"
        )
    return tokens


def _added_after(vocabulary: Sequence[str], folder: ModelFolder) -> list[str]:
    """Return the added tokens with ids after those of the vocabulary, by id."""
    added, size = folder.added_tokens, len(vocabulary)
    new_ids = sorted(token_id for token_id in added if token_id >= size)
    if new_ids != list(range(size, size + len(new_ids))):
        raise ValueError(
            f"Expected added tokens with consecutive ids from {size} on. "
            f"Received: ids {new_ids[:8]} in {folder.path!s}"
        )
    return [added[token_id][0] for token_id in new_ids]
