"""Small folders with the tokenizer files of published models."""

import io
import json
import pathlib
from typing import Any

import sentencepiece
import tokenizers

ENGLISH = [
    "a cat sat on the mat",
    "the cats and dogs walked to school",
    "Hello, World! It's 3.14 meters long (really).",
    "We learn Korean, don't we?",
]
KOREAN = ["나는 학교에 간다.", "고양이가 매트 위에 앉았다.", "한국어를 배운다!"]
BERT_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def write(folder: pathlib.Path, **files: Any) -> pathlib.Path:
    """Write JSON files, named without `.json`, and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = folder / f"{name}.json"
        path.write_text(json.dumps(content), encoding="utf-8")
    return folder


def train_sentence_piece(
    path: pathlib.Path, sentences: list[str], vocabulary_size: int, **options: Any
) -> sentencepiece.SentencePieceProcessor:
    """Train a SentencePiece model and write it to a file."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_writer=model,
        vocab_size=vocabulary_size,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    path.write_bytes(model.getvalue())
    return sentencepiece.SentencePieceProcessor(model_file=str(path))


def bert(folder: pathlib.Path, vocabulary: list[str], **settings: Any) -> pathlib.Path:
    """Write a BERT folder, whose vocabulary determines the ids of special tokens."""
    settings = {"tokenizer_class": "BertTokenizer", **settings}
    write(folder, config={"model_type": "bert"}, tokenizer_config=settings)
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    return folder


def t5(folder: pathlib.Path, sentences: list[str] = ENGLISH + KOREAN) -> pathlib.Path:
    """Write a T5 folder: padding and decoder start 0, end 1, unknown 2."""
    config = {"model_type": "t5", "decoder_start_token_id": 0, "pad_token_id": 0}
    write(folder, config=config, tokenizer_config={"extra_ids": 100})
    options = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
    train_sentence_piece(folder / "spiece.model", sentences * 4, 200, **options)
    return folder


def llama(
    folder: pathlib.Path, sentences: list[str] = ENGLISH + KOREAN
) -> pathlib.Path:
    """Write a Llama 2 folder: unknown 0, start 1, end 2, no padding, byte fallback."""
    config = {"model_type": "llama", "bos_token_id": 1, "eos_token_id": 2}
    tokens = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "pad_token": None}
    write(folder, config=config, tokenizer_config=tokens)
    options = {"model_type": "bpe", "byte_fallback": True}
    train_sentence_piece(folder / "tokenizer.model", sentences * 4, 400, **options)
    return folder


def marian(
    folder: pathlib.Path,
    sources: list[str] = KOREAN,
    targets: list[str] = ENGLISH,
) -> pathlib.Path:
    """Write a Marian folder: end 0, unknown 1, padding last, a shared vocabulary."""
    write(folder)
    pieces: dict[str, None] = {}  # an ordered set
    for side, sentences in (("source", sources), ("target", targets)):
        model = train_sentence_piece(folder / f"{side}.spm", sentences * 4, 90)
        pieces |= dict.fromkeys(map(model.id_to_piece, range(3, model.vocab_size())))
    # Some pieces have no id, and the padding id is not 0.
    vocabulary = ["</s>", "<unk>", *list(pieces)[:-4], ">>eng<<", "<pad>"]
    padding_id = len(vocabulary) - 1
    config = {"model_type": "marian", "decoder_start_token_id": padding_id}
    config |= {"pad_token_id": padding_id, "eos_token_id": 0, "bos_token_id": 0}
    ids = {token: i for i, token in enumerate(vocabulary)}
    settings = {"source_lang": "kor", "target_lang": "eng"}
    return write(folder, config=config, vocab=ids, tokenizer_config=settings)


def gpt2(folder: pathlib.Path, sentences: list[str] = ENGLISH + KOREAN) -> pathlib.Path:
    """Write a GPT-2 folder: byte-level BPE with one special token, start and end."""
    write(folder, config={"model_type": "gpt2", "bos_token_id": 0, "eos_token_id": [0]})
    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    byte_level = tokenizers.pre_tokenizers.ByteLevel
    backend.pre_tokenizer = byte_level(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=byte_level.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(sentences, trainer)
    backend.save(str(folder / "tokenizer.json"))
    return folder
