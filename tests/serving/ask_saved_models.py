"""Run in a fresh process: ask SavedModels, with TensorFlow and its text ops alone.

Usage: ask_saved_models.py FILE, a JSON list of `[folder, signature, batch]`; a batch
is a list of base64 texts or of lists of ids. Writes a JSON list of the answers, and
which modules of the library were imported.
"""

import base64
import json
import sys

import tensorflow as tf
import tensorflow_text  # noqa: F401 (registers the ops)


def tensor(batch):
    if isinstance(batch[0], str):
        return tf.constant([base64.b64decode(text) for text in batch])
    return tf.constant(batch, tf.int32)


def plain(value):
    if value.dtype == tf.string:
        return [base64.b64encode(text).decode() for text in value.numpy()]
    return value.numpy().tolist()


with open(sys.argv[1], encoding="utf-8") as file:
    questions = json.load(file)
loaded = {folder: tf.saved_model.load(folder) for folder, _, _ in questions}
answers = []
for folder, signature, batch in questions:
    found = loaded[folder].signatures[signature](tensor(batch))
    answers.append({name: plain(value) for name, value in found.items()})
imported = [name for name in sys.modules if name.split(".")[0] == "keras_attn"]
print(json.dumps({"answers": answers, "imported": imported}))
