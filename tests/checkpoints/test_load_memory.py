"""Memory while loading, and half-precision weights."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from published import save_reference, torch, transformers

from keras_attn import checkpoints

PROJECT = pathlib.Path(__file__).parents[2]
MEASURE = """
import sys
import keras_attn
from keras import ops
from keras_attn import checkpoints

def status(name: str) -> None:
    lines = open("/proc/self/status").read().splitlines()
    return next(int(x.split()[1]) for x in lines if x.startswith(name)) * 1024

checkpoints.load(sys.argv[1])  # excludes the memory of a first call
open("/proc/self/clear_refs", "w").write("5")
before = status("VmRSS")
model = checkpoints.load(sys.argv[2])
peak = status("VmHWM") - before
print(peak / sum(4 * int(ops.size(w)) for w in model.weights))
"""


@pytest.mark.slow
@pytest.mark.subprocess
@pytest.mark.skipif(
    not pathlib.Path("/proc/self/clear_refs").exists(), reason="needs Linux"
)
def test_peak_memory(tmp_path: pathlib.Path) -> None:
    """Half of the weights are the token embedding, as in small published models."""
    sizes = {"hidden_size": 256, "num_attention_heads": 4, "num_hidden_layers": 12}
    for name, vocabulary_size in ("small", 50), ("large", 36_000):
        config = transformers.BertConfig(
            vocab_size=vocabulary_size, intermediate_size=1024, **sizes
        )
        save_reference(tmp_path / name, "BertModel", config)
    result = subprocess.run(
        [sys.executable, "-c", MEASURE, tmp_path / "small", tmp_path / "large"],
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert float(result.stdout.split()[-1]) < 1.3


@pytest.mark.every_backend
def test_bfloat16_weights(tmp_path: pathlib.Path) -> None:
    config = transformers.BertConfig(
        vocab_size=11,
        hidden_size=8,
        intermediate_size=9,
        num_attention_heads=2,
        num_hidden_layers=1,
        max_position_embeddings=7,
    )
    reference = save_reference(tmp_path / "float32", "BertModel", config)
    reference.to(torch.bfloat16).save_pretrained(tmp_path / "bfloat16")
    ids = np.array([[3, 4, 5]], "int32")
    model = checkpoints.load(tmp_path / "bfloat16", dtype="bfloat16")
    assert {str(w.dtype) for w in model.weights} == {"bfloat16"}
    checkpoints.save(model, tmp_path / "saved")
    reloaded = transformers.BertModel.from_pretrained(tmp_path / "saved")
    assert reloaded.dtype == torch.bfloat16
    for name, value in reference.state_dict().items():
        if "pooler" not in name:
            assert torch.equal(reloaded.state_dict()[name], value), name
    # By default, they are converted to Keras's default dtype.
    model = checkpoints.load(tmp_path / "bfloat16")
    assert {str(w.dtype) for w in model.weights} == {"float32"}
    assert model(ids).shape == (1, 3, 8)
