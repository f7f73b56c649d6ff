"""Write the expected explanations anew: `python -m tests.explain.accept`, then read the difference."""

from __future__ import annotations

from tests.explain.helpers import GOLDEN, golden_text

if __name__ == "__main__":
    for path, (spec, stage, format) in GOLDEN.items():
        path.write_text(golden_text(spec, stage, format), encoding="utf-8")
