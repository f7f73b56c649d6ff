"""Compiled specs, and which explanations are compared with a file."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from recgen.explanation import explain
from recgen.pipeline import AnyCompiled, compile_text

ROOT = Path(__file__).resolve().parents[2]
SPECS = sorted([*ROOT.glob("specs/*.rec"), *ROOT.glob("tests/specs/*.rec")])

GOLDEN = {
    Path(__file__).parent / "golden" / f"{Path(spec).stem}.{stage}.{'tex' if format == 'latex' else 'txt'}": (spec, stage, format)
    for spec, stage, format in (
        ("specs/gated_delta_rule", "check", "text"),
        ("specs/gated_delta_rule", "analyze", "text"),
        ("specs/gated_delta_rule", "derive", "text"),
        ("specs/gated_delta_rule", "derive", "latex"),
        ("specs/kda", "check", "latex"),
        ("specs/kda", "derive", "text"),
        ("specs/mamba2", "analyze", "text"),
        ("specs/mamba2", "derive", "text"),
        ("tests/specs/two_corrections", "analyze", "latex"),
        ("tests/specs/two_corrections", "derive", "text"),
        ("tests/specs/two_reads", "analyze", "text"),
        ("tests/specs/momentum_delta", "derive", "text"),
        ("tests/specs/momentum_delta", "plan", "text"),
        ("tests/specs/coupled/three_memories", "analyze", "text"),
        ("tests/specs/two_memories", "analyze", "latex"),
        ("tests/specs/two_memories", "derive", "latex"),
        ("tests/specs/value_forget", "analyze", "text"),
        ("tests/specs/value_forget_after", "derive", "text"),
        ("tests/specs/value_forget", "plan", "text"),
    )
}


EMBEDDED = {
    ROOT / "README.md": ("explain-output", ("analyze", "derive")),
    ROOT / "docs" / "architecture.md": ("derivation", ("derive",)),
}
"""Pages that show parts of the explanation of Gated DeltaNet between two marks."""


@cache
def compiled(path: Path) -> AnyCompiled:
    return compile_text(path.read_text(encoding="utf-8"), path.name)


def golden_text(spec: str, stage: str, format: str) -> str:
    return explain(compiled(ROOT / f"{spec}.rec"), stage, format)


def embedded(page: str, mark: str, stages: tuple[str, ...]) -> str:
    """The page with what lies between the marks written anew."""
    before, rest = page.split(f"<!-- {mark}: begin -->")
    _, after = rest.split(f"<!-- {mark}: end -->")
    text = "\n".join(golden_text("specs/gated_delta_rule", stage, "text") for stage in stages)
    return f"{before}<!-- {mark}: begin -->\n```text\n{text}```\n<!-- {mark}: end -->{after}"
