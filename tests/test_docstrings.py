"""The examples in docstrings, run with the `doctest` module and its default options."""

import doctest
import importlib
import pathlib

import keras
import pytest

PACKAGE = pathlib.Path(__file__).parents[1] / "keras_attn"


def modules_with_examples():
    """Yield the names of modules whose source has a doctest prompt."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if ">>> " in path.read_text(encoding="utf-8"):
            parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = list(modules_with_examples())
CASES = [
    pytest.param(name, marks=pytest.mark.export if ".export_" in name else ())
    for name in MODULES
]


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="the outputs are of TensorFlow"
)
@pytest.mark.parametrize("name", CASES)
def test_examples(name, tmp_path, monkeypatch, capsys):
    module = importlib.import_module(name)
    monkeypatch.chdir(tmp_path)
    results = doctest.testmod(module)
    assert results.failed == 0, capsys.readouterr().out
    assert results.attempted > 0
    assert list(tmp_path.iterdir()) == [], "an example leaves files behind"


def test_modules_with_examples_are_found():
    assert "keras_attn.layers.transformer.decoder" in MODULES
    assert len(MODULES) > 20
