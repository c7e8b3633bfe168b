"""Run in a fresh process: load saved models and write what they give.

Usage: load_saved_layers.py FOLDER, with NAME.keras and NAME.npz for each model.
"""

import pathlib
import sys

import keras
import numpy as np

import keras_attn  # noqa: F401 (registers the layers)

folder = pathlib.Path(sys.argv[1])
for path in sorted(folder.glob("*.keras")):
    model = keras.saving.load_model(path)
    with np.load(path.with_suffix(".npz")) as inputs:
        output = model(dict(inputs))
    np.save(path.with_suffix(".npy"), keras.ops.convert_to_numpy(output))
