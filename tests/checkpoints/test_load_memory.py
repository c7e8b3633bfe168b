"""Loading holds little more than the weights, and keeps half precision if asked."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from published import published, torch, transformers

from keras_attn import checkpoints

PROJECT = pathlib.Path(__file__).parents[2]
MEASURE = """
import sys
import keras_attn
from keras import ops
from keras_attn import checkpoints

def status(name):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(x.split()[1]) for x in lines if x.startswith(name)) * 1024

checkpoints.load(sys.argv[1])  # what a first call of anything takes
open("/proc/self/clear_refs", "w").write("5")
before = status("VmRSS")
model = checkpoints.load(sys.argv[2])
peak = status("VmHWM") - before
print(peak / sum(4 * int(ops.size(w)) for w in model.weights))
"""


@pytest.mark.skipif(
    not pathlib.Path("/proc/self/clear_refs").exists(), reason="needs Linux"
)
def test_the_peak_of_memory(tmp_path):
    """Half of the weights are one table, as in small published models."""
    sizes = {"hidden_size": 256, "num_attention_heads": 4, "num_hidden_layers": 12}
    for name, words in ("small", 50), ("large", 36_000):
        config = transformers.BertConfig(
            vocab_size=words, intermediate_size=1024, **sizes
        )
        published(tmp_path / name, "BertModel", config)
    result = subprocess.run(
        [sys.executable, "-c", MEASURE, tmp_path / "small", tmp_path / "large"],
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert float(result.stdout.split()[-1]) < 1.3


@pytest.mark.every_backend
def test_bfloat16_stays_bfloat16(tmp_path):
    config = transformers.BertConfig(
        vocab_size=11,
        hidden_size=8,
        intermediate_size=9,
        num_attention_heads=2,
        num_hidden_layers=1,
        max_position_embeddings=7,
    )
    model = published(tmp_path / "single", "BertModel", config).to(torch.bfloat16)
    model.save_pretrained(tmp_path / "half")
    ids = np.array([[3, 4, 5]], "int32")
    ours = checkpoints.load(tmp_path / "half", dtype="bfloat16")
    assert {str(w.dtype) for w in ours.weights} == {"bfloat16"}
    checkpoints.save(ours, tmp_path / "back")
    back = transformers.BertModel.from_pretrained(tmp_path / "back")
    assert back.dtype == torch.bfloat16
    for name, value in model.state_dict().items():
        if "pooler" not in name:
            assert torch.equal(back.state_dict()[name], value), name
    # Else they are what they are, in Keras's dtype.
    wide = checkpoints.load(tmp_path / "half")
    assert {str(w.dtype) for w in wide.weights} == {"float32"}
    assert wide(ids).shape == (1, 3, 8)
