"""Run in a fresh process: ask SavedModels, with TensorFlow and its text ops alone.

Usage: ask_saved_models.py FILE, a JSON list of `[folder, signature, batch]`; a batch
is a list of base64 texts or of lists of ids. Writes a JSON list of the answers, and
which modules of the library were imported.
"""

import base64
import json
import sys

import tensorflow as tf


def needs_nothing_more(folder):
    with open(f"{folder}/non_core_ops.json", encoding="utf-8") as file:
        return json.load(file) == []


def tensor(batch):
    if not batch or isinstance(batch[0], str):
        return tf.constant([base64.b64decode(text) for text in batch], tf.string)
    return tf.constant(batch, tf.int32)


def plain(value):
    if value.dtype == tf.string:
        return nested(lambda text: base64.b64encode(text).decode(), value)
    return value.numpy().tolist()


def nested(function, value):
    rows = value.numpy().tolist()
    if value.shape.rank == 1:
        return [function(text) for text in rows]
    return [[function(text) for text in row] for row in rows]


with open(sys.argv[1], encoding="utf-8") as file:
    questions = json.load(file)
folders = list(dict.fromkeys(folder for folder, _, _ in questions))
# Those that say so are loaded by TensorFlow alone.
loaded = {f: tf.saved_model.load(f) for f in folders if needs_nothing_more(f)}
import tensorflow_text  # noqa: E402, F401 (registers the ops)

loaded.update({f: tf.saved_model.load(f) for f in folders if f not in loaded})
answers = []
for folder, signature, batch in questions:
    found = loaded[folder].signatures[signature](tensor(batch))
    answers.append({name: plain(value) for name, value in found.items()})
imported = [name for name in sys.modules if name.split(".")[0] == "keras_attn"]
print(json.dumps({"answers": answers, "imported": imported}))
