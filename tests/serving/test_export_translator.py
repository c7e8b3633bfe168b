"""Exported SavedModels, run by a process with only TensorFlow and tensorflow_text."""

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

pytestmark = [pytest.mark.slow, pytest.mark.export, pytest.mark.subprocess]

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
BEAM = BeamSearch(2, num_return_sequences=2)


def encoded(batch):
    return [base64.b64encode(text).decode() for text in batch]


def export(path, model, tokenizers, **options):
    source, target = tokenizers["source"], tokenizers["target"]
    return export_translator(
        model, path, source, target, max_new_tokens=LENGTH, **options
    )


def compiled(folder, tokenizer):
    """Export a translator and a language model that XLA compiles in the new process.

    Yields:
        Tuples of a path and a module that is not compiled, to compare with.
    """
    size = tokenizer.vocabulary_size
    options = {"max_new_tokens": 4, "jit_compile": True}
    model = other_names(size)
    named = {**options, "target": "summary", "strategy": BEAM}
    path = export_translator(model, folder / "compiled", tokenizer, **named)
    yield path, Translator(model, tokenizer, **{**named, "jit_compile": False})
    model = language_model(size)
    drawn = {**options, "max_prompt_length": 20, "strategy": Sampling(seed=4)}
    path = export_language_model(model, folder / "writer", tokenizer, **drawn)
    yield path, TextGenerator(model, tokenizer, **{**drawn, "jit_compile": False})


@pytest.fixture(scope="module")
def exported(model, tokenizers, tmp_path_factory):
    """The outputs of a new process for some requests, and the exported modules."""
    folder = tmp_path_factory.mktemp("exported")
    path = export(folder / "new" / "translator", model, tokenizers)
    requests = [(str(path), "serving_default", encoded(batch)) for batch in BATCHES]
    requests += [(str(path), name, IDS) for name in ("translate_ids", "encode")]
    requests.append((str(path), "n_best", []))
    source, target = tokenizers["source"], tokenizers["target"]
    modules = {str(path): Translator(model, source, target, max_new_tokens=LENGTH)}
    # A recurrent model with another tokenizer than SentencePiece.
    tokenizer = tokenizers["word piece"]
    recurrent = make_recurrent(tokenizer.vocabulary_size, tokenizer.vocabulary_size)
    translator = Translator(recurrent, tokenizer, max_new_tokens=LENGTH)
    recurrent_path = folder / "recurrent"
    signatures = {"serving_default": translator.translate}
    saved_model.write(translator, recurrent_path, signatures)
    requests.append((str(recurrent_path), "serving_default", encoded(BATCHES[1])))
    modules[str(recurrent_path)] = translator
    for compiled_path, module in compiled(folder, tokenizers["character"]):
        modules[str(compiled_path)] = module
        for signature in ("serving_default", "n_best"):
            requests.append((str(compiled_path), signature, encoded(BATCHES[4])))
    file = folder / "requests.json"
    file.write_text(json.dumps(requests))
    done = subprocess.run(
        [sys.executable, pathlib.Path(__file__).with_name("run_saved_models.py"), file],
        capture_output=True,
        text=True,
        cwd=folder,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["imported"] == []
    return path, requests, result["outputs"], modules


def test_a_new_process_generates_the_same_texts(exported):
    _, requests, all_outputs, modules = exported
    generated = set()
    for (folder, signature, batch), outputs in zip(requests, all_outputs):
        if signature == "serving_default":
            texts = tf.constant([base64.b64decode(text) for text in batch])
            expected = modules[folder].best(texts)
            assert outputs["text"] == encoded(expected["text"].numpy())
            np.testing.assert_allclose(outputs["score"], expected["score"], rtol=1e-5)
            generated.update(outputs["text"])
        elif signature == "n_best" and batch:
            texts = tf.constant([base64.b64decode(text) for text in batch])
            expected = modules[folder].n_best(texts)
            assert outputs["texts"] == [
                encoded(hypotheses) for hypotheses in expected["texts"].numpy()
            ]
            np.testing.assert_allclose(outputs["scores"], expected["scores"], rtol=1e-4)
    assert len(generated) > 8, "the test requires models that generate different texts"


def test_the_two_vocabularies_are_separate(exported, model, tokenizers):
    """Compared with the sentencepiece library, which does not use graphs."""
    source, target = (
        SentencePieceProcessor(
            model_proto=base64.b64decode(tokenizers[side].get_config()["model"])
        )
        for side in ("source", "target")
    )
    ids = [[*source.encode(" " + text), 3] for text in KOREAN]
    longest = max(map(len, ids))
    results = generate(
        model,
        {"source": np.array([row + [0] * (longest - len(row)) for row in ids])},
        start_token_id=2,
        end_token_id=3,
        max_new_tokens=LENGTH,
    )
    expected = [target.decode(ids[0].tolist()) for ids in results["token_ids"].numpy()]
    assert [base64.b64decode(t).decode() for t in exported[2][1]["text"]] == expected


def test_empty_batch(exported):
    assert exported[2][len(BATCHES) + 2] == {"texts": [], "scores": []}


def test_each_unusual_text_is_translated(exported):
    _, _, outputs, _ = exported
    usual, unusual = outputs[1], outputs[4]
    assert len(unusual["text"]) == len(BATCHES[4])
    assert unusual["text"][0] == usual["text"][1]
    assert unusual["text"][1:3] == ["", ""] and unusual["score"][1:3] == [0, 0]
    assert all(unusual["text"][3:]) and np.isfinite(unusual["score"]).all()


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


def test_translate_ids_equals_generate(exported, model):
    outputs = exported[2][len(BATCHES)]
    expected = generate(
        model,
        {"source": np.array(IDS, "int32")},
        start_token_id=2,
        end_token_id=3,
        max_new_tokens=LENGTH,
    )
    assert outputs["token_ids"] == expected["token_ids"].numpy().tolist()
    assert outputs["lengths"] == expected["lengths"].numpy().tolist()
    np.testing.assert_allclose(outputs["scores"], expected["scores"], rtol=1e-5)


def test_encode_returns_the_output_of_the_encoder(exported, model):
    outputs = exported[2][len(BATCHES) + 1]
    encoder = keras.Model(model.input, model.get_layer("encoder_0").output)
    ids = np.array(IDS, "int32")
    expected = encoder({"source": ids, "target": ids[:, :1]})
    np.testing.assert_allclose(outputs["hidden_states"], expected, atol=1e-5)
    assert outputs["padding_mask"] == (ids != 0).tolist()


def test_ops_that_a_server_must_load_are_listed(exported):
    path, requests, *_ = exported
    ops = json.loads((path / "non_core_ops.json").read_text())
    assert ops == [
        "SentencepieceDetokenizeOp",
        "SentencepieceOp",
        "SentencepieceTokenizeOp",
    ]
    # The new process loads these SavedModels before tensorflow_text.
    compiled = [f for f, *_ in requests if f.endswith(("compiled", "writer"))]
    assert len(compiled) == 4 and not any(map(_ops, compiled))


def _ops(folder):
    return json.loads((pathlib.Path(folder) / "non_core_ops.json").read_text())


def test_the_folder_is_complete_and_readable(exported):
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
    """Replace `tf.saved_model.save`, which takes seconds: write a file, then raise."""

    def save(module, path, signatures=None):
        (pathlib.Path(path) / "saved_model.pb").write_bytes(b"")
        if save.error is not None:
            raise save.error

    save.error = None
    monkeypatch.setattr(tf.saved_model, "save", save)
    return save


def test_existing_paths_are_unchanged(model, tokenizers, tmp_path, saving):
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


@pytest.fixture
def exported_folder(model, tokenizers, tmp_path, saving):
    """Return the folder of an earlier export, whose file of ops contains "old"."""
    path = export(tmp_path / "there", model, tokenizers)
    (path / "non_core_ops.json").write_text("old")
    return path


def test_overwrite_replaces_the_folder(model, tokenizers, tmp_path, exported_folder):
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("there", "link"):
        path = export(tmp_path / name, model, tokenizers, overwrite=True)
        assert {p.name for p in path.iterdir()} == {
            "saved_model.pb",
            "non_core_ops.json",
            "keras_attn_files.json",
        }
        assert json.loads((path / "non_core_ops.json").read_text()) == []
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "there"]


