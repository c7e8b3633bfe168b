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
SNIPPET = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PARTS = [
    *("checkpoints", "decoding", "inspection", "layers", "models", "ops", "serving"),
    *("text", "training"),
]


def pyright(*arguments, folder=ROOT):
    """Return the parsed JSON output of pyright.

    `PYTHONPATH` lets it find the package, which an editable installation hides from it.
    """
    command = [sys.executable, "-m", "pyright", "--outputjson", *map(str, arguments)]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1",
    }
    result = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True
    )
    start = result.stdout.find("{")
    assert start >= 0, result.stdout + result.stderr
    return json.loads(result.stdout[start:])


def check(folder, *paths):
    """Return the errors of pyright's basic mode in the given paths, one per line.

    Args:
        folder: Folder for the configuration file.
        *paths: Files or folders to check.
    """
    config = {
        "include": [str(path) for path in paths],
        "extraPaths": [str(ROOT)],
        "typeCheckingMode": "basic",
        "pythonVersion": "3.11",
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(config))
    arguments = ["--pythonpath", sys.executable, "--project", folder]
    output = pyright(*arguments, folder=folder)
    assert output["summary"]["filesAnalyzed"] > 0
    return "\n".join(
        f"{d['file']}:{d['range']['start']['line'] + 1}: {d['message']}"
        for d in output["generalDiagnostics"]
        if d["severity"] == "error"
    )


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
def test_the_package_has_no_type_errors(tmp_path):
    errors = check(tmp_path, ROOT / "keras_attn")
    assert not errors, errors


@pytest.mark.slow
@pytest.mark.subprocess
def test_the_code_of_the_readme_has_no_type_errors(tmp_path):
    """One file, since later snippets use names of earlier ones."""
    snippets = SNIPPET.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(snippets) > 3
    file = tmp_path / "readme.py"
    file.write_text("\n".join(snippets), encoding="utf-8")
    errors = check(tmp_path, file)
    assert not errors, errors


@pytest.mark.slow
@pytest.mark.subprocess
def test_unknown_parts_are_errors_and_known_ones_complete(tmp_path):
    """`keras_attn/__init__.py` imports parts on first access, unseen by checkers."""
    file = tmp_path / "names.py"
    names = [*(f"{part}.__all__" for part in PARTS), "layer"]
    lines = [f"print(keras_attn.{name})" for name in names]
    file.write_text("\n".join(["import keras_attn", *lines]), encoding="utf-8")
    errors = check(tmp_path, file).splitlines()
    assert len(errors) == 1 and '"layer" is not a known attribute' in errors[0], errors


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
