"""Which systems of matrix states have a chunk form together, what feeds and corrects what, and why others have none."""

from __future__ import annotations

import pytest

from recgen.analysis.coupled import analyze_coupled
from recgen.analysis.coupled_form import CoupledForm
from recgen.analysis.refusal import Refusal
from recgen.explaining.terms import TermPrinter
from recgen.lang import Source, SpecErrors, check, parse
from recgen.lang.terms import Term
from recgen.pipeline import CoupledCompiled, ScanCompiled, TokenCompiled, compile_text

DECLARATIONS = """
    input q : [K]
    input k : [K]
    input e : [K]
    input v : [V]
    input g : []  log_decay
    input f : [K] log_decay
    input W : [K, K]
    input a : []
    input b : []  in(0, 1)
    input m : []  in(0, 1)
    state S : [K, V]
    state M : [K, V]
    state N : [K, V]
"""
VALUE_FIRST = DECLARATIONS.replace("[K, V]", "[V, K]")
MOMENTUM = ("M[t] = m * M[t-1] + b * k @ (v - S[t-1]^T @ k)^T", "S[t] = exp(g) * S[t-1] + M[t]", "o = S[t]^T @ q")


def text_of(*lines: str, declarations: str = DECLARATIONS) -> str:
    body = "\n".join(f"    {line}" for line in lines)
    words = set("".join(c if c.isalnum() or c == "_" else " " for c in body).split())
    used = [line for line in declarations.strip("\n").split("\n") if line.split()[1] in words]
    return "language 1\nrecurrence r\n" + "\n".join(used) + f"\n{body}\n"


def form_of(*lines: str, declarations: str = DECLARATIONS) -> CoupledForm:
    return analyze_coupled(check(parse(Source("spec.rec", text_of(*lines, declarations=declarations)))).recurrence)


def shown(form: CoupledForm, term: Term | None) -> str | None:
    return None if term is None else TermPrinter(form.recurrence, len(form.reads)).text(term)


def feeds(form: CoupledForm) -> list[tuple[str, str, int, str | None]]:
    return [(form.names[f.target], form.names[f.source], f.lag, shown(form, f.weight)) for f in form.feeds]


def streams(form: CoupledForm) -> list[tuple[object, ...]]:
    """Direction, value, corrections, and what every state takes."""
    return [
        (
            shown(form, s.write),
            shown(form, s.value),
            [(form.names[c.state], c.lag, shown(form, c.correct)) for c in s.corrections],
            {name: shown(form, z) for name, z in zip(form.names, s.into, strict=True) if z is not None},
        )
        for s in form.streams
    ]


def test_momentum() -> None:
    form = form_of(*MOMENTUM)
    assert form.names == ("M", "S")
    assert feeds(form) == [("S", "M", 0, "1")]
    assert streams(form) == [("k", "b * v", [("S", 1, "-b * k")], {"M": "1"})]
    assert [shown(form, d.log) for d in form.decays] == ["log(m)", "g"]
    assert [(r.state, r.lag) for r in form.reads] == [("S", 0)]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_the_order_of_lines_does_not_matter(order: tuple[int, ...]) -> None:
    form, other = form_of(*MOMENTUM), form_of(*(MOMENTUM[i] for i in order))
    assert (form.names, form.feeds, form.streams, form.reads) == (other.names, other.feeds, other.streams, other.reads)


def test_states_by_their_values_first_are_turned_over() -> None:
    lines = ("M[t] = m * M[t-1] - b * (S[t-1] @ k - v) @ k^T", "S[t] = exp(g) * S[t-1] + M[t]", "o = S[t] @ q")
    form, other = form_of(*lines, declarations=VALUE_FIRST), form_of(*MOMENTUM)
    assert form.transposed
    assert (form.key_axis, form.value_axis) == ("K", "V")
    assert (streams(form), feeds(form)) == (streams(other), feeds(other))


def test_the_state_before_the_token_feeds_too() -> None:
    form = form_of("M[t] = m * M[t-1] + k @ v^T", "S[t] = S[t-1] + b * M[t-1] - 2 * b * M[t] + M[t-1]", "o = S[t]^T @ q")
    assert feeds(form) == [("S", "M", 1, "b + 1"), ("S", "M", 0, "-2 * b")]
    assert [d.kind for d in form.decays] == ["scalar", "none"]


