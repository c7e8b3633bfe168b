"""The memory that a cache takes: what its shape says, and the process no more."""

import pathlib
import resource

import keras
import pytest

from keras_attn import models
from keras_attn.decoding import step_model

ROWS, LENGTH, LAYERS, WIDTH = 64, 2000, 2, 64
# Keys and values in float32, and one bool for each position of each layer.
EXPECTED = LAYERS * ROWS * LENGTH * (2 * WIDTH * 4 + 1)


def resident_bytes():
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


@pytest.fixture(scope="module")
def step():
    model = models.causal_language_model(
        11, LAYERS, hidden_dim=WIDTH, intermediate_dim=8, num_heads=4
    )
    return step_model(model, LENGTH, validate=False)


def test_bytes(step):
    leaves = keras.tree.flatten(step.empty_cache(1))
    size = sum(keras.ops.convert_to_numpy(leaf).nbytes for leaf in leaves)
    assert size * ROWS == EXPECTED


@pytest.mark.skipif(
    not pathlib.Path("/proc/self/statm").exists(), reason="no /proc on this system"
)
def test_growth_of_the_process(step):
    keras.tree.map_structure(keras.ops.convert_to_numpy, step.empty_cache(1))
    before = resident_bytes()
    cache = step.empty_cache(ROWS)
    # What was only promised by the system is not resident.
    total = sum(float(keras.ops.sum(leaf)) for leaf in _floats(cache))
    growth = resident_bytes() - before
    assert total == 0.0
    # Less if the process reuses memory that earlier tests have freed.
    assert growth < 1.1 * EXPECTED


def _floats(cache):
    leaves = keras.tree.flatten(cache)
    return [leaf for leaf in leaves if keras.backend.is_float_dtype(leaf.dtype)]
