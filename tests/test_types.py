"""The types of the package and of the README's code, checked with pyright."""

import ast
import json
import os
import pathlib
import re
import subprocess
import sys
import tomllib

import pytest

ROOT = pathlib.Path(__file__).parents[1]
MIN_COMPLETENESS = 0.95
# Keras has no annotations: the type of an argument is inferred from its default value,
# and a loaded object has the type of anything that can be loaded.
KERAS_ERROR = re.compile(
    r'to parameter "(verbose|jit_compile)" of type "str" in function "(fit|compile)"'
    r'|Argument of type "Unknown . Any . object . FunctionType . None"'
)
SNIPPET = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PARTS = [
    *("checkpoints", "decoding", "inspection", "layers", "models", "ops", "serving"),
    *("text", "training"),
]


def pyright(*arguments, folder=ROOT):
    """Return the parsed JSON output of pyright, run in a folder.

    `PYTHONPATH` lets it find the package, which an editable installation hides from it.
    """
    command = [sys.executable, "-m", "pyright", "--outputjson"]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1",
    }
    result = subprocess.run(
        [*command, "--pythonpath", sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    start = result.stdout.find("{")
    assert start >= 0, result.stdout + result.stderr
    return json.loads(result.stdout[start:])


def errors(output):
    """Return the errors in the output of pyright."""
    assert output["summary"]["filesAnalyzed"] > 0
    return [
        f"{d['file']}:{d['range']['start']['line'] + 1}: {d['message']}"
        for d in output["generalDiagnostics"]
        if d["severity"] == "error"
    ]


def errors_in_code(code, folder):
    """Return the errors of basic mode in a script, for which files are written."""
    config = {"include": ["script.py"], "typeCheckingMode": "basic"}
    (folder / "pyrightconfig.json").write_text(json.dumps(config))
    (folder / "script.py").write_text(code, encoding="utf-8")
    return errors(pyright(folder=folder))


@pytest.mark.slow
@pytest.mark.subprocess
def test_the_public_names_are_typed():
    arguments = ["--verifytypes", "keras_attn", "--ignoreexternal"]
    report = pyright(*arguments)["typeCompleteness"]
    unknown = [
        f"{symbol['name']}: {diagnostic['message']}"
        for symbol in report["symbols"]
        if symbol["isExported"] and not symbol["isTypeKnown"]
        for diagnostic in symbol["diagnostics"]
    ]
    assert sum(report["exportedSymbolCounts"].values()) > 100
    assert report["completenessScore"] >= MIN_COMPLETENESS, "\n".join(unknown)


@pytest.mark.slow
@pytest.mark.subprocess
def test_the_package_has_no_type_errors():
    """The mode is in `pyproject.toml`."""
    found = errors(pyright())
    assert not found, "\n".join(found)


@pytest.mark.slow
@pytest.mark.subprocess
def test_the_code_of_the_readme_has_no_type_errors(tmp_path):
    """One script, since later snippets use names of earlier ones."""
    snippets = SNIPPET.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(snippets) > 3
    found = errors_in_code("\n".join(snippets), tmp_path)
    found = [error for error in found if not KERAS_ERROR.search(error)]
    assert not found, "\n".join(found)


@pytest.mark.slow
@pytest.mark.subprocess
def test_a_wrong_part_is_an_error_and_each_part_is_known(tmp_path):
    """`keras_attn/__init__.py` imports parts on first access, unseen by checkers."""
    names = [*(f"{part}.__all__" for part in PARTS), "layers.TransformerEncoder"]
    lines = [f"print(keras_attn.{name})" for name in [*names, "layer"]]
    (error,) = errors_in_code("\n".join(["import keras_attn", *lines]), tmp_path)
    assert '"layer" is not a known attribute' in error


def test_type_checkers_import_every_part():
    tree = ast.parse((ROOT / "keras_attn/__init__.py").read_text(encoding="utf-8"))
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "keras_attn"
        for alias in node.names
    }
    (names,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and node.targets[0].id == "__all__"
    )
    assert imported == set(names) == set(PARTS)


def test_the_marker_file_is_installed():
    assert (ROOT / "keras_attn/py.typed").exists()
    with open(ROOT / "pyproject.toml", "rb") as file:
        setuptools = tomllib.load(file)["tool"]["setuptools"]
    assert "py.typed" in setuptools["package-data"]["keras_attn"]
