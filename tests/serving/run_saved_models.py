"""A script that runs SavedModels with only TensorFlow and tensorflow_text.

Usage: run_saved_models.py FILE. The file is a JSON list of requests
`[folder, signature, batch]`. A batch is a list of base64 texts or of lists of ids.
Prints a JSON object with the outputs and the imported modules of the library.
"""

import base64
import json
import sys

import tensorflow as tf


def has_only_core_ops(folder):
    with open(f"{folder}/non_core_ops.json", encoding="utf-8") as file:
        return json.load(file) == []


def to_tensor(batch):
    if not batch or isinstance(batch[0], str):
        return tf.constant([base64.b64decode(text) for text in batch], tf.string)
    return tf.constant(batch, tf.int32)


def to_json(value):
    if value.dtype == tf.string:
        return nested(lambda text: base64.b64encode(text).decode(), value)
    return value.numpy().tolist()


def nested(function, value):
    rows = value.numpy().tolist()
    if value.shape.rank == 1:
        return [function(text) for text in rows]
    return [[function(text) for text in row] for row in rows]


with open(sys.argv[1], encoding="utf-8") as file:
    requests = json.load(file)
folders = list(dict.fromkeys(folder for folder, _, _ in requests))
# SavedModels without other ops must load before tensorflow_text is imported.
loaded = {f: tf.saved_model.load(f) for f in folders if has_only_core_ops(f)}
import tensorflow_text  # noqa: E402, F401 (registers the ops)

loaded.update({f: tf.saved_model.load(f) for f in folders if f not in loaded})
outputs = []
for folder, signature, batch in requests:
    results = loaded[folder].signatures[signature](to_tensor(batch))
    outputs.append({name: to_json(value) for name, value in results.items()})
imported = [name for name in sys.modules if name.split(".")[0] == "keras_attn"]
print(json.dumps({"outputs": outputs, "imported": imported}))
