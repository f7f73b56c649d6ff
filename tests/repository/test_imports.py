"""Importing the package and asking for help must be instant: neither may pull in what only a build or a run needs."""

import subprocess
import sys

import pytest

HEAVY = ("torch", "triton", "sympy", "jinja2", "lark", "numpy", "rich")

PROBE = """
import sys, time
start = time.perf_counter()
{statement}
seconds = time.perf_counter() - start
loaded = sorted(set({heavy}) & set(sys.modules))
assert not loaded, f"imported {{loaded}}"
print(seconds)
"""


def best_time(statement: str, runs: int = 3) -> float:
    code = PROBE.format(statement=statement, heavy=HEAVY)
    results = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True) for _ in range(runs)]
    assert all(result.returncode == 0 for result in results), results[0].stderr
    return min(float(result.stdout) for result in results)


@pytest.mark.parametrize("statement", ["import recgen", "import recgen.cli", "import recgen.kernels, recgen.cache, recgen.resources"])
def test_import_is_light_and_fast(statement):
    assert best_time(statement) < 0.5