def test_a_state_need_not_carry_itself_on() -> None:
    form = form_of("M[t] = k @ v^T", "S[t] = m * S[t-1] + b * M[t-1]", "o = S[t]^T @ q")
    assert [d.kind for d in form.decays] == ["nothing", "scalar"]


def test_one_write_into_several_states() -> None:
    """Numbers times the same are one stream; numbers that both take stay inside it."""
    proportional = form_of("M[t] = m * M[t-1] + b * k @ v^T", "S[t] = S[t-1] + (1 - b) * k @ v^T", "o = S[t]^T @ q + M[t]^T @ q")
    assert streams(proportional) == [("k", "v", [], {"M": "b", "S": "1 - b"})]
    same = form_of("M[t] = m * M[t-1] + b * k @ v^T", "S[t] = S[t-1] + k @ (b * v)^T", "o = S[t]^T @ q + M[t]^T @ q")
    assert streams(same) == [("k", "b * v", [], {"M": "1", "S": "1"})]
    corrected = form_of(
        "M[t] = m * M[t-1] + b * k @ (v - S[t-1]^T @ k)^T",
        "S[t] = S[t-1] + 0.5 * k @ (v - S[t-1]^T @ k)^T + M[t-1]",
        "o = S[t]^T @ q",
    )
    assert streams(corrected) == [("k", "v", [("S", 1, "-k")], {"M": "b", "S": "0.5"})]


def test_writes_that_are_not_proportional_are_streams_of_their_own() -> None:
    form = form_of("M[t] = m * M[t-1] + k @ v^T", "S[t] = S[t-1] + k @ (v - S[t-1]^T @ k)^T + M[t-1]", "o = S[t]^T @ q")
    assert [into for *_, into in streams(form)] == [{"S": "1"}, {"M": "1"}]


def test_corrections_read_any_state_in_the_order_of_the_token() -> None:
    """M reads what S holds after the token, which takes from M only what M held before it."""
    form = form_of(
        "M[t] = m * M[t-1] - b * k @ (S[t]^T @ k)^T",
        "S[t] = exp(g) * S[t-1] + M[t-1] + e @ (v - M[t-1]^T @ e)^T",
        "o = S[t]^T @ q",
    )
    assert [(s[0], s[2]) for s in streams(form)] == [("e", [("M", 1, "-e")]), ("k", [("S", 0, "-b * k")])]


def test_three_states() -> None:
    form = form_of("N[t] = m * N[t-1] + k @ v^T", "S[t] = S[t-1] + M[t]", "M[t] = m * M[t-1] + N[t]", "o = S[t]^T @ q")
    assert form.names == ("N", "M", "S")
    assert feeds(form) == [("M", "N", 0, "1"), ("S", "M", 0, "1")]


def test_states_that_do_not_meet() -> None:
    form = form_of("M[t] = m * M[t-1] + k @ v^T", "S[t] = exp(g) * S[t-1] + e @ v^T", "o = S[t]^T @ q + M[t]^T @ q")
    assert form.feeds == ()
    assert len(form.streams) == 2


