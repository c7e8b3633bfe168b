"""The SavedModel, asked by a process that has TensorFlow and its text ops alone."""

import base64
import json
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from sentencepiece import SentencePieceProcessor
from small_models import language_model, other_names
from small_translator import KOREAN, make, make_recurrent

from keras_attn.decoding import BeamSearch, Sampling, generate
from keras_attn.serving import (
    TextGenerator,
    Translator,
    export_language_model,
    export_translator,
    saved_model,
)

LENGTH = 10
SHORTEST, LONGEST = "나", KOREAN[0] * 20
BATCHES = [
    [KOREAN[0].encode()],
    [text.encode() for text in KOREAN],
    [SHORTEST.encode()],
    [SHORTEST.encode(), LONGEST.encode()],
    [KOREAN[1].encode(), b"", b"  ", "😀".encode(), b"a" * 10_000, b"\xff\xea\xb0"],
]
IDS = [[5, 260, 261, 3], [270, 3, 0, 0]]
# Beside the two SentencePiece tokenizers others, and another kind of model.
OTHERS = {
    "pieces": (make, ("word piece", "word piece")),
    "recurrent": (make_recurrent, ("character", "character")),
}
BEAM = BeamSearch(2, num_return_sequences=2)


def encoded(batch):
    return [base64.b64encode(text).decode() for text in batch]


def export(path, model, tokenizers, **options):
    source, target = tokenizers["source"], tokenizers["target"]
    return export_translator(
        model, path, source, target, max_new_tokens=LENGTH, **options
    )


def compiled(folder, tokenizer):
    """What XLA compiles in the fresh process: a translator, and a language model."""
    size = tokenizer.vocabulary_size
    options = {"max_length": 4, "jit_compile": True}
    model = other_names(size)
    named = {**options, "target": "summary", "strategy": BEAM}
    path = export_translator(model, folder / "compiled", tokenizer, **named)
    yield path, Translator(model, tokenizer, **named)
    model = language_model(size)
    drawn = {**options, "max_prompt_length": 20, "strategy": Sampling(seed=4)}
    path = export_language_model(model, folder / "writer", tokenizer, **drawn)
    yield path, TextGenerator(model, tokenizer, **{**drawn, "jit_compile": False})


