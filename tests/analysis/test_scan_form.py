"""Which recurrences are scans, what their multipliers and writes are, and why others are none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recgen.analysis.refusal import Refusal
from recgen.analysis.scan_form import ScanForm, analyze_scan
from recgen.derive.proof import ProofFailed
from recgen.derive.scan_proof import prove_scan
from recgen.explaining.terms import TermPrinter
from recgen.lang import Source, SpecErrors, check, parse
from recgen.lang.terms import Term
from recgen.pipeline import Compiled, ScanCompiled, TokenCompiled, compile_text

DECLARATIONS = """
    input x : [D]
    input z : [D]
    input a : [D]    decay
    input g : []     log_decay
    input b : [N]
    input c : [N]
    input f : [N]    decay
    param A : [D, N] negative
    state h : [D]
    state m : [D]
    state S : [D, N]
    state Q : [D, D]
"""


MEET = "different entries of the state meet here, and a scan works on each entry alone"
WHERE = "`where` chooses between terms that read the state: let it choose what multiplies them"


def text_of(*lines: str) -> str:
    body = "\n".join(f"    {line}" for line in lines)
    words = set("".join(c if c.isalnum() or c == "_" else " " for c in body).split())
    used = [line for line in DECLARATIONS.strip("\n").split("\n") if line.split()[1] in words]
    return "language 1\nrecurrence r\n" + "\n".join(used) + f"\n{body}\n"


def form_of(*lines: str) -> ScanForm:
    return analyze_scan(check(parse(Source("spec.rec", text_of(*lines)))).recurrence, ())


@pytest.mark.parametrize(
    ("equation", "read", "decay", "write"),
    [
        ("h[t] = a * h[t-1] + x", "y = h[t]", "a", "x"),
        ("h[t] = exp(g) * h[t-1] + (1 - exp(g)) * x", "y = h[t]", "exp(g)", "(1 - exp(g)) * x"),
        ("h[t] = h[t-1] - a * (h[t-1] - x)", "y = h[t]", "1 - a", "-(a * -x)"),
        ("h[t] = (h[t-1] + x) / (1 + x * x)", "y = h[t]", "1 / (1 + x * x)", "x / (1 + x * x)"),
        ("S[t] = exp(A) * S[t-1] + x @ b^T", "y = S[t] @ c", "exp(A)", "x @ b^T"),
        ("S[t] = a * S[t-1] * f^T + x @ b^T", "y = S[t] @ c", "f^T * a", "x @ b^T"),
        ("S[t] = f^T * S[t-1]", "y = S[t] @ c + x", "f^T", None),
    ],
)
def test_multiplier_and_write(equation: str, read: str, decay: str, write: str | None) -> None:
    form = form_of(equation, read)
    printer = TermPrinter(form.recurrence)

    def shown(term: Term | None) -> str | None:
        return None if term is None else printer.text(term)

    (state,) = form.states
    assert (shown(state.decay), shown(state.write)) == (decay, write)
    assert prove_scan(form).identities > 0


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (("h[t] = tanh(h[t-1]) + x", "y = h[t]"), "the state enters `tanh` which is not linear"),
        (("h[t] = a * h[t-1] * sum(h[t-1]) + x", "y = h[t]"), MEET),
        (("h[t] = h[t-1] * h[t-1] + x", "y = h[t]"), "two factors of this product both depend on the state"),
        (("h[t] = x / h[t-1]", "y = h[t]"), "the state stands in a divisor"),
        (("h[t] = where(x < h[t-1], x, h[t-1])", "y = h[t]"), WHERE),
        (("h[t] = x", "y = h[t]"), "h[t] does not carry h[t-1] on: every step starts afresh"),
        (
            ("h[t] = a * h[t-1] + m[t-1]", "m[t] = a * m[t-1] + x * h[t]", "y = m[t]"),
            "states `h` and `m` read each other: neither can be scanned first",
        ),
        (("S[t] = S[t-1] + (S[t-1] @ b) @ b^T", "y = S[t] @ c + x"), MEET),
        (("Q[t] = Q[t-1] + x @ x^T", "y = Q[t] @ x"), "a square matrix [D, D]: a scan tells the two sides apart by their names"),
    ],
)  # fmt: skip
def test_refusals(lines: tuple[str, ...], reason: str) -> None:
    with pytest.raises(Refusal) as found:
        form_of(*lines)
    assert found.value.reason == reason


def test_states_are_scanned_after_those_they_read() -> None:
    form = form_of("h[t] = a * h[t-1] + m[t]", "m[t] = exp(g) * m[t-1] + x", "y = h[t]")
    assert [s.info.name for s in form.states] == ["m", "h"]


def test_the_axis_that_nothing_sums_over_comes_last() -> None:
    assert form_of("S[t] = exp(A) * S[t-1] + x @ b^T", "y = S[t] @ c").axes == ("N", "D")
    assert form_of("S[t] = exp(A) * S[t-1] + x @ b^T", "y = S[t]^T @ x").axes == ("D", "N")


def test_scans_are_found_without_a_plan() -> None:
    """A normal form comes first; `plan scan` and `plan recurrent` choose otherwise."""
    linear = ("S[t] = exp(g) * S[t-1] + x @ b^T", "y = S[t] @ c")
    assert type(compile_text(text_of(*linear))) is Compiled
    assert type(compile_text(text_of(*linear, "plan scan"))) is ScanCompiled
    assert type(compile_text(text_of(*linear, "plan recurrent"))) is TokenCompiled
    scan = compile_text(text_of("S[t] = exp(A) * S[t-1] + x @ b^T", "y = S[t] @ c"))
    assert type(scan) is ScanCompiled
    assert [r.text for r in scan.token_form.reasons] == [
        "a full matrix multiplies the state entry by entry: elementwise decay, the scan class"
    ]


def test_plan_scan_is_refused_with_the_term() -> None:
    with pytest.raises(SpecErrors) as found:
        compile_text(text_of("S[t] = S[t-1] + (x - S[t-1] @ b) @ b^T", "y = S[t] @ c", "plan scan"))
    (error,) = found.value.diagnostics
    assert error.code == "E501"
    assert error.message == f"no scan: {MEET}"
    assert (error.span.column, error.span.end_column) == (26, 36)


def test_a_decay_that_may_grow_is_told() -> None:
    growing = compile_text(text_of("h[t] = z * h[t-1] + x", "y = h[t]"))
    assert [w.code for w in growing.warnings] == ["W502"]
    assert not compile_text(text_of("h[t] = a * h[t-1] + x", "y = h[t]")).warnings


def test_slips_are_not_proved() -> None:
    form = form_of("S[t] = exp(A) * S[t-1] + x @ b^T", "y = S[t] @ c")
    (state,) = form.states
    other = form_of("S[t] = exp(A) * S[t-1] - x @ b^T", "y = S[t] @ c").states[0]
    for wrong in (replace(state, write=other.write), replace(state, write=None), replace(state, decay=other.decay.args[0])):
        with pytest.raises(ProofFailed):
            prove_scan(replace(form, states=(wrong,)))
