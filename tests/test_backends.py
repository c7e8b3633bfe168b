"""The tests marked `every_backend`, run on JAX and on PyTorch in other processes.

Tests marked `on_pytorch` run on PyTorch only: JAX compiles each operation for each
shape, which takes long. Each case is a group of files in a process of its own, so that
two workers can run two cases at the same time.
"""

import functools
import os
import pathlib
import re
import subprocess
import sys

import keras
import pytest

TESTS = pathlib.Path(__file__).parent
LAYERS = [
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
    "layers/test_quantized_layers.py",
    "layers/test_mask_arguments.py",
    "layers/test_traced_lengths.py",
]
TRAINING = [
    "training/test_freeze.py",
    "training/test_class_weight.py",
    "training/test_layerwise_optimizer.py",
    "training/test_lora.py",
    "training/test_muon.py",
    "training/test_weight_decay.py",
]
# The longest group first. Each process takes ten seconds to start.
GROUPS = {
    "jax-decoding": ["decoding", "inspection", *TRAINING],
    "jax-models": ["ops", "checkpoints", "models"],
    "jax-layers": LAYERS,
    "torch": [
        *("ops", *LAYERS, "checkpoints", "inspection", "models", *TRAINING),
        "decoding",
    ],
}
MARKERS = {"jax": "every_backend", "torch": "every_backend or on_pytorch"}
# Fast compilation rather than fast programs. The older way of compiling fused
# operations takes half the time; a later version of XLA may not have the option.
FAST_XLA = "--xla_backend_optimization_level=0"
FASTER_XLA = f"{FAST_XLA} --xla_cpu_use_fusion_emitters=false"


@functools.cache
def xla_flags():
    """Return the flags that XLA has: it ends the process at one that it does not."""
    command = [sys.executable, "-c", "import jax; jax.numpy.zeros(1)"]
    environment = {**os.environ, "XLA_FLAGS": FASTER_XLA}
    result = subprocess.run(command, env=environment, capture_output=True)
    return FAST_XLA if result.returncode else FASTER_XLA


@pytest.mark.backend
@pytest.mark.slow
@pytest.mark.subprocess
@pytest.mark.parametrize("group", GROUPS)
def test_backend(group):
    backend = group.partition("-")[0]
    pytest.importorskip(backend)
    if keras.backend.backend() == backend:
        pytest.skip("the tests run on this backend already")
    environment = {**os.environ, "KERAS_BACKEND": backend}
    if backend == "jax":
        environment["XLA_FLAGS"] = xla_flags()
    command = [sys.executable, "-m", "pytest", "-q", "-m", MARKERS[backend]]
    command += ["-p", "no:cacheprovider", "-p", "no:xdist", "--maxfail", "10"]
    command += ["--durations", "10", *(str(TESTS / file) for file in GROUPS[group])]
    result = subprocess.run(
        command, env=environment, cwd=TESTS.parent, capture_output=True, text=True
    )
    print(result.stdout[-2000:])
    if result.returncode:
        pytest.fail(
            f"KERAS_BACKEND={backend} {' '.join(command[1:])}\n"
            f"{result.stdout[-12000:]}{result.stderr[-2000:]}",
            pytrace=False,
        )
    assert re.search(r"\d+ passed", result.stdout)


@pytest.mark.parametrize("backend", MARKERS)
def test_every_marked_file_is_in_one_group(backend):
    """A file with a marker that no group contains would not be run."""
    markers = MARKERS[backend].split(" or ")
    marked = {
        path
        for path in TESTS.rglob("test_*.py")
        if any(
            re.search(rf"pytest\.mark\.{marker}\b|on_every_backend\(", text)
            for text in [path.read_text(encoding="utf-8")]
            for marker in markers
        )
    }
    grouped = [
        path
        for group, files in GROUPS.items()
        if group.startswith(backend)
        for file in files
        for path in [TESTS / file, *(TESTS / file).glob("test_*.py")]
    ]
    assert marked <= set(grouped)
    assert len(grouped) == len(set(grouped))
