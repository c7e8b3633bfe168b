"""Small folders with tokenizers as models are published with."""

import io
import json

import sentencepiece
import tokenizers as rust

ENGLISH = [
    "a cat sat on the mat",
    "the cats and dogs walked to school",
    "Hello, World! It's 3.14 meters long (really).",
    "We learn Korean, don't we?",
]
KOREAN = ["나는 학교에 간다.", "고양이가 매트 위에 앉았다.", "한국어를 배운다!"]
BERT_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def write(folder, **files):
    """The folder with JSON files, by their names without `.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = folder / f"{name}.json"
        path.write_text(json.dumps(content), encoding="utf-8")
    return folder


def pieces(path, sentences, size, **options):
    """Trains a SentencePiece model into a file."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_writer=model,
        vocab_size=size,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    path.write_bytes(model.getvalue())
    return sentencepiece.SentencePieceProcessor(model_file=str(path))


def bert(folder, vocabulary, **settings):
    """BERT: ids of special tokens as they are in the vocabulary."""
    settings = {"tokenizer_class": "BertTokenizer", **settings}
    write(folder, config={"model_type": "bert"}, tokenizer_config=settings)
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    return folder


def t5(folder, sentences=ENGLISH + KOREAN):
    """T5: padding 0, which a decoder starts with as well, end 1, unknown 2."""
    config = {"model_type": "t5", "decoder_start_token_id": 0, "pad_token_id": 0}
    write(folder, config=config, tokenizer_config={"extra_ids": 100})
    options = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
    pieces(folder / "spiece.model", sentences * 4, 200, **options)
    return folder


def llama(folder, sentences=ENGLISH + KOREAN):
    """Llama 2: unknown 0, start 1, end 2, no padding, bytes for what is unknown."""
    config = {"model_type": "llama", "bos_token_id": 1, "eos_token_id": 2}
    tokens = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "pad_token": None}
    write(folder, config=config, tokenizer_config=tokens)
    options = {"model_type": "bpe", "byte_fallback": True}
    pieces(folder / "tokenizer.model", sentences * 4, 400, **options)
    return folder


def marian(folder, sources=KOREAN, targets=ENGLISH):
    """Marian: end 0, unknown 1, padding last; one vocabulary for both sides."""
    write(folder)
    known = {
        piece: None
        for side, sentences in (("source", sources), ("target", targets))
        for model in [pieces(folder / f"{side}.spm", sentences * 4, 90)]
        for piece in map(model.id_to_piece, range(3, model.vocab_size()))
    }
    # Not all pieces have an id; and padding is not where it is elsewhere.
    vocabulary = ["</s>", "<unk>", *list(known)[:-4], ">>eng<<", "<pad>"]
    last = len(vocabulary) - 1
    config = {"model_type": "marian", "decoder_start_token_id": last}
    config |= {"pad_token_id": last, "eos_token_id": 0, "bos_token_id": 0}
    ids = {token: i for i, token in enumerate(vocabulary)}
    settings = {"source_lang": "kor", "target_lang": "eng"}
    return write(folder, config=config, vocab=ids, tokenizer_config=settings)


def gpt2(folder, sentences=ENGLISH + KOREAN):
    """GPT-2: byte-level BPE with one special token, which is start and end."""
    write(folder, config={"model_type": "gpt2", "bos_token_id": 0, "eos_token_id": [0]})
    backend = rust.Tokenizer(rust.models.BPE())
    byte_level = rust.pre_tokenizers.ByteLevel
    backend.pre_tokenizer = byte_level(add_prefix_space=False)
    backend.decoder = rust.decoders.ByteLevel()
    trainer = rust.trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=byte_level.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(sentences, trainer)
    backend.save(str(folder / "tokenizer.json"))
    return folder
