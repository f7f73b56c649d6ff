"""These tests run Triton's kernels on CPU tensors: the interpreter must be on before triton is imported, in a process of its own."""

import os
import sys

import pytest

if "triton" not in sys.modules:
    os.environ["TRITON_INTERPRET"] = "1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The interpreter computes with numpy, which warns where a kernel's padding or a discarded branch is not a number."""
    for item in items:
        if "tests/triton" in item.path.as_posix():
            item.add_marker(pytest.mark.filterwarnings("ignore::RuntimeWarning"))