@pytest.fixture(scope="module")
def exported(model, tokenizers, tmp_path_factory):
    """Answers of a fresh process and of this one, to the same questions."""
    folder = tmp_path_factory.mktemp("exported")
    path = export(folder / "new" / "translator", model, tokenizers)
    questions = [(str(path), "serving_default", encoded(batch)) for batch in BATCHES]
    questions += [(str(path), name, IDS) for name in ("translate_ids", "encode")]
    questions.append((str(path), "n_best", []))
    source, target = tokenizers["source"], tokenizers["target"]
    here = {str(path): Translator(model, source, target, max_new_tokens=LENGTH)}
    for name, (make_other, sides) in OTHERS.items():
        source, target = (tokenizers[side] for side in sides)
        other = make_other(source.vocabulary_size, target.vocabulary_size)
        translator = Translator(other, source, target, max_new_tokens=LENGTH)
        place = folder / name
        saved_model.write(translator, place, {"serving_default": translator.translate})
        questions.append((str(place), "serving_default", encoded(BATCHES[1])))
        here[str(place)] = translator
    for path_there, module in compiled(folder, tokenizers["character"]):
        here[str(path_there)] = module
        for signature in ("serving_default", "n_best"):
            questions.append((str(path_there), signature, encoded(BATCHES[4])))
    file = folder / "questions.json"
    file.write_text(json.dumps(questions))
    done = subprocess.run(
        [sys.executable, pathlib.Path(__file__).with_name("ask_saved_models.py"), file],
        capture_output=True,
        text=True,
        cwd=folder,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["imported"] == []
    return path, questions, result["answers"], here


def test_a_fresh_process_says_word_for_word_the_same(exported):
    _, questions, answers, here = exported
    said = set()
    for (folder, signature, batch), answer in zip(questions, answers):
        if signature == "serving_default":
            texts = tf.constant([base64.b64decode(text) for text in batch])
            expected = here[folder].best(texts)
            assert answer["text"] == encoded(expected["text"].numpy())
            np.testing.assert_allclose(answer["score"], expected["score"], rtol=1e-5)
            said.update(answer["text"])
        elif signature == "n_best" and batch:
            texts = tf.constant([base64.b64decode(text) for text in batch])
            expected = here[folder].n_best(texts)
            assert answer["texts"] == [
                encoded(row) for row in expected["texts"].numpy()
            ]
            np.testing.assert_allclose(answer["scores"], expected["scores"], rtol=1e-4)
    assert len(said) > 8, "a model that says one thing shows nothing"


def test_the_two_vocabularies_are_kept_apart(exported, model, tokenizers):
    """SentencePiece itself, which knows no graphs, reads and writes the ids."""
    source, target = (
        SentencePieceProcessor(
            model_proto=base64.b64decode(tokenizers[side].get_config()["model"])
        )
        for side in ("source", "target")
    )
    ids = [[*source.encode(" " + text), 3] for text in KOREAN]
    longest = max(map(len, ids))
    found = generate(
        model,
        {"source": np.array([row + [0] * (longest - len(row)) for row in ids])},
        start_token_id=2,
        end_token_id=3,
        max_new_tokens=LENGTH,
    )
    expected = [target.decode(row[0].tolist()) for row in found["token_ids"].numpy()]
    assert [base64.b64decode(t).decode() for t in exported[2][1]["text"]] == expected


def test_no_text_gets_no_answer(exported):
    assert exported[2][len(BATCHES) + 2] == {"texts": [], "scores": []}


def test_odd_texts_get_an_answer_each(exported):
    _, _, answers, _ = exported
    ordinary, odd = answers[1], answers[4]
    assert len(odd["text"]) == len(BATCHES[4])
    assert odd["text"][0] == ordinary["text"][1]
    assert odd["text"][1:3] == ["", ""] and odd["score"][1:3] == [0, 0]
    assert all(odd["text"][3:]) and np.isfinite(odd["score"]).all()


def test_signatures_have_named_inputs_and_outputs(exported):
    loaded = tf.saved_model.load(str(exported[0]))
    signatures = {
        name: (
            {k: (v.dtype.name, v.shape.as_list()) for k, v in inputs[1].items()},
            {
                k: (v.dtype.name, v.shape.as_list())
                for k, v in signature.structured_outputs.items()
            },
        )
        for name, signature in loaded.signatures.items()
        for inputs in [signature.structured_input_signature]
    }
    ids = {"source": ("int32", [None, None])}
    assert signatures == {
        "serving_default": (
            {"text": ("string", [None])},
            {"text": ("string", [None]), "score": ("float32", [None])},
        ),
        "n_best": (
            {"text": ("string", [None])},
            {"texts": ("string", [None, 1]), "scores": ("float32", [None, 1])},
        ),
        "translate_ids": (
            ids,
            {
                "token_ids": ("int32", [None, 1, LENGTH]),
                "scores": ("float32", [None, 1]),
                "lengths": ("int32", [None, 1]),
            },
        ),
        "encode": (
            ids,
            {
                "hidden_states": ("float32", [None, None, 8]),
                "padding_mask": ("bool", [None, None]),
            },
        ),
    }


def test_ids_are_translated_as_generate_does(exported, model):
    answer = exported[2][len(BATCHES)]
    expected = generate(
        model,
        {"source": np.array(IDS, "int32")},
        start_token_id=2,
        end_token_id=3,
        max_new_tokens=LENGTH,
    )
    assert answer["token_ids"] == expected["token_ids"].numpy().tolist()
    assert answer["lengths"] == expected["lengths"].numpy().tolist()
    np.testing.assert_allclose(answer["scores"], expected["scores"], rtol=1e-5)


def test_encode_gives_the_encoders_output(exported, model):
    answer = exported[2][len(BATCHES) + 1]
    encoder = keras.Model(model.input, model.get_layer("encoder_0").output)
    ids = np.array(IDS, "int32")
    expected = encoder({"source": ids, "target": ids[:, :1]})
    np.testing.assert_allclose(answer["hidden_states"], expected, atol=1e-5)
    assert answer["padding_mask"] == (ids != 0).tolist()


def test_ops_that_a_server_must_load_are_listed(exported):
    path, questions, *_ = exported
    ops = json.loads((path / "non_core_ops.json").read_text())
    assert ops == [
        "SentencepieceDetokenizeOp",
        "SentencepieceOp",
        "SentencepieceTokenizeOp",
    ]
    # The fresh process loads what needs nothing more before tensorflow_text.
    compiled = [f for f, *_ in questions if f.endswith(("compiled", "writer"))]
    assert len(compiled) == 4 and not any(map(_ops, compiled))


def _ops(folder):
    return json.loads((pathlib.Path(folder) / "non_core_ops.json").read_text())


def test_the_folder_is_whole_and_readable(exported):
    path = exported[0]
    assert isinstance(path, pathlib.Path)
    assert {p.name for p in path.iterdir()} >= {
        "saved_model.pb",
        "variables",
        "non_core_ops.json",
    }
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    assert path.stat().st_mode & 0o777 == 0o755


@pytest.fixture
def saving(monkeypatch):
    """In place of TensorFlow's saving, which takes seconds: a file, then an error."""

    def save(module, path, signatures=None):
        (pathlib.Path(path) / "saved_model.pb").write_bytes(b"")
        if save.error is not None:
            raise save.error

    save.error = None
    monkeypatch.setattr(tf.saved_model, "save", save)
    return save


def test_what_is_there_is_left_alone(model, tokenizers, tmp_path, saving):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "mine").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("there", "file", "link"):
        with pytest.raises(FileExistsError, match=f"overwrite=True.*{name}"):
            export(tmp_path / name, model, tokenizers)
    assert (tmp_path / "there" / "mine").read_text() == "mine"
    assert (tmp_path / "file").read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 3


