"""Tokenizers inside a SavedModel, run by a process that imports only TensorFlow."""

import json
import subprocess
import sys

import pytest
import tensorflow as tf

from keras_attn.text import SentencePieceTokenizer

pytestmark = [pytest.mark.slow, pytest.mark.export, pytest.mark.subprocess]

TEXTS = ["Walking dogs", "나는 학교에서", "", "   ", "😀▁x", "y" * 10_000, "The cat."]
READER = """
import json, sys
import tensorflow as tf
import tensorflow_text
loaded = tf.saved_model.load(sys.argv[1])
texts = json.loads(sys.argv[2])
outputs = {}
for when in ("fresh", "seeded"):
    outputs[when] = {}
    for name, value in loaded.serve(tf.constant(texts)).items():
        outputs[when][name] = (
            [t.decode() for t in value.numpy()]
            if value.dtype == tf.string
            else value.numpy().tolist()
        )
    tf.random.set_seed(5)
outputs["imported"] = [m for m in sys.modules if m.split(".")[0] == "keras_attn"]
print(json.dumps(outputs))
"""


def served_and_expected(tokenizers, texts, folder):
    """Return the outputs of tokenizers in a fresh process and in this process."""
    module = tf.Module()
    for name, tokenizer in tokenizers.items():
        setattr(module, name, tokenizer)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def serve(texts):
        outputs = {}
        for name, tokenizer in tokenizers.items():
            ids = tokenizer.tokenize(texts, add_end=True)
            ids = ids.to_tensor(tokenizer.padding_id)
            outputs[name + "_ids"] = ids
            outputs[name + "_text"] = tokenizer.detokenize(ids)
        return outputs

    module.serve = serve
    tf.saved_model.save(module, folder / "saved")
    expected = {}
    for name, tokenizer in tokenizers.items():
        ids = tokenizer.tokenize(texts, add_end=True).to_tensor(tokenizer.padding_id)
        expected[name + "_ids"] = ids.numpy().tolist()
        back = tokenizer.detokenize(ids).numpy()
        expected[name + "_text"] = [text.decode() for text in back]
    result = subprocess.run(
        [sys.executable, "-c", READER, str(folder / "saved"), json.dumps(texts)],
        capture_output=True,
        text=True,
        cwd=folder,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1]), expected


def test_saved_model_in_a_fresh_process(trained, tmp_path):
    # Two SentencePiece models, which tensorflow_text could confuse, and the others.
    tokenizers = dict(trained)
    tokenizers["second"] = SentencePieceTokenizer.train(
        ["나는 학교에서 한국어를 배운다"] * 5, 290
    )
    outputs, expected = served_and_expected(tokenizers, TEXTS, tmp_path)
    assert expected["second_ids"] != expected["SentencePieceTokenizer_ids"]
    assert outputs["fresh"] == expected
    assert outputs["seeded"] == expected
    assert outputs["imported"] == []
