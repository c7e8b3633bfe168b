"""Limits on the structure of the package, checked on its syntax trees with `ast`."""

import ast
import pathlib

import pytest

PACKAGE = pathlib.Path(__file__).parents[1] / "keras_attn"
MAX_ANCESTORS = 3
MAX_POSITIONAL_PARAMETERS = 14
MAX_BODY_LINES = 60
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
PUBLIC_DUNDERS = {"__init__", "__new__", "__call__"}


def module_name(path):
    """Return the dotted name of a module from its path relative to the package."""
    parts = ["keras_attn", *pathlib.PurePosixPath(path).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def ancestors(trees):
    """Return the ancestors of each class that are defined in the package.

    Args:
        trees: Dict from the path of each module, relative to the package, to its
            syntax tree.

    Returns:
        A dict from `(module, class)` to the set of such pairs. A name that is imported
        is followed to the module that defines it.
    """
    bases, imported = {}, {}
    for path, tree in trees.items():
        module = module_name(path)
        package = module if path.endswith("__init__.py") else module.rpartition(".")[0]
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                bases[module, node.name] = [ast.unparse(base) for base in node.bases]
            elif isinstance(node, ast.ImportFrom):
                source = node.module or ""
                if node.level:
                    parts = package.split(".")
                    source = ".".join(
                        [*parts[: len(parts) - node.level + 1], *source.split(".")]
                    ).rstrip(".")
                for alias in node.names:
                    imported[module, alias.asname or alias.name] = source, alias.name
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.asname:
                        imported[module, alias.asname] = alias.name, None

    def resolve(module, dotted):
        """Return the `(module, class)` of a base, or None for one of a library."""
        # A subscript such as `Generic[T]` has no class of the package before it.
        first, _, rest = dotted.partition("[")[0].partition(".")
        for _ in range(10):
            if not rest and (module, first) in bases:
                return module, first
            if (module, first) not in imported:
                return None
            source, name = imported[module, first]
            if name and not rest:
                module, first = source, name
                continue
            module = f"{source}.{name}" if name else source
            first, _, rest = rest.partition(".")
        return None

    result = {}

    def visit(key):
        if key not in result:
            result[key] = set()
            for base in bases[key]:
                parent = resolve(key[0], base)
                if parent is not None and parent != key:
                    result[key] |= {parent, *visit(parent)}
        return result[key]

    for key in bases:
        visit(key)
    return result


def too_many_ancestors(trees):
    return [
        f"{module}.{name} has {len(found)} ancestors: {sorted(c for _, c in found)}"
        for (module, name), found in ancestors(trees).items()
        if len(found) > MAX_ANCESTORS
    ]


def is_dataclass(node):
    """Return whether a class has a constructor with positional fields."""
    if any(ast.unparse(base).endswith("NamedTuple") for base in node.bases):
        return True
    return any(
        "dataclass" in text and "kw_only=True" not in text
        for text in map(ast.unparse, node.decorator_list)
    )


def large_constructors(path, tree):
    """Return the constructors with too many parameters before a `*`."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef):
            continue
        count = 0
        if is_dataclass(node):
            count = sum(isinstance(child, ast.AnnAssign) for child in node.body)
        for child in node.body:
            if isinstance(child, FUNCTIONS) and child.name == "__init__":
                arguments = child.args
                count = len(arguments.posonlyargs + arguments.args) - 1
        if count > MAX_POSITIONAL_PARAMETERS:
            found.append(f"{path}:{node.lineno} {node.name} has {count}")
    return found


def long_functions(path, tree):
    """Return the functions whose bodies, without docstrings, have too many lines."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS):
            body = node.body[ast.get_docstring(node) is not None :]
            lines = body[-1].end_lineno - body[0].lineno + 1 if body else 0
            if lines > MAX_BODY_LINES:
                found.append(f"{path}:{node.lineno} {node.name} has {lines} lines")
    return found


def unannotated(path, tree):
    """Return the public functions and constructors that lack annotations.

    Functions inside functions are private. So are names with a leading underscore.
    """
    found = []

    def check(node, is_method):
        static = any(ast.unparse(d) == "staticmethod" for d in node.decorator_list)
        parameters = node.args.posonlyargs + node.args.args
        parameters = parameters[is_method and not static :] + node.args.kwonlyargs
        parameters += filter(None, (node.args.vararg, node.args.kwarg))
        missing = [p.arg for p in parameters if p.annotation is None]
        missing += ["return"] * (node.returns is None)
        if missing:
            found.append(f"{path}:{node.lineno} {node.name}: {', '.join(missing)}")

    def visit(body, is_class):
        for node in body:
            if isinstance(node, ast.ClassDef):
                visit(node.body, True)
            elif isinstance(node, FUNCTIONS):
                if not node.name.startswith("_") or node.name in PUBLIC_DUNDERS:
                    check(node, is_class)
            elif isinstance(node, (ast.If, ast.Try)):
                visit(node.body, is_class)

    visit(tree.body, False)
    return found


def without_docstring(path, tree):
    return [path] if not ast.get_docstring(tree) else []


CHECKS = [large_constructors, long_functions, unannotated, without_docstring]


def parse(sources):
    return {path: ast.parse(source) for path, source in sources.items()}


@pytest.fixture(scope="module")
def trees():
    paths = {p.relative_to(PACKAGE).as_posix(): p for p in PACKAGE.rglob("*.py")}
    assert "layers/__init__.py" in paths
    return parse({name: paths[name].read_text("utf-8") for name in sorted(paths)})


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_package(check, trees):
    found = [line for path, tree in trees.items() for line in check(path, tree)]
    assert not found, "\n".join(found)


def test_ancestors(trees):
    found = too_many_ancestors(trees)
    assert not found, "\n".join(found)


def test_ancestors_are_followed_through_imports():
    trees = parse(
        {
            "ops/a.py": "class A: ...\nclass B(A): ...",
            "ops/__init__.py": "from keras_attn.ops.a import B as Base",
            "layers/c.py": "from keras_attn import ops\nclass C(ops.Base): ...",
            "layers/d.py": "import keras\nfrom .c import C\n"
            "class D(C, keras.layers.Layer): ...\nclass E(D): ...",
            "layers/f.py": "from .d import E as F\nclass G(F): ...",
        }
    )
    found = {name: {c for _, c in up} for (_, name), up in ancestors(trees).items()}
    assert found["C"] == {"A", "B"}
    assert found["D"] == {"A", "B", "C"}
    assert found["G"] == {"A", "B", "C", "D", "E"}
    assert len(too_many_ancestors(trees)) == 2


FIFTEEN = ", ".join(f"p{i}: int" for i in range(15))
FIELDS = "\n    ".join(f"p{i}: int" for i in range(15))
BODY = "\n    x = 1" * 61
BAD = [
    (large_constructors, f"class A:\n def __init__(self, {FIFTEEN}) -> None: ..."),
    (large_constructors, f"@dataclasses.dataclass\nclass A:\n    {FIELDS}"),
    (large_constructors, f"class A(typing.NamedTuple):\n    {FIELDS}"),
    (long_functions, f'def f():\n    """Do."""{BODY}'),
    (long_functions, f"class A:\n  def f(self):{BODY}"),
    (unannotated, "def f(x): return x"),
    (unannotated, "def f(x: int): return x"),
    (unannotated, "def f(x) -> int: return x"),
    (unannotated, "def f(*args) -> int: return x"),
    (unannotated, "def f(*, x) -> int: return x"),
    (unannotated, "class A:\n def __init__(self): ..."),
    (unannotated, "class A:\n @staticmethod\n def f(x) -> int: ..."),
    (unannotated, "class _A:\n def f(self, x) -> int: ..."),
    (without_docstring, "x = 1"),
]
GOOD = [
    (large_constructors, f"class A:\n def __init__(self, *, {FIFTEEN}) -> None: ..."),
    (large_constructors, f"@dataclass(kw_only=True)\nclass A:\n    {FIELDS}"),
    (long_functions, f"def f():{BODY[:-10]}"),
    (unannotated, "def f(x: int, *args: int, **kwargs: int) -> int: return x"),
    (unannotated, "class A:\n def __init__(self, x: int) -> None: ..."),
    (unannotated, "def _f(x): return x"),
    (unannotated, "def f() -> None:\n def g(x): ..."),
    (without_docstring, '"""A module."""'),
]


@pytest.mark.parametrize("check, source", BAD)
def test_violations_are_found(check, source):
    assert len(check("a.py", ast.parse(source))) == 1


@pytest.mark.parametrize("check, source", GOOD)
def test_correct_code_passes(check, source):
    assert check("a.py", ast.parse(source)) == []
