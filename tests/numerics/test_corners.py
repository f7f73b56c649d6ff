"""Every form of recurrences at the corners of what is compiled token by token, against the float64 loop."""

from __future__ import annotations

from typing import Any

import pytest

from recgen.verify import reproduce
from tests.numerics.corners import SPECS, corner, options

CALLS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "naive": ("naive", "float64", {}),
    "recurrent": ("recurrent", "float64", {}),
    "no initial state": ("recurrent", "float32", {"initial": False, "loss": "outputs"}),
    "step": ("step", "float32", {}),
    "packed": ("recurrent", "float64", {"tokens": 10, "packed": True}),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("name", SPECS)
def test_corner(name: str, call: tuple[str, str, dict[str, Any]]) -> None:
    form, dtype, case = call
    for flags in options(name):
        report = reproduce(corner(name), form, dtype, **{"tokens": 6, "key_heads": 1, "heads": 2, "flags": flags, **case})
        assert report.ok, report