REFUSED = (
    (
        ("M[t] = m * M[t-1] + b * S[t-1] + k @ v^T", "S[t] = S[t-1] + M[t]", "o = S[t]^T @ q"),
        "`S[t]` takes `M[t]` and `M[t]` takes `S[t-1]`: states are compiled together where each feeds only later ones; "
        "a correction may read any of them",
    ),
    (
        ("M[t] = m * M[t-1] + N[t-1] + k @ v^T", "S[t] = S[t-1] + M[t]", "N[t] = b * N[t-1] + S[t-1]", "o = S[t]^T @ q"),
        "`S[t]` takes `M[t]` which `S[t-1]` feeds in turn: states are compiled together where each feeds only later ones; "
        "a correction may read any of them",
    ),
    (
        ("M[t] = exp(f) * M[t-1] + k @ v^T", "S[t] = S[t-1] + M[t]", "o = S[t]^T @ q"),
        "`M[t]` takes `M[t-1]` by channel: states that are compiled together are scaled by numbers",
    ),
    (
        ("M[t] = m * M[t-1] + k @ v^T", "S[t] = S[t-1] + exp(f) * M[t]", "o = S[t]^T @ q"),
        "`S[t]` takes `M[t]` by channel: states that are compiled together are scaled by numbers",
    ),
    (
        ("M[t] = m * M[t-1] + k @ v^T", "S[t] = S[t-1] + M[t-1] * exp(v)^T + m * k @ (v - S[t-1]^T @ k)^T", "o = S[t]^T @ q"),
        "`S[t]` takes `M[t-1]` by channel: states that are compiled together are scaled by numbers",
    ),
    (
        ("M[t] = m * M[t-1] + k @ v^T", "S[t] = S[t-1] + M[t] - k @ (v * (S[t-1]^T @ k))^T", "o = S[t]^T @ q"),
        "`S[t]` takes `S[t-1]` by channel: states that are compiled together are scaled by numbers",
    ),
    (
        ("M[t] = m * M[t-1] + k @ v^T", "S[t] = W @ S[t-1] + M[t]", "o = S[t]^T @ q"),
        "a full matrix transforms the state: the transition is dense, not diagonal plus low rank",
    ),
    (
        ("M[t] = m * M[t-1] + k @ (v - S[t-1]^T @ k)^T", "S[t] = S[t-1] @ (I - b * v @ v^T) + M[t]", "o = S[t]^T @ q"),
        "the state is corrected on both sides, over K and over V",
    ),
    (
        ("M[t] = m * M[t-1] + k @ (v - S[t-1]^T @ k)^T", "S[t] = S[t-1] + M[t]", "o = S[t] @ v"),
        "an output reads `S` over its value axis V; states that are compiled together are read over their key axis",
    ),
    (
        ("M[t] = tanh(M[t-1]) + k @ v^T", "S[t] = S[t-1] + M[t]", "o = S[t]^T @ q"),
        "the state enters `tanh` which is not linear",
    ),
    (("M[t] = m * M[t-1]", "S[t] = b * S[t-1] + M[t]", "o = S[t]^T @ q + v"), "nothing is ever written into the states"),
)


@pytest.mark.parametrize(("lines", "reason"), REFUSED)
def test_refusals(lines: tuple[str, ...], reason: str) -> None:
    with pytest.raises(Refusal) as found:
        form_of(*lines)
    assert found.value.reason == reason


def test_a_refusal_in_the_users_text() -> None:
    """At the term, with the plan that takes it; no less general form is taken in silence."""
    with pytest.raises(SpecErrors) as found:
        compile_text(text_of("M[t] = m * M[t-1] + 2 * S[t-1] + k @ v^T", "S[t] = S[t-1] + M[t]", "o = S[t]^T @ q"))
    (error,) = found.value.diagnostics
    assert (error.code, error.span.line, error.span.column) == ("E501", 10, 21)
    assert error.message.startswith("no chunkwise form: `S[t]` takes `M[t]` and `M[t]` takes `S[t-1]`")
    assert "plan recurrent" in (error.help or "")


def test_which_class_is_chosen() -> None:
    """The chunk form goes before a scan; a plan chooses otherwise, and what is scaled by channel is still a scan."""
    plain = ("M[t] = m * M[t-1] + k @ v^T", "S[t] = S[t-1] + M[t]", "o = S[t]^T @ q")
    assert type(compile_text(text_of(*plain))) is CoupledCompiled
    assert type(compile_text(text_of(*plain, "plan scan"))) is ScanCompiled
    assert type(compile_text(text_of(*plain, "plan recurrent"))) is TokenCompiled
    scan = compile_text(text_of("M[t] = exp(f) * M[t-1] + k @ v^T", *plain[1:]))
    assert type(scan) is ScanCompiled
    assert [r.text for r in scan.token_form.reasons] == [
        "`M[t]` takes `M[t-1]` by channel: states that are compiled together are scaled by numbers"
    ]


def test_a_decay_that_may_grow_is_warned_of() -> None:
    result = compile_text(text_of("M[t] = a * M[t-1] + k @ v^T", "S[t] = b * S[t-1] + M[t]", "o = S[t]^T @ q"))
    (warning,) = result.warnings
    assert (warning.code, warning.span.line) == ("W502", 10)
