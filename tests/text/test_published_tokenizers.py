"""Tokenizers of published models, compared with the packages of these models."""

import unicodedata

import published_folders as folders
import pytest
import sentencepiece
import tensorflow as tf
from hard_texts import LINES, TEXTS
from test_tokenizer_export import served_and_expected
from tokenizers import Tokenizer, processors

from keras_attn.text import (
    BertTokenizer,
    JsonTokenizer,
    MarianTokenizer,
    PublishedSentencePieceTokenizer,
    load_published_tokenizer,
    load_tokenizer,
    translation_dataset,
)

transformers = pytest.importorskip("transformers")
NO_MOSES = pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
NORMALIZERS = {
    "uncased": {},
    "cased": {"do_lower_case": False},
    "with accents": {"strip_accents": False},
    "cased, without accents, Chinese not split": {
        "do_lower_case": False,
        "strip_accents": True,
        "tokenize_chinese_chars": False,
    },
}


def bert_vocabulary():
    """Return pieces for most characters of the hard texts, in all normal forms."""
    forms = [form for text in TEXTS for form in (text, text.lower(), text.upper())]
    forms += [unicodedata.normalize("NFD", form) for form in forms]
    letters = sorted(set("".join(forms)) - set(" \t\n\r\x85\u2028\u2029"))
    included = [
        letter for letter in letters if ord(letter) % 11 and letter.isprintable()
    ]
    longer = ["한국어", "학교", "word", "test", "hell", "aaa", "ééé", "##aaa", "##orl"]
    return [*folders.BERT_SPECIAL, *included, *(f"##{c}" for c in included), *longer]


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    def create(**settings):
        folder = tmp_path_factory.mktemp("bert")
        return folders.bert(folder, bert_vocabulary(), **settings)

    return create


@pytest.fixture(scope="module")
def model_folders(tmp_path_factory, bert):
    """A folder of each kind of model."""
    root = tmp_path_factory.mktemp("published")
    kinds = ("t5", "llama", "marian", "gpt2")
    created = {kind: getattr(folders, kind)(root / kind) for kind in kinds}
    return {**created, "bert": bert()}


@pytest.fixture(scope="module")
def loaded(model_folders):
    """A tokenizer of each kind, of Marian both sides."""
    tokenizers = {
        kind: load_published_tokenizer(folder)
        for kind, folder in model_folders.items()
        if kind != "marian"
    }
    for side in ("source", "target"):
        tokenizers[side] = load_published_tokenizer(model_folders["marian"], side)
    return tokenizers


def decoded(strings):
    return [string.decode() for string in strings.numpy()]


@pytest.mark.parametrize("name", NORMALIZERS)
def test_bert_ids_equal_those_of_transformers(bert, name):
    folder = bert(**NORMALIZERS[name])
    tokenizer = load_published_tokenizer(folder)
    reference = transformers.BertTokenizer.from_pretrained(folder)
    expected = reference(TEXTS, split_special_tokens=True)["input_ids"]
    outputs = tokenizer.tokenize(TEXTS, add_start=True, add_end=True).to_list()
    for text, output, ids in zip(TEXTS, outputs, expected, strict=True):
        assert output == ids, text
    used = {token_id for row in expected for token_id in row}
    assert tokenizer.unknown_id in used and len(used) > 100


def test_bert_from_a_tokenizer_json(bert, tmp_path):
    settings = {"do_lower_case": False, "strip_accents": True}
    reference = transformers.BertTokenizer.from_pretrained(bert(**settings))
    reference.backend_tokenizer.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_published_tokenizer(tmp_path)
    expected = load_published_tokenizer(bert(**settings))
    assert tokenizer.fingerprint == expected.fingerprint


def test_bert_with_korean_and_with_strings_of_special_tokens(bert):
    cased = load_published_tokenizer(bert(do_lower_case=False))
    assert cased.pieces("한국어 학교", add_start=True) == ["[CLS]", "한국어", "학교"]
    uncased = load_published_tokenizer(bert())
    assert len(uncased.pieces("한국어")) == 8
    special = {0, 2, 3, 4}
    assert not special & set(cased.tokenize(" ".join(folders.BERT_SPECIAL)).numpy())
    ids = cased.tokenize("word. [SEP] test", add_start=True, add_end=True)
    assert cased.detokenize(ids).numpy().decode() == "word. [SEP] test"


def processor(path):
    return sentencepiece.SentencePieceProcessor(model_file=str(path))


