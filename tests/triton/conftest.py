"""These tests run Triton's kernels on CPU tensors: the interpreter must be on before triton is imported, in a process of its own."""

import os
import sys
from collections.abc import Iterator

import pytest
import torch

if "triton" not in sys.modules:
    os.environ["TRITON_INTERPRET"] = "1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The interpreter's own warnings: numpy's where a kernel's padding is not a number, and for how it turns arrays of one into numbers."""
    for item in items:
        if "tests/triton" in item.path.as_posix():
            item.add_marker(pytest.mark.filterwarnings("ignore::RuntimeWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore:Conversion of an array with ndim > 0:DeprecationWarning"))


@pytest.fixture(autouse=True)
def nan_filled() -> Iterator[None]:
    """Fresh memory holds NaN, so that an element which no kernel writes is noticed."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)
