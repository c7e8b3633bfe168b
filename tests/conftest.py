"""Settings of all tests. The helpers beside this file can be imported from every
test folder, since pytest puts this folder on the path."""

import os

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def pytest_configure(config):
    config.addinivalue_line(
        "markers",
        "every_backend: a test that `test_backends.py` runs on JAX and PyTorch as well",
    )
    config.addinivalue_line(
        "markers", "on_pytorch: one that it runs on PyTorch as well, but not on JAX"
    )


@pytest.fixture(scope="module", autouse=True)
def forgotten():
    """What the models of a file have left in the process: to look through it for
    garbage takes ever longer."""
    yield
    import keras

    if keras.backend.backend() == "tensorflow":  # others keep what they have compiled
        keras.utils.clear_session()


def pytest_collection_modifyitems(items):
    # The longest file first, lest one process still runs it when the other has done.
    items.sort(key=lambda item: item.path.name != "test_backends.py")