@pytest.mark.parametrize(
    "kind, file, special",
    [
        ("t5", "spiece.model", (0, 2, 0, 1, None)),
        ("llama", "tokenizer.model", (2, 0, 1, 2, None)),
    ],
)
def test_sentence_piece_ids_equal_those_of_sentencepiece(
    model_folders, loaded, kind, file, special
):
    tokenizer, reference = loaded[kind], processor(model_folders[kind] / file)
    assert tuple(tokenizer.special_ids.values()) == special
    texts = [text for text in TEXTS if "\0" not in text]
    ids = tokenizer.tokenize(texts)
    assert ids.to_list() == [reference.encode(text) for text in texts]
    expected = [reference.decode(row) for row in ids.to_list()]
    assert decoded(tokenizer.detokenize(ids)) == expected
    both = tokenizer.tokenize("a cat", add_start=True, add_end=True).numpy()
    assert [both[0], both[-1]] == [tokenizer.start_token_id, tokenizer.end_token_id]
    assert decoded(tokenizer.detokenize([both])) == ["a cat"]


def test_t5_and_its_extra_ids(model_folders, loaded):
    tokenizer = loaded["t5"]
    reference = transformers.T5Tokenizer.from_pretrained(model_folders["t5"])
    texts = folders.ENGLISH + folders.KOREAN
    expected = reference(texts)["input_ids"]
    assert tokenizer.tokenize(texts, add_end=True).to_list() == expected
    assert tokenizer.vocabulary_size == len(reference)
    assert tokenizer.tokens()[-100:] == reference.convert_ids_to_tokens(
        list(range(len(reference) - 100, len(reference)))
    )
    row = [*tokenizer.tokenize("a cat").numpy(), len(reference) - 1]
    assert tokenizer.detokenize(row).numpy() == b"a cat"


@NO_MOSES
@pytest.mark.parametrize("side", ["source", "target"])
def test_marian_ids_equal_those_of_transformers(model_folders, loaded, side):
    tokenizer = loaded[side]
    reference = transformers.MarianTokenizer.from_pretrained(model_folders["marian"])
    last = tokenizer.vocabulary_size - 1
    assert tuple(tokenizer.special_ids.values()) == (last, 1, last, 0, None)
    texts = [text for text in TEXTS if not any(t in text for t in ("</s>", "\0"))]
    texts += [f"{code}{t}" for code in (">>eng<<", ">>x<<\n") for t in folders.KOREAN]
    arguments = {"text" if side == "source" else "text_target": texts}
    expected = reference(**arguments)["input_ids"]
    outputs = tokenizer.tokenize(texts, add_end=True)
    for text, output, ids in zip(texts, outputs.to_list(), expected, strict=True):
        assert output == ids, text
    assert last - 1 in outputs.values.numpy(), "the target language"
    known = {"source": folders.KOREAN, "target": folders.ENGLISH}[side]
    options = {"skip_special_tokens": True, "use_source_tokenizer": side == "source"}
    rows = tokenizer.tokenize(known, add_end=True)
    texts = [reference.decode(row, **options) for row in rows.to_list()]
    shown = [text.replace("⁇", " ") for text in decoded(tokenizer.detokenize(rows))]
    assert ["".join(t.split()) for t in shown] == ["".join(t.split()) for t in texts]
    ids = tokenizer.tokenize("</s> <pad>").numpy()
    assert not {0, last} & set(ids)


def test_byte_level_ids_equal_those_of_transformers(model_folders, loaded):
    tokenizer = loaded["gpt2"]
    file = str(model_folders["gpt2"] / "tokenizer.json")
    reference = transformers.PreTrainedTokenizerFast(tokenizer_file=file)
    expected = reference(TEXTS, split_special_tokens=True)["input_ids"]
    ids = tokenizer.tokenize(TEXTS, add_start=True, add_end=True)
    assert ids.to_list() == [[0, *row, 0] for row in expected]
    assert decoded(tokenizer.detokenize(ids)) == TEXTS
    # Start, end and padding are the same id, the start at the first position.
    assert decoded(tokenizer.detokenize(ids.to_tensor(0))) == TEXTS
    assert tokenizer.special_ids == {
        "padding_id": 0,
        "unknown_id": None,
        "start_token_id": 0,
        "end_token_id": 0,
        "source_start_id": None,
    }
    with pytest.raises(ValueError, match="ids from 0 to"):
        tokenizer.detokenize([tokenizer.vocabulary_size])