def test_overwrite_replaces_only_saved_models(
    model, tokenizers, tmp_path, saving, monkeypatch
):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter").write_text("mine")
    (tmp_path / "file").write_text("mine")
    monkeypatch.chdir(tmp_path / "thesis")
    for path in (tmp_path / "thesis", tmp_path / "file", "."):
        with pytest.raises(FileExistsError, match="is not a SavedModel"):
            export(path, model, tokenizers, overwrite=True)
    with pytest.raises(FileNotFoundError, match="path=''"):
        export("", model, tokenizers, overwrite=True)
    assert (tmp_path / "thesis" / "chapter").read_text() == "mine"
    (tmp_path / "empty").mkdir()
    path = export(tmp_path / "empty", model, tokenizers, overwrite=True)
    # Neither another SavedModel nor an export with more files is replaced.
    (path / "thesis.tex").write_text("mine")
    with pytest.raises(FileExistsError, match="not written.*contains thesis.tex"):
        export(path, model, tokenizers, overwrite=True)
    (path / "keras_attn_files.json").unlink()
    with pytest.raises(FileExistsError, match="saved_model.pb, thesis.tex"):
        export(path, model, tokenizers, overwrite=True)
    assert (path / "thesis.tex").read_text() == "mine"


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_a_failure_leaves_no_new_files(
    model, tokenizers, tmp_path, saving, exported_folder, error
):
    saving.error = error
    with pytest.raises(type(error)):
        export(tmp_path / "new" / "folders" / "translator", model, tokenizers)
    with pytest.raises(type(error)):
        export(tmp_path / "there", model, tokenizers, overwrite=True)
    assert [p.name for p in tmp_path.iterdir()] == ["there"]
    assert (exported_folder / "non_core_ops.json").read_text() == "old"


def test_a_path_that_cannot_be_written(model, tokenizers, tmp_path, saving):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OSError, match="cannot be written.*Received: path="):
        export(tmp_path / "file" / "translator", model, tokenizers)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_tokenizer_that_is_too_large_leaves_no_files(tokenizers, tmp_path, saving):
    with pytest.raises(ValueError, match="source tokenizer.*vocabulary_size="):
        export(tmp_path / "new" / "translator", make(20, 400), tokenizers)
    assert list(tmp_path.iterdir()) == []
