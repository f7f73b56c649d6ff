"""What is said of recurrences that are compiled token by token."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recgen.explanation import FORMATS, STAGES, explain
from recgen.pipeline import AnyCompiled, compile_text

SPECS = sorted((Path(__file__).parents[1] / "specs" / "recurrent").glob("*.rec"))


def compiled(name: str) -> AnyCompiled:
    path = next(p for p in SPECS if p.stem == name)
    return compile_text(path.read_text(encoding="utf-8"), path.name)


def test_the_structure_of_coupled_states() -> None:
    assert (
        explain(compiled("momentum"), "analyze")
        == """\
analyze: structure
------------------

  Class: recurrent: one token after another, 2 states (matrix S [K, V], matrix M [K, V]); no chunkwise form.

  At every token:

  S[t] = exp(g) * S[t-1] + M[t]                               state
  M[t] = beta * M[t-1] + theta * kn @ (v - S[t-1]^T @ kn)^T   state
  o = scale * S[t]^T @ q                                      returned

  No chunkwise form:

  - none is looked for: the spec says `plan recurrent`, though it has one

  Besides:

  - S reads M
  - M reads S
  - programs share the work over V, over which nothing sums
"""
    )


def test_reasons_as_data() -> None:
    data = json.loads(explain(compiled("dense"), "analyze", "json"))["analyze"]
    assert data["kind"] == "recurrent"
    assert data["split"] == ""
    assert data["equations"] == {"S[t]": "0.5 * S[t-1] + 0.1 * step + k @ v^T"}
    assert data["reasons"] == ["option `mix` chooses between terms that read the state: let it choose what multiplies them"]
    lstm = json.loads(explain(compiled("lstm"), "analyze", "json"))["analyze"]
    assert lstm["reasons"] == [
        "`h[t]` reads `c[t]`: 2 states depend on one another; one matrix state is compiled",
        "two factors of this product both depend on the state",
    ]


@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_every_stage_in_every_format(path: Path) -> None:
    found = compiled(path.stem)
    for format in FORMATS:
        whole = explain(found, None, format)
        parts = [explain(found, stage, format) for stage in STAGES]
        if format == "json":
            assert json.loads(whole) == {stage: json.loads(part)[stage] for stage, part in zip(STAGES, parts, strict=True)}
        else:
            assert whole == "\n".join(parts)


def test_what_has_a_chunkwise_form_and_asks_for_none() -> None:
    text = (
        "language 1\nrecurrence r\n    input k : [K]\n    input v : [V]\n    state S : [K, V]\n    plan recurrent\n"
        "    S[t] = S[t-1] + k @ v^T\n    o = S[t]^T @ k\n"
    )
    assert "none is looked for: the spec says `plan recurrent`, though it has one" in explain(compile_text(text), "analyze")
