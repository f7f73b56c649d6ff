"""Write the texts of all diagnostics cases anew: `python -m tests.lang.accept`, then read the difference."""

from __future__ import annotations

from recgen.lang import Source
from tests.lang.test_diagnostics import CASES, rendered

if __name__ == "__main__":
    for path in CASES:
        text = rendered(Source(path.name, path.read_text(encoding="utf-8")))
        path.with_suffix(".txt").write_text(text + "\n", encoding="utf-8")
