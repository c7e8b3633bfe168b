"""Every layer saved in a `.keras` file and loaded in a fresh process."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from harness import CASES
from tensors import array, fill_weights

pytestmark = [pytest.mark.slow, pytest.mark.subprocess]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """For each case, the output before saving and the one after loading."""
    folder = tmp_path_factory.mktemp("saved")
    expected = {}
    for name, case in CASES.items():
        model = case.model(case.make())
        fill_weights(model)
        arrays = case.arrays()
        expected[name] = array(model(arrays))
        model.save(folder / f"{name}.keras")
        np.savez(folder / f"{name}.npz", **arrays)
    script = pathlib.Path(__file__).with_name("load_saved_layers.py")
    root = pathlib.Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    subprocess.run([sys.executable, script, folder], check=True, env=environment)
    return {name: (expected[name], np.load(folder / f"{name}.npy")) for name in CASES}


@pytest.mark.parametrize("name", CASES)
def test_a_loaded_model_gives_the_same(outputs, name):
    before, after = outputs[name]
    np.testing.assert_allclose(after, before, rtol=1e-6, atol=1e-6)
