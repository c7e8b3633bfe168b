"""What `import keras_attn` brings in, and what it can do without."""

import os
import pathlib
import subprocess
import sys

import pytest

import keras_attn

ROOT = pathlib.Path(__file__).parents[1]

# Makes some modules impossible to import, and notes who tries.
WITHOUT = """
import builtins, sys
ABSENT = ["tensorflow", "tensorflow_text", "keras_hub", "keras_nlp"]
sys.modules.update(dict.fromkeys(ABSENT))
import keras

TRIED, old_import = [], builtins.__import__
def noting_import(name, *args, **kwargs):
    if name.split(".")[0] in ABSENT:
        TRIED.append(name)
    return old_import(name, *args, **kwargs)
builtins.__import__ = noting_import
"""
WITHOUT_TENSORFLOW = (
    WITHOUT
    + """
import keras_attn
from keras_attn import decoding, inspection, layers, models, ops, training
assert not TRIED, TRIED
assert "keras_attn.text" not in sys.modules

import numpy as np
ids = keras.Input((None,), dtype="int32")
x = layers.TokenEmbedding(11, 8)(ids)
x = layers.TransformerEncoder(8, 2)(layers.SinusoidalPositionEmbedding()(x))
output = keras.Model(ids, x)(np.array([[1, 2, 0]], "int32"))
assert np.isfinite(keras.ops.convert_to_numpy(output)).all()
assert models.transformer_translator(
    11, num_layers=1, hidden_dim=8, intermediate_dim=8, num_heads=2
).count_params() > 0
assert not TRIED, TRIED
try:
    keras_attn.text
except ModuleNotFoundError as error:
    assert error.name.startswith("tensorflow"), error
else:
    raise AssertionError("text without TensorFlow?")
"""
)
LAZY = """
import keras, sys
before = set(sys.modules)
import keras_attn
new = {name.split(".")[0] for name in set(sys.modules) - before}
assert new == {"keras_attn"}, new
assert "keras_attn.text" not in sys.modules
assert "keras_attn.serving" not in sys.modules
keras_attn.text.load_tokenizer
assert "tensorflow_text" in sys.modules
assert "keras_hub" not in sys.modules
"""


def run(code, backend):
    environment = {**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


@pytest.mark.slow
@pytest.mark.subprocess
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_works_without_tensorflow(backend):
    pytest.importorskip(backend)
    run(WITHOUT_TENSORFLOW, backend)


@pytest.mark.slow
@pytest.mark.subprocess
def test_text_is_loaded_when_touched():
    run(LAZY, "tensorflow")


PUBLIC = {
    "ops": "kv_cache dot_product_attention masks sinusoids",
    "layers": "MultiHeadAttention MultiHeadSelfAttention CrossAttention "
    "SinusoidalPositionEmbedding PositionEmbedding TokenEmbedding FeedForward "
    "TransformerEncoder TransformerDecoder",
    "models": "transformer_translator",
    "training": "InverseSquareRootSchedule MaskedCrossentropy MaskedAccuracy "
    "BleuCallback",
    "decoding": "step_model generate GreedySearch",
    "inspection": "attention_maps plot_attention",
    "text": "SentencePieceTokenizer WordPieceTokenizer WordTokenizer "
    "CharacterTokenizer translation_dataset",
    "serving": "export_translator",
    "checkpoints": "load save from_keras_layer",
}


@pytest.mark.parametrize("part", PUBLIC)
def test_public_names(part):
    module = getattr(keras_attn, part)
    assert set(PUBLIC[part].split()) <= set(module.__all__)
    for name in module.__all__:
        assert getattr(module, name) is not None
    assert len(set(module.__all__)) == len(module.__all__)


def test_the_face_lists_its_parts():
    assert set(keras_attn.__all__) == set(PUBLIC)
    assert set(PUBLIC) <= set(dir(keras_attn))
    with pytest.raises(AttributeError, match="no attribute 'layer'"):
        _ = keras_attn.layer
