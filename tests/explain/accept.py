"""Write the expected explanations anew, in the README and in docs too: `python -m tests.explain.accept`; then read the difference."""

from __future__ import annotations

from tests.explain.helpers import EMBEDDED, GOLDEN, embedded, golden_text

if __name__ == "__main__":
    for path, (spec, stage, format) in GOLDEN.items():
        path.write_text(golden_text(spec, stage, format), encoding="utf-8")
    for path, (mark, stages) in EMBEDDED.items():
        path.write_text(embedded(path.read_text(encoding="utf-8"), mark, stages), encoding="utf-8")