def test_byte_level_in_a_pipeline(loaded):
    tokenizer = loaded["gpt2"]

    def round_trip(texts):
        ids = tokenizer.tokenize(texts)
        outside = tf.fill([ids.nrows(), 1], tokenizer.vocabulary_size)
        return ids.to_tensor(), tokenizer.detokenize(tf.concat([ids, outside], axis=1))

    dataset = tf.data.Dataset.from_tensor_slices(TEXTS).batch(32).map(round_trip)
    assert dataset.element_spec[0].shape.as_list() == [None, None]
    texts = [text for _, back in dataset for text in decoded(back)]
    assert texts == TEXTS
    assert tokenizer.tokenize([]).shape.as_list() == [0, None]
    assert (
        tokenizer.detokenize(tf.zeros([2, 0], tf.int32)).numpy().tolist() == [b""] * 2
    )


def test_a_tokenizer_that_runs_in_python_is_not_exported(loaded, tmp_path):
    module = tf.Module()
    module.tokenizer = loaded["gpt2"]
    with pytest.raises(ValueError, match="runs in Python cannot be exported; those of"):
        tf.saved_model.save(module, tmp_path / "saved")
    assert not (tmp_path / "saved" / "saved_model.pb").exists()


@pytest.mark.slow
@pytest.mark.export
@pytest.mark.subprocess
def test_in_a_saved_model_in_a_fresh_process(loaded, tmp_path):
    in_graph = {name: loaded[name] for name in loaded if name != "gpt2"}
    assert len(in_graph) == 5
    texts = [text for text in LINES if "\0" not in text]
    outputs, expected = served_and_expected(in_graph, texts, tmp_path)
    assert outputs["fresh"] == outputs["seeded"] == expected


def test_saved_and_loaded(loaded, tmp_path):
    classes = {
        "bert": BertTokenizer,
        "gpt2": JsonTokenizer,
        "llama": PublishedSentencePieceTokenizer,
        "t5": PublishedSentencePieceTokenizer,
        "source": MarianTokenizer,
        "target": MarianTokenizer,
    }
    fingerprints = set()
    for name, tokenizer in loaded.items():
        assert type(tokenizer) is classes[name]
        tokenizer.save(tmp_path / name)
        again = load_tokenizer(tmp_path / name)
        assert type(again) is classes[name]
        assert again.fingerprint == tokenizer.fingerprint
        assert again.special_ids == tokenizer.special_ids
        assert again.tokenize(LINES).to_list() == tokenizer.tokenize(LINES).to_list()
        fingerprints.add(again.fingerprint)
        assert len(set(again.tokens())) == again.vocabulary_size
        assert again.id_to_token(7) == again.tokens()[7]
        text = again.pieces("cats", add_end=True)
        assert text[-1] == again.id_to_token(again.end_token_id)
    assert len(fingerprints) == len(loaded)


def test_pairs_are_padded_with_the_ids_of_the_tokenizers(loaded):
    source, target = loaded["source"], loaded["t5"]
    pairs = list(zip(folders.KOREAN, folders.ENGLISH))
    dataset = translation_dataset(pairs, source, target, batch_size=3, shuffle=False)
    inputs, labels = next(iter(dataset))
    longest = inputs["source"].shape[1], labels.shape[1]
    for output, texts, tokenizer, length, options in (
        (inputs["source"], folders.KOREAN, source, longest[0], {"add_end": True}),
        (
            inputs["target"],
            folders.ENGLISH[:3],
            target,
            longest[1],
            {"add_start": True},
        ),
        (labels, folders.ENGLISH[:3], target, longest[1], {"add_end": True}),
    ):
        ids = tokenizer.tokenize(texts, **options)
        expected = ids.to_tensor(tokenizer.padding_id, shape=[3, length])
        assert output.numpy().tolist() == expected.numpy().tolist()
    assert source.padding_id != 0


def test_sides_start_differently(tmp_path):
    """A BART source starts with the tokenizer's id, a target with the model's."""
    folder = folders.gpt2(tmp_path)
    tokens = {"bos_token": "a", "eos_token": "b", "pad_token": "c"}
    folders.write(folder, config={"decoder_start_token_id": 9}, tokenizer_config=tokens)
    starts = {
        side: load_published_tokenizer(folder, side).special_ids["start_token_id"]
        for side in ("source", "target", None)
    }
    letter = load_published_tokenizer(folder).tokenize("a").numpy()[0]
    assert starts == {"source": letter, "target": 9, None: 9}


