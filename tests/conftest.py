"""Options, order and fixtures of all tests.

Each test folder can import the helper modules next to this file, since pytest adds this
folder to the path.
"""

import collections
import gc
import os

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def pytest_addoption(parser):
    parser.addoption(
        "--max-cases",
        type=int,
        metavar="N",
        help="run at most N cases of each parametrized test of a part of the package",
    )


def pytest_collection_finish(session):
    """Exempt the imported modules from garbage collection.

    They hold millions of objects, and Keras runs a collection for each weight that it
    deletes, for example in `quantize`.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def clear_session():
    """Free the models of a file: garbage collection slows down as they accumulate."""
    yield
    import keras

    if keras.backend.backend() == "tensorflow":  # others cache compiled functions
        keras.utils.clear_session()


@pytest.hookimpl(trylast=True)  # after the selection by `-m` and `-k`
def pytest_collection_modifyitems(config, items):
    """Order the tests for two balanced workers; apply `--max-cases`.

    The longest files come first, so that no worker starts one when the other has
    finished: the runs on other backends, then files with slow tests.
    """
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(
        key=lambda item: (
            item.get_closest_marker("backend") is None,
            item.path not in slow,
        )
    )
    if config.getoption("max_cases"):
        kept = set(some_cases(items, config.getoption("max_cases")))
        config.hook.pytest_deselected(items=[i for i in items if i not in kept])
        items[:] = [item for item in items if item in kept]


def some_cases(items, limit):
    """Yield at most `limit` cases of each test.

    The cases are evenly spaced, and begin at another case in each test of a file, so
    that all cases of a file together are covered by most of its tests. Tests next to
    this file, which examine the source, keep all cases.
    """
    files = collections.defaultdict(lambda: collections.defaultdict(list))
    for item in items:
        files[item.path][item.nodeid.partition("[")[0]].append(item)
    for path, tests in files.items():
        is_part = path.parent.name != "tests"
        for number, cases in enumerate(tests.values()):
            count = min(limit, len(cases)) if is_part else len(cases)
            for i in range(count):
                yield cases[(number + i * len(cases) // count) % len(cases)]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Give each worker one file at a time, and one run on another backend at a time."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid):
            is_backend = "test_backends.py::" in nodeid
            return nodeid if is_backend else super()._split_scope(nodeid)

    return Scheduling(config, log)
