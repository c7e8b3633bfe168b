"""Who may import whom, read off the source with `ast`."""

import ast
import graphlib
import pathlib
import re

import pytest

PACKAGE = pathlib.Path(__file__).parents[1] / "keras_attn"

# part -> parts it may import, as the table in docs/architecture.md
ARROWS = {
    "ops": set(),
    "text": set(),
    "layers": {"ops"},
    "training": {"_graph", "ops"},
    "models": {"layers", "ops"},
    "_graph": set(),
    "decoding": {"_graph", "layers", "ops"},
    "inspection": {"_graph", "layers", "ops"},
    "checkpoints": {"_atomic_folder", "layers", "models"},
    "serving": {"_atomic_folder", "_graph", "decoding", "text"},
    "_atomic_folder": set(),
    "_keras_internals": set(),
    "_types": set(),
    # The face: these two at once, the rest when touched.
    "__init__": {"checkpoints", "layers", "ops", "training"},
}
USES_KERAS_INTERNALS = {
    *(
        "layers",
        "_graph",
        "decoding",
        "inspection",
        "checkpoints",
        "models",
        "training",
    ),
}
USES_TENSORFLOW = {"text", "serving"}
# Frameworks that stand behind Keras: outside `USES_TENSORFLOW` inside functions only,
# and only in these files, which say what to do on each backend.
BACKENDS = {"tensorflow", "jax", "torch"}
KNOWS_BACKENDS = {
    "decoding/compile.py": {"tensorflow", "jax", "torch"},
    "inspection/head_importance.py": {"tensorflow", "jax", "torch"},
    "ops/attention/dot_product.py": {"jax"},
}
FORBIDDEN = {"keras_hub", "keras_nlp", "tf_keras"}