def template(single):
    special = [("<s>", 7), ("</s>", 0)]
    return processors.TemplateProcessing(single=single, special_tokens=special)


@pytest.mark.parametrize(
    "processor, start",
    [
        (processors.RobertaProcessing(("</s>", 0), ("<s>", 7)), [7]),
        (processors.Sequence([processors.ByteLevel(), template("<s> $A")]), [7]),
        (template("$A </s>"), []),
    ],
)
def test_a_source_starts_with_the_id_of_the_post_processor(processor, start, tmp_path):
    folder = folders.gpt2(tmp_path)
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    backend.post_processor = processor
    backend.save(str(folder / "tokenizer.json"))
    load_published_tokenizer(folder, "source").save(tmp_path / "saved")
    source = load_tokenizer(tmp_path / "saved")
    texts, max_ids = ["a cat", "the cats walked"], 5 - 1 - len(start)
    dataset = translation_dataset(
        zip(texts, texts), source, batch_size=2, max_source_length=5, shuffle=False
    )
    rows = source.tokenize(texts).to_list()
    expected = [[*start, *row[:max_ids], source.end_token_id] for row in rows]
    padding = [source.padding_id] * 5
    expected = [[*row, *padding][:5] for row in expected]
    assert next(iter(dataset))[0]["source"].numpy().tolist() == expected
    assert dataset.report.num_truncated == sum(len(row) > max_ids for row in rows) > 0
    with pytest.raises(ValueError, match=f"at least {2 + len(start)}"):
        translation_dataset(zip(texts, texts), source, max_source_length=1 + len(start))


def test_added_words_require_a_json_tokenizer(model_folders, tmp_path):
    """Only `tokenizers` matches added words before the vocabulary."""
    reference = transformers.BertTokenizer.from_pretrained(model_folders["bert"])
    reference.add_tokens(["covid"])
    reference.save_pretrained(tmp_path)
    tokenizer = load_published_tokenizer(tmp_path)
    assert isinstance(tokenizer, JsonTokenizer)
    expected = reference(LINES[:5], split_special_tokens=True, add_special_tokens=False)
    assert tokenizer.tokenize(LINES[:5]).to_list() == expected["input_ids"]
    assert tokenizer.pieces("covid") == ["covid"]


def test_clear_errors(model_folders, tmp_path):
    with pytest.raises(FileNotFoundError, match="Expected the folder"):
        load_published_tokenizer(tmp_path / "none")
    folder = folders.write(tmp_path / "empty", config={"model_type": "bert"})
    with pytest.raises(FileNotFoundError, match="`vocab.txt` of BERT.*'config.json'"):
        load_published_tokenizer(folder)
    (folder / "vocab.txt").write_text("a\n[SEP]\n")
    with pytest.raises(ValueError, match="a vocabulary with '\\[UNK\\]'"):
        load_published_tokenizer(folder)
    folders.bert(folder, [*folders.BERT_SPECIAL, "a", "a"])
    with pytest.raises(ValueError, match="distinct, non-empty str"):
        load_published_tokenizer(folder)
    folders.write(folder, tokenizer_config={"tokenizer_class": "PhobertTokenizer"})
    with pytest.raises(FileNotFoundError, match="`tokenizer.json` of these and others"):
        load_published_tokenizer(folder)
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(ValueError, match="Expected a JSON file.*tokenizer.json"):
        load_published_tokenizer(folder)
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match="the content of a `tokenizer.json`"):
        load_published_tokenizer(folder)
    with pytest.raises(ValueError, match="side to be 'source' or 'target'.*None"):
        load_published_tokenizer(model_folders["marian"])
    with pytest.raises(ValueError, match="Received: side='left'"):
        load_published_tokenizer(model_folders["marian"], "left")
    folder = folders.t5(tmp_path / "t5")
    (folder / "spiece.model").write_bytes(b"no model")
    with pytest.raises(ValueError, match="serialized SentencePiece model"):
        load_published_tokenizer(folder)
    folder = folders.gpt2(tmp_path / "gpt2")
    folders.write(folder, config={})
    with pytest.raises(ValueError, match="defines the end token"):
        load_published_tokenizer(folder)
    folder = folders.marian(tmp_path / "marian")
    folders.write(folder, vocab={"</s>": 0, "<unk>": 2})
    with pytest.raises(
        ValueError, match="consecutive ids from 0 on. Received: 2 tokens"
    ):
        load_published_tokenizer(folder, "source")
