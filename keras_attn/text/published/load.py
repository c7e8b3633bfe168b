"""The tokenizer of a published model, out of the model's folder."""

from keras_attn.text.published.bert import BertTokenizer
from keras_attn.text.published.folder import PublishedFolder
from keras_attn.text.published.json_tokenizer import JsonTokenizer
from keras_attn.text.published.sentence_piece import (
    MarianTokenizer,
    PublishedSentencePieceTokenizer,
)
from keras_attn.text.tokenizers.sentence_piece_kernel import SentencePieceKernel

# By class or, where a folder does not tell it, by family.
_BERT = {"BertTokenizer", "DistilBertTokenizer", "bert", "distilbert"}
_SENTENCE_PIECE = {"T5Tokenizer", "LlamaTokenizer", "t5", "mt5", "llama", "mistral"}
# Names that say nothing.
_ANY_CLASS = {None, "TokenizersBackend", "PreTrainedTokenizer"}
_BERT_TOKENS = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
}
_PIECES = {"pad_token": "<pad>", "unk_token": "<unk>", "eos_token": "</s>"}


def load_published_tokenizer(folder, side=None):
    """The tokenizer of a published model, with the published ids.

    Nothing is downloaded, and no file is run. What the folder holds decides:

    - WordPiece of BERT, MiniLM, DistilBERT (`vocab.txt`, or `tokenizer.json`): a
      `BertTokenizer`;
    - SentencePiece of T5 (`spiece.model`), Llama and Mistral (`tokenizer.model`): a
      `PublishedSentencePieceTokenizer`;
    - SentencePiece of Marian (`source.spm`, `target.spm`, `vocab.json`): a
      `MarianTokenizer`, of the `side` that is asked for;
    - any other `tokenizer.json`, such as the byte-level BPE of GPT-2, RoBERTa, BART,
      Llama 3 and Qwen: a `JsonTokenizer`, which needs `pip install tokenizers` and
      works eagerly and in `tf.data` pipelines, but cannot be exported.

    Their ids are those of `transformers`, with one difference: text that spells a
    special token is cut as any other text is. Start and end are put where they are
    asked for, `tokenize(texts, add_start=True, add_end=True)`: `[CLS]` and `[SEP]` for
    BERT, the end alone for what T5 and Marian read. A model without a padding token
    has its end token in its place, one without a start token (Qwen) what its config
    says.

    Args:
        folder: path of a folder as published: `config.json`, `tokenizer_config.json`
            and the files above.
        side: `"source"` or `"target"` of a translation model. Marian's two differ in
            their pieces; those of all models in their start token, which for a target
            is the decoder's. Default: the target's start, if the model has a decoder
            apart from its encoder.

    Returns:
        A `Tokenizer`.

    Raises:
        FileNotFoundError: If there is no such folder, or no tokenizer in it.
        ImportError: If `tokenizers` is needed and not installed.
        ValueError: If a file cannot be read, or a side is missing or unknown.

    Example:
        tokenizer = load_published_tokenizer("all-MiniLM-L6-v2")
        tokenizer.tokenize(["a first text"], add_start=True, add_end=True)
    """
    if side not in (None, "source", "target"):
        raise ValueError(
            f"Expected side to be 'source', 'target' or None. Received: side={side!r}"
        )
    folder = PublishedFolder(folder)
    if folder.has("source.spm", "target.spm", "vocab.json"):
        return _marian(folder, side)
    # A word that was added is found before all else, which the ops do not do.
    in_graph = all(is_special for _, is_special in folder.added_tokens.values())
    if in_graph and _is(folder, _SENTENCE_PIECE):
        for file in ("spiece.model", "tokenizer.model"):
            if folder.has(file):
                return _sentence_piece(folder, file, side)
    if in_graph and _is_bert(folder):
        return _bert(folder)
    if folder.has("tokenizer.json"):
        return _json(folder, side)
    raise FileNotFoundError(
        "Expected the files of a tokenizer: `vocab.txt` of BERT, `spiece.model` of T5, "
        "`tokenizer.model` of Llama, `source.spm`, `target.spm` and `vocab.json` of "
        "Marian, or `tokenizer.json` of these and others. Received: "
        f"folder={folder.path!s}, with {sorted(f.name for f in folder.path.iterdir())}"
    )


