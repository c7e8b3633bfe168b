"""Settings of all tests. The helpers beside this file can be imported from every
test folder, since pytest puts this folder on the path."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def pytest_configure(config):
    config.addinivalue_line(
        "markers",
        "every_backend: a test that `test_backends.py` runs on JAX and PyTorch as well",
    )
    config.addinivalue_line(
        "markers", "on_pytorch: one that it runs on PyTorch as well, but not on JAX"
    )


def pytest_collection_modifyitems(items):
    # The longest file first, lest one process still runs it when the other has done.
    items.sort(key=lambda item: item.path.name != "test_backends.py")
