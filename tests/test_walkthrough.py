"""The files and functions that docs/walkthrough.md names exist."""

import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[1]
TEXT = (ROOT / "docs/walkthrough.md").read_text(encoding="utf-8")
FILES = sorted(set(re.findall(r"\]\(\.\./(keras_attn/[\w/]+\.py)\)", TEXT)))
# Names in backticks that look like definitions of the package.
NAMES = sorted(
    set(re.findall(r"`([A-Za-z_]\w*\.[a-z_]\w+)`", TEXT))
    | set(re.findall(r"`([A-Z]\w+[a-z]\w*)`", TEXT))
    | set(re.findall(r"`([a-z]+_[a-z_]+)`", TEXT))
)
NOT_DEFINED_HERE = {"decoding.generate"}


def definitions():
    """Return the names of classes, functions and `Class.method`s of the package."""
    names = set()
    for path in (ROOT / "keras_attn").rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                names.add(node.name)
            if isinstance(node, ast.ClassDef):
                names.update(
                    f"{node.name}.{x.name}"
                    for x in node.body
                    if isinstance(x, ast.FunctionDef)
                )
    return names


@pytest.mark.parametrize("file", FILES)
def test_files_exist(file):
    assert (ROOT / file).is_file()


def test_names_exist():
    assert len(FILES) > 15 and len(NAMES) > 25
    assert sorted(set(NAMES) - definitions() - NOT_DEFINED_HERE) == []