def imports(tree, package):
    """The modules a file imports.

    Args:
        tree: the parsed file.
        package: dotted name of the package the file is in.

    Yields:
        Pairs of a dotted module name and whether it is imported inside a function.
    """
    inside = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            inside.update(map(id, ast.walk(node)))
    # Imports for type checkers only do not happen.
    unexecuted = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            unexecuted.update(id(x) for line in node.body for x in ast.walk(line))
    for node in ast.walk(tree):
        if id(node) in unexecuted:
            continue
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")
                base = ".".join(
                    [*parts[: len(parts) - node.level + 1], *base.split(".")]
                ).rstrip(".")
            names = [f"{base}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and _is_import_call(node.func):
            names = [
                argument.value
                for argument in node.args
                if isinstance(argument, ast.Constant)
            ]
        elif isinstance(node, ast.Attribute):
            # `import keras` and then `keras.src.something`.
            value = node.value
            if isinstance(value, ast.Name) and value.id in ("keras", "keras_attn"):
                names = [f"{value.id}.{node.attr}"]
        for name in names:
            yield name, id(node) in inside


def _is_import_call(function):
    name = getattr(function, "attr", getattr(function, "id", ""))
    return name in ("import_module", "__import__")


def violations(path, source):
    """What a file imports and may not.

    Args:
        path: of the file, relative to the package.
        source: its text.

    Returns:
        A list of sentences.
    """
    parts = pathlib.PurePosixPath(path).with_suffix("").parts
    part = parts[0]
    package = ".".join(["keras_attn", *parts[:-1]])
    found = []
    if part not in ARROWS:
        return [f"{path} belongs to no part of the table"]
    for name, is_inside in imports(ast.parse(source), package):
        top, *rest = name.split(".")
        where = f"{path} imports {name}"
        if top == "keras_attn" and rest:
            target = rest[0]
            if target == "_types":  # annotations only
                continue
            if target == "_keras_internals":
                if part not in USES_KERAS_INTERNALS:
                    found.append(where)
            elif target in ARROWS and target not in {part, *ARROWS[part]}:
                found.append(where)
        elif top == "keras":
            if rest[:1] == ["src"] and part != "_keras_internals":
                found.append(where)
        elif top in FORBIDDEN:
            found.append(where)
        elif top == "tensorflow_text":
            if part not in USES_TENSORFLOW:
                found.append(where)
        elif top in BACKENDS:
            free = part in USES_TENSORFLOW and top == "tensorflow"
            if not free and (top not in KNOWS_BACKENDS.get(path, ()) or not is_inside):
                found.append(where)
    return found


FILES = sorted(str(p.relative_to(PACKAGE).as_posix()) for p in PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES)
def test_imports(path):
    assert violations(path, (PACKAGE / path).read_text(encoding="utf-8")) == []


def test_the_documents_say_the_same():
    """Rows such as "| `decoding`, `inspection` | `graph`, `layers`, `ops` |"."""
    text = (PACKAGE.parent / "docs/architecture.md").read_text(encoding="utf-8")
    table = {}
    for row in re.findall(r"^\| (`.*?) \| (.*) \|$", text, re.MULTILINE):
        parts, targets = (re.findall(r"`(\w+)`", cell) for cell in row)
        table.update({part: set(targets) for part in parts if part in ARROWS})
    assert table == {part: ARROWS[part] for part in table}
    assert set(ARROWS) - set(table) <= {
        "__init__",
        "_atomic_folder",
        "_keras_internals",
        "_types",
    }


def test_the_walk_sees_the_package():
    assert {
        "__init__.py",
        "_graph/functional.py",
        "layers/attention/multi_head_attention.py",
    } <= set(FILES)
    seen = [
        name
        for path in FILES
        for name, _ in imports(
            ast.parse((PACKAGE / path).read_text(encoding="utf-8")), "keras_attn"
        )
    ]
    assert "keras_attn.ops.masks" in seen and "keras.ops" in seen


BAD = {
    "an upward arrow": ("ops/new.py", "from keras_attn.layers import FeedForward"),
    "a sideways arrow": ("layers/new.py", "import keras_attn.training.masked"),
    "from the face": ("training/new.py", "from keras_attn import layers"),
    "relative": ("ops/new.py", "from ..layers import feed_forward"),
    "relative, of a package": ("ops/new.py", "from .. import models"),
    "in a function": ("_graph/new.py", "def f():\n    from keras_attn import layers"),
    "by name": ("ops/new.py", "import importlib as i\ni.import_module('keras_hub')"),
    "by dunder": ("layers/new.py", "__import__('keras_attn.decoding')"),
    "through the face": ("ops/new.py", "import keras_attn\nkeras_attn.models"),
    "private Keras": ("layers/new.py", "from keras.src.backend import get_keras_mask"),
    "private Keras, renamed": ("layers/new.py", "from keras import src"),
    "private Keras, dotted": ("ops/new.py", "import keras\nx = keras.src.backend"),
    "internals": ("ops/new.py", "from keras_attn import _keras_internals"),
    "tensorflow": ("layers/new.py", "import tensorflow as tf"),
    "tensorflow in a function": ("ops/new.py", "def f():\n    import tensorflow"),
    "tensorflow at the top": ("decoding/compile.py", "import tensorflow as tf"),
    "tensorflow_text": ("decoding/new.py", "import tensorflow_text"),
    "keras_hub": ("text/new.py", "from keras_hub.layers import TransformerEncoder"),
    "keras_nlp": ("decoding/new.py", "def f():\n    import keras_nlp"),
    "torch": ("training/new.py", "import torch.nn"),
    "a new part": ("utils/new.py", ""),
    "the face": ("__init__.py", "from keras_attn import text"),
}


@pytest.mark.parametrize("bad", BAD)
def test_the_walk_finds(bad):
    path, source = BAD[bad]
    assert len(violations(path, source)) == 1


GOOD = {
    "downward": (
        "decoding/new.py",
        "from keras_attn.layers.transformer.residual import residual",
    ),
    "within": ("ops/new.py", "from keras_attn.ops.masks import Span"),
    "relative": ("ops/new.py", "from .masks import Span"),
    "inside a function": (
        "decoding/compile.py",
        "def f():\n    import tensorflow as tf",
    ),
    "tensorflow": ("text/new.py", "import tensorflow as tf\nimport tensorflow_text"),
    "public Keras": ("ops/new.py", "import keras\nfrom keras import ops\nkeras.Input"),
    "internals": (
        "_graph/new.py",
        "from keras_attn._keras_internals import recorded_calls",
    ),
}


@pytest.mark.parametrize("good", GOOD)
def test_the_walk_lets_pass(good):
    assert violations(*GOOD[good]) == []


PARTS = sorted({path.split("/")[0] for path in FILES if "/" in path})


def import_graph(sources):
    """Return the imports among modules, those inside functions included.

    Args:
        sources: Dict from the path of each file, relative to the package, to its text.

    Returns:
        A dict from dotted module names to the sets of modules they import.
    """
    names = {
        path: f"keras_attn.{path.removesuffix('.py')}".replace("/", ".")
        for path in sources
    }
    modules = {name.removesuffix(".__init__") for name in names.values()}
    graph = {}
    for path, name in names.items():
        targets = graph[name.removesuffix(".__init__")] = set()
        for target, _ in imports(ast.parse(sources[path]), name.rpartition(".")[0]):
            # `from module import name`: drop names that are not modules.
            while target and target not in modules:
                target = target.rpartition(".")[0]
            targets.update({target} & modules)
    return graph


def import_cycle(graph):
    """Return the modules of one import cycle, or None."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return None


@pytest.mark.parametrize("part", PARTS)
def test_no_import_cycles(part):
    paths = [path for path in FILES if path.startswith(f"{part}/")]
    sources = {path: (PACKAGE / path).read_text(encoding="utf-8") for path in paths}
    assert import_cycle(import_graph(sources)) is None


@pytest.mark.parametrize("code", ["{}", "def f():\n    {}"])
def test_import_cycles_are_detected(code):
    sources = {
        "text/__init__.py": "from keras_attn.text.a import A",
        "text/a.py": "from .data import b",
        "text/data/__init__.py": "",
        "text/data/b.py": code.format("from keras_attn.text import a"),
    }
    cycle = {"keras_attn.text.a", "keras_attn.text.data.b"}
    assert set(import_cycle(import_graph(sources))) == cycle
    sources["text/data/b.py"] = "import keras\nfrom keras_attn.ops import masks"
    assert import_cycle(import_graph(sources)) is None
