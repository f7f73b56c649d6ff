"""The pages that the compiler writes: gallery, strangers, and what it says in the reference of the language.

`python scripts/pages.py` writes them anew.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

from recgen.explanation import explain
from recgen.lang import Diagnostic, Source, SpecErrors, diagnose
from recgen.lang.codes import CODES
from recgen.pipeline import AnyCompiled, compile_text

ROOT = Path(__file__).resolve().parents[1]
STRANGERS = ROOT / "tests" / "specs" / "strangers"
FIRST = STRANGERS / "first.json"
"""What the compiler made of each stranger when it was written."""

REFERENCE = ROOT / "specs" / "README.md"
"""Written by hand, but for what stands between marks."""

GALLERY = """\
# Gallery

Written by the compiler: `python scripts/pages.py`. The language is described in [README.md](README.md), the letters in
[docs/architecture.md](../docs/architecture.md).
"""

TABLE = """\
# Strangers

Recurrences of papers and of other libraries, written down from the paper's equations before anyone asked whether they compile, and not
bent since. The specs are in [tests/specs/strangers](../tests/specs/strangers). "First" is what the compiler said on the day a spec was
written, "now" what it says today; a test compiles them all, and compares the gradients of those that compile with the recurrence's.
Written by the compiler: `python scripts/pages.py`. Lines are those of the spec without empty ones.

| spec | from | lines | first | now |
|---|---|---|---|---|
"""

NEVER = """
`recgen verify` holds all forms of those that compile, with the plan that is offered where there is one, but for `mesa`, which divides by
1 + kᵀRk: near 0 for some incoming states, it takes gradients beyond what float16 holds. Two more lose digits as the papers write them,
and are held to what the recurrence as written loses itself: `rg_lru` takes 1 - exp(2 log a) near 1 (`-expm1(2 * log_a)` does not), and
`gated_rfa` divides by a normaliser that may be 0.

Not in the table, because no spec can say them: log-linear attention (Guo et al. 2025), whose number of states grows with the sequence;
PaTH and forgetting attention (Yang et al. 2025, Lin et al. 2025), which keep every key; layers that mix heads.
"""


def lines_of(text: str) -> int:
    """The lines of a spec that say something."""
    return sum(bool(line.strip()) for line in text.splitlines())


def compiled(path: Path) -> AnyCompiled:
    """Every stage over one spec."""
    return compile_text(path.read_text(encoding="utf-8"), path.name)


def gallery() -> str:
    """A section for every spec that is shipped: what it is, its class, and its normal form."""
    sections = [_section(path) for path in sorted((ROOT / "specs").glob("*.rec"))]
    return GALLERY + "".join(sections)


def _section(path: Path) -> str:
    result = compiled(path)
    found = json.loads(explain(result, "analyze", "json"))["analyze"]
    forms = "".join(f"    {line['text']}\n" for line in found.get("normal_form") or found.get("scan_form") or found["coupled_form"])
    lines = lines_of(result.recurrence.source.text)
    return f"\n## [{path.stem}]({path.name})\n\n{result.recurrence.doc}\n\n{lines} lines; {found['class']}.\n\n{forms}"


def strangers() -> str:
    """The table of the strangers."""
    first = json.loads(FIRST.read_text(encoding="utf-8"))
    return TABLE + "".join(_row(path, first[path.stem]) for path in sorted(STRANGERS.glob("*.rec"))) + NEVER


def _row(path: Path, first: str) -> str:
    text = path.read_text(encoding="utf-8")
    origin = next(line for line in text.splitlines() if line.strip().startswith('"')).strip().strip('".').split(":")[0]
    link = f"[{path.stem}](../tests/specs/strangers/{path.name})"
    return f"| {link} | {origin} | {lines_of(text)} | {first} | {_now(text)} |\n"


def _now(text: str) -> str:
    """The class of a spec, or why it is refused, and its class under the plan that the refusal offers."""
    try:
        return str(json.loads(explain(compile_text(text), "analyze", "json"))["analyze"]["class"])
    except SpecErrors as errors:
        found = [d for d in errors.diagnostics if d.severity == "error"]
        said = "; ".join(f"{d.code}: {d.message}" for d in found)
        return f"{said}. With `plan recurrent`: {_now(planned(text))}" if offers_plan(found) else said


def offers_plan(found: Iterable[Diagnostic]) -> bool:
    """Whether a refusal says that `plan recurrent` would compile the spec."""
    return any("plan recurrent" in (d.help or "") for d in found)


def planned(text: str) -> str:
    """The spec with the line `plan recurrent`."""
    return f"{text}    plan recurrent\n"


def blocks(page: str, kind: str) -> list[str]:
    """The fenced blocks of a page whose first line says exactly this."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)


def reference() -> str:
    """The language's reference with what the compiler says of its examples put between the marks."""
    page = REFERENCE.read_text(encoding="utf-8")
    (mistaken,) = blocks(page, "rec wrong")
    said = "\n\n".join(d.render() for d in diagnose(Source("mistaken.rec", mistaken)))
    codes = "".join(f"| {name} | {code.severity} | {code.message.replace('|', '')} |\n" for name, code in sorted(CODES.items()))
    page = _between(page, "diagnostic", f"```text\n{said}\n```\n")
    page = _between(page, "codes", f"| code | kind | message |\n|---|---|---|\n{codes}")
    return _between(page, "signature", f"```python\n{_signatures(blocks(page, 'rec')[0])}```\n")


def _signatures(spec: str) -> str:
    """The heads of the functions for whole sequences and for one token, as the module of a spec has them."""
    text = compile_text(spec).module.text
    heads = [re.search(rf"^def {name}\(.*?:$", text, re.DOTALL | re.MULTILINE) for name in ("gated_delta", "step_gated_delta")]
    return "\n\n".join(f"{head[0]} ...\n" for head in heads if head)


def _between(page: str, mark: str, text: str) -> str:
    before, rest = page.split(f"<!-- {mark}: begin -->\n")
    _, after = rest.split(f"<!-- {mark}: end -->")
    return f"{before}<!-- {mark}: begin -->\n{text}<!-- {mark}: end -->{after}"


PAGES = {REFERENCE: reference, ROOT / "specs" / "GALLERY.md": gallery, ROOT / "docs" / "strangers.md": strangers}
"""Page -> what makes its text."""

if __name__ == "__main__":
    for page, make in PAGES.items():
        page.write_text(make(), encoding="utf-8")
