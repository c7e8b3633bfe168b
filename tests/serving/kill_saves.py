"""Kill saves and exports at random moments; `test_killed_saves.py` runs it.

Run it as `kill_saves.py KIND OVERWRITE FOLDER COUNT`, with one of the `KINDS`, 0 or 1,
and an empty folder. Each of COUNT processes is killed at a random moment of its save or
export. The last line of the output is the number of times that the new folder was at
the path afterwards.
"""

import json
import os
import pathlib
import random
import shutil
import signal
import sys
import time

import keras
import numpy as np
import tensorflow as tf
from safetensors.numpy import load_file, save_file

from keras_attn import _atomic_folder, checkpoints, serving, text
from keras_attn.serving.saved_model import non_core_ops

SIZE = 400  # ids of the vocabulary
CONFIG = {"model_type": "gpt2", "vocab_size": SIZE, "n_positions": 16, "n_embd": 64}
CONFIG |= {"n_layer": 0, "n_head": 2, "embd_pdrop": 0.1, "layer_norm_epsilon": 1e-5}
SHAPES = {"wte.weight": (SIZE, 64), "wpe.weight": (16, 64)}
SHAPES |= {"ln_f.weight": (64,), "ln_f.bias": (64,)}


def write_published(folder):
    """Write a GPT-2 without blocks, in the format of published models."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    tensors = {name: np.zeros(shape, "float32") for name, shape in SHAPES.items()}
    save_file(tensors, folder / "model.safetensors")


def prepare_save(folder):
    """Return a function from path and version that saves a model with this weight."""
    model = checkpoints.load(folder / "published")

    def save(path, version):
        for weight in model.weights:
            weight.assign(np.full(weight.shape, version))
        checkpoints.save(model, path, overwrite=True, max_shard_size=50_000)

    return save


def prepare_export(folder):
    """Return a function from path and version that exports a model with this weight."""
    tokenizer = text.WordTokenizer.train(["ab cd ef"])
    inputs = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(SIZE, 8)(inputs)
    model = keras.Model(inputs, keras.layers.GlobalAveragePooling1D()(x))

    def export(path, version):
        model.layers[1].embeddings.assign(np.full((SIZE, 8), version))
        serving.export_text_model(model, path, tokenizer, overwrite=True)

    return export


def saved_version(path):
    """Return the value of all weights of a complete folder that `save` has written."""
    shards = sorted(path.glob("*.safetensors"))
    assert json.loads((path / "config.json").read_text())["vocab_size"] == SIZE
    tensors = [tensor for shard in shards for tensor in load_file(shard).values()]
    assert len(tensors) == len(SHAPES)
    return {float(value) for tensor in tensors for value in np.unique(tensor)}


def exported_version(path):
    """Return the value of all weights of a complete SavedModel."""
    assert non_core_ops(path) == set()
    reader = tf.train.load_checkpoint(str(path / "variables" / "variables"))
    (name,) = (n for n, s in reader.get_variable_to_shape_map().items() if len(s) == 2)
    return set(np.unique(reader.get_tensor(name)).tolist())


KINDS = {
    "save": (prepare_save, saved_version),
    "export": (prepare_export, exported_version),
}


def version_at(path, version_of):
    """Return the version of a complete folder, or None if there is none."""
    if not path.exists():
        return None
    listed = json.loads((path / _atomic_folder.LIST).read_text())["files"]
    assert all((path / name).exists() for name in listed)
    (version,) = version_of(path)
    return version


def run(prepare, folder, path, version, seconds=None):
    """Write in a new process, and kill it after some seconds; return its duration."""
    reading, writing = os.pipe()
    process = os.fork()
    if not process:
        write = prepare(folder)
        os.write(writing, b"!")
        write(path, version)
        os._exit(0)
    os.close(writing)
    assert os.read(reading, 1) == b"!", "the process fails before the write"
    os.close(reading)
    start = time.monotonic()
    if seconds is not None:
        time.sleep(seconds)
        os.kill(process, signal.SIGKILL)
    status = os.waitpid(process, 0)[1]
    assert status == 0 or seconds is not None, "the process fails"
    return time.monotonic() - start


def main(kind, overwrite, folder, count):
    prepare, version_of = KINDS[kind]
    folder, generator = pathlib.Path(folder), random.Random(0)
    write_published(folder / "published")
    path, num_new = folder / "model", 0
    duration = run(prepare, folder, path, 1)
    assert version_at(path, version_of) == 1
    for version in range(2, 2 + int(count)):
        if overwrite == "0":
            shutil.rmtree(path, ignore_errors=True)
        old = version_at(path, version_of)
        run(prepare, folder, path, version, generator.uniform(0, 1.5 * duration))
        new = version_at(path, version_of)
        assert new in (old, version)
        num_new += new == version
    run(prepare, folder, path, 1)
    names = sorted(os.listdir(folder))
    assert names == ["model", "published"], names
    print(num_new)


if __name__ == "__main__":
    main(*sys.argv[1:])
