"""The tests marked so, again on JAX and on PyTorch: one process each."""

import os
import pathlib
import subprocess
import sys

import keras
import pytest

TESTS = pathlib.Path(__file__).parent
FILES = [
    "ops",
    "layers/test_every_layer.py",
    "layers/test_attention_values.py",
    "layers/test_attention_contracts.py",
    "layers/test_linear_self_attention.py",
    "layers/test_position_layers.py",
    "layers/test_heads_and_positions.py",
    "layers/test_rotary_position_embedding.py",
    "layers/test_token_embedding.py",
    "layers/test_step_by_step.py",
    "layers/test_single_attention.py",
    "layers/test_recurrent_layers.py",
    "layers/test_block_variants.py",
    "checkpoints",
    "inspection",
    "models",
    "training/test_freeze.py",
    "training/test_layerwise_optimizer.py",
    "training/test_lora.py",
    "decoding",
]
# PyTorch takes little time over what JAX compiles operation by operation.
MARKED = {"jax": "every_backend", "torch": "every_backend or on_pytorch"}
# JAX compiles each operation by itself: let it not take pains over them. The older way
# to compile what is fused takes half the time; a later XLA may not know of it.
QUICK_XLA = "--xla_backend_optimization_level=0"
QUICKER_XLA = f"{QUICK_XLA} --xla_cpu_use_fusion_emitters=false"


def quick_xla():
    """The flags, as many as there are: a process ends at one that XLA does not know."""
    command = [sys.executable, "-c", "import jax; jax.numpy.zeros(1)"]
    environment = {**os.environ, "XLA_FLAGS": QUICKER_XLA}
    tried = subprocess.run(command, env=environment, capture_output=True)
    return QUICK_XLA if tried.returncode else QUICKER_XLA


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_on(backend):
    pytest.importorskip(backend)
    if keras.backend.backend() == backend:
        pytest.skip("this very run is on it")
    environment = {**os.environ, "KERAS_BACKEND": backend}
    if backend == "jax":
        environment["XLA_FLAGS"] = quick_xla()
    command = [sys.executable, "-m", "pytest", "-q", "-m", MARKED[backend], "-x"]
    command += ["-p", "no:cacheprovider", *(str(TESTS / file) for file in FILES)]
    result = subprocess.run(
        command, env=environment, cwd=TESTS.parent, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
    assert " passed" in result.stdout