def _is(folder, names):
    known_by = folder.tokenizer_class
    return (folder.family if known_by in _ANY_CLASS else known_by) in names


def _is_bert(folder):
    kinds = [
        (folder.description.get(part) or {}).get("type")
        for part in ("model", "normalizer", "pre_tokenizer")
    ]
    if any(kinds):
        return kinds == ["WordPiece", "BertNormalizer", "BertPreTokenizer"]
    return folder.has("vocab.txt") and _is(folder, _BERT | {None})


def _bert(folder):
    if folder.description:
        vocabulary = _by_id(folder.description["model"]["vocab"], folder)
    else:
        lines = (folder.path / "vocab.txt").read_text(encoding="utf-8").split("\n")
        vocabulary = lines[:-1] if lines[-1] == "" else lines
    vocabulary += _after(vocabulary, folder)
    normalizer = folder.description.get("normalizer", {})
    special_ids = folder.special_ids(vocabulary, _BERT_TOKENS, "source")
    special_ids["source_start_id"] = special_ids["start_token_id"]

    def setting(name, in_description, default):
        return folder.settings.get(name, normalizer.get(in_description, default))

    return BertTokenizer(
        vocabulary,
        special_ids,
        lower_case=setting("do_lower_case", "lowercase", True),
        strip_accents=setting("strip_accents", "strip_accents", None),
        split_chinese=setting("tokenize_chinese_chars", "handle_chinese_chars", True),
    )


def _sentence_piece(folder, file, side):
    model = (folder.path / file).read_bytes()
    vocabulary = SentencePieceKernel(model).tokens
    extra = _after(vocabulary, folder)
    if not extra and _is(folder, {"T5Tokenizer", "t5"}):
        number = folder.settings.get("extra_ids", 100)
        extra = [f"<extra_id_{i}>" for i in reversed(range(number))]
    ids = folder.special_ids(vocabulary + extra, _PIECES, side)
    return PublishedSentencePieceTokenizer(model, ids, extra)


def _marian(folder, side):
    if side is None:
        raise ValueError(
            "Expected side to be 'source' or 'target': the two sides of a Marian "
            "model have tokenizers of their own. Received: side=None"
        )
    file = "vocab.json"
    if side == "target" and folder.has("target_vocab.json"):
        file = "target_vocab.json"
    vocabulary = _by_id(folder.json(file), folder)
    return MarianTokenizer(
        (folder.path / f"{side}.spm").read_bytes(),
        vocabulary,
        folder.special_ids(vocabulary, _PIECES, "target"),
    )


def _json(folder, side):
    text = (folder.path / "tokenizer.json").read_text(encoding="utf-8")
    vocabulary = JsonTokenizer(text, {}).tokens()
    return JsonTokenizer(text, folder.special_ids(vocabulary, {}, side))


def _by_id(ids, folder):
    """The tokens of a dict to ids, as a list."""
    tokens = sorted(ids, key=ids.get)
    if [ids[token] for token in tokens] != list(range(len(tokens))):
        raise ValueError(
            "Expected a vocabulary with the ids from 0 on, without gaps. "
            f"Received: {len(tokens)} tokens in {folder.path!s}"
        )
    return tokens


def _after(vocabulary, folder):
    """The added tokens that follow a vocabulary, in the order of their ids."""
    added, size = folder.added_tokens, len(vocabulary)
    more = sorted(token_id for token_id in added if token_id >= size)
    if more != list(range(size, size + len(more))):
        raise ValueError(
            f"Expected added tokens to have the ids from {size} on, without gaps. "
            f"Received: ids {more[:8]} in {folder.path!s}"
        )
    return [added[token_id][0] for token_id in more]