def test_overwrite_replaces_the_whole_folder(model, tokenizers, tmp_path, saving):
    (tmp_path / "there").mkdir()
    for name in ("old", "saved_model.pb"):
        (tmp_path / "there" / name).write_text("old")
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("there", "link"):
        path = export(tmp_path / name, model, tokenizers, overwrite=True)
        assert {p.name for p in path.iterdir()} == {
            "saved_model.pb",
            "non_core_ops.json",
        }
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "there"]


def test_overwrite_replaces_nothing_but_savedmodels(
    model, tokenizers, tmp_path, saving, monkeypatch
):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter").write_text("mine")
    (tmp_path / "file").write_text("mine")
    monkeypatch.chdir(tmp_path / "thesis")
    for path in (tmp_path / "thesis", tmp_path / "file", "."):
        with pytest.raises(FileExistsError, match="else than a SavedModel"):
            export(path, model, tokenizers, overwrite=True)
    with pytest.raises(FileNotFoundError, match="path=''"):
        export("", model, tokenizers, overwrite=True)
    assert (tmp_path / "thesis" / "chapter").read_text() == "mine"
    (tmp_path / "empty").mkdir()
    export(tmp_path / "empty", model, tokenizers, overwrite=True)


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_a_failure_leaves_nothing_new(model, tokenizers, tmp_path, saving, error):
    (tmp_path / "there").mkdir()
    for name in ("old", "saved_model.pb"):
        (tmp_path / "there" / name).write_text("old")
    saving.error = error
    with pytest.raises(type(error)):
        export(tmp_path / "new" / "folders" / "translator", model, tokenizers)
    with pytest.raises(type(error)):
        export(tmp_path / "there", model, tokenizers, overwrite=True)
    assert [p.name for p in tmp_path.iterdir()] == ["there"]
    assert (tmp_path / "there" / "old").read_text() == "old"


def test_a_failed_replacement_puts_the_old_folder_back(
    model, tokenizers, tmp_path, saving, monkeypatch
):
    (tmp_path / "there").mkdir()
    for name in ("old", "saved_model.pb"):
        (tmp_path / "there" / name).write_text("old")
    rename = os.rename

    def failing(source, target):
        if ".partial-" in str(source):
            raise OSError("disk gone")
        rename(source, target)

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(OSError, match="disk gone"):
        export(tmp_path / "there", model, tokenizers, overwrite=True)
    assert [p.name for p in tmp_path.iterdir()] == ["there"]
    assert (tmp_path / "there" / "old").read_text() == "old"


def test_a_place_that_cannot_be_written(model, tokenizers, tmp_path, saving):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OSError, match="cannot be written.*Received: path="):
        export(tmp_path / "file" / "translator", model, tokenizers)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_tokenizer_too_large_leaves_nothing(tokenizers, tmp_path, saving):
    with pytest.raises(ValueError, match="source tokenizer.*vocabulary_size="):
        export(tmp_path / "new" / "translator", make(20, 400), tokenizers)
    assert list(tmp_path.iterdir()) == []
