"""Which cases of a test run where."""

import pytest

__all__ = ["on_every_backend"]


def on_every_backend(cases, marked):
    """Parameters of a test: those of `marked` run on JAX as well as on PyTorch.

    JAX compiles each operation of each shape, which takes seconds where others take
    none: where cases differ little, some of them are enough there.
    """
    marks = pytest.mark.on_pytorch, pytest.mark.every_backend
    return [pytest.param(case, marks=marks[case in marked]) for case in cases]
