"""Recurrences as equations of one token: what the analysis finds in them, and what it refuses."""

from __future__ import annotations

import pytest

from recgen.analysis.recurrent import token_form
from recgen.analysis.rewriting import applied
from recgen.analysis.token_form import TokenForm
from recgen.explaining.terms import TermPrinter
from recgen.lang import Source, SpecErrors, check, parse
from recgen.pipeline import TokenCompiled, compile_text
from tests.analysis.helpers import KEY_FIRST

DECLARATIONS = KEY_FIRST.replace(
    "state S : [K, V]", "input A : [K, K]\n    state S : [K, V]\n    state R : [V, K]\n    state n : [K]\n    state m : []"
)


def form_of(*lines: str) -> TokenForm:
    body = "\n".join(f"    {line}" for line in lines)
    words = set("".join(c if c.isalnum() or c == "_" else " " for c in body).split())
    used = [line for line in DECLARATIONS.strip("\n").split("\n") if line.split()[1] in words]
    source = Source("spec.rec", "language 1\nrecurrence r\n" + "\n".join(used) + f"\n{body}\n    plan recurrent\n")
    return token_form(check(parse(source)).recurrence, ())


@pytest.mark.parametrize(
    ("equation", "shown"),
    [
        ("S[t] = (I - b * k @ k^T) @ S[t-1] + k @ v^T", "S[t-1] - b * k @ (k^T @ S[t-1]) + k @ v^T"),
        ("S[t] = (exp(f) * I - k @ q^T) @ S[t-1] + k @ v^T", "exp(f) * S[t-1] - k @ (q^T @ S[t-1]) + k @ v^T"),
        ("S[t] = (A - k @ k^T) @ S[t-1] + k @ v^T", "A @ S[t-1] - k @ (k^T @ S[t-1]) + k @ v^T"),
        ("S[t] = A @ S[t-1] + k @ v^T", "A @ S[t-1] + k @ v^T"),
        ("S[t] = ((I - k @ e^T) * f^T)^T @ S[t-1] + k @ v^T", "f * (S[t-1] - e @ (k^T @ S[t-1])) + k @ v^T"),
    ],
)
def test_vectors_are_multiplied_first(equation: str, shown: str):
    form = form_of(equation, "o = S[t]^T @ q")
    assert TermPrinter(form.recurrence).text(form.states[0].equation) == shown


def test_from_the_other_side():
    form = form_of("R[t] = R[t-1] @ (I * exp(f) - b * k @ k^T)^T + v @ k^T", "o = R[t] @ q")
    assert TermPrinter(form.recurrence).text(form.states[0].equation) == "R[t-1] * exp(f)^T - R[t-1] @ k @ (b * k)^T + v @ k^T"
    assert form.states[0].turned


def test_a_sum_of_full_matrices_stays_one():
    form = form_of("S[t] = (A + A) @ S[t-1] + k @ v^T", "o = S[t]^T @ q")
    assert applied(form.states[0].equation) == form.recurrence.states[0].equation


@pytest.mark.parametrize(
    ("lines", "split"),
    [
        (("S[t] = tanh(S[t-1]) + k @ v^T", "o = S[t]^T @ q"), "V"),
        (("S[t] = A @ S[t-1] + k @ v^T", "o = S[t]^T @ q"), "V"),
        (("S[t] = S[t-1] + k @ l2norm(v)^T", "o = S[t]^T @ q"), ""),
        (("n[t] = tanh(n[t-1] + k)", "o = n[t]"), "K"),
        (("n[t] = tanh(A @ n[t-1] + k)", "o = n[t]"), ""),
        (("m[t] = tanh(m[t-1] + a)", "o = m[t]"), ""),
        (("S[t] = tanh(S[t-1]) + n[t] @ v^T", "n[t] = n[t-1] + k", "o = S[t]^T @ q"), "V"),
    ],
)
def test_the_axis_that_programs_may_share(lines: tuple[str, ...], split: str):
    assert form_of(*lines).split == split


SPEC = """\
language 1

recurrence r
    input x : []
    state h : [D]
    plan recurrent

    h[t] = tanh(h[t-1]) + x
    y    = h[t]
"""


def test_an_axis_of_unknown_size():
    with pytest.raises(SpecErrors) as failure:
        compile_text(SPEC, "spec.rec")
    assert str(failure.value) == (
        "spec.rec:5:11: error[E503]: no form at all: state `h` has axis `D`, which no input or param has: its size is not known\n"
        "        state h : [D]\n"
        "              ^"
    )


def test_no_stabilized_logarithms():
    with pytest.raises(SpecErrors, match="`stabilize log` is of chunkwise forms; write the stabiliser as a state of its own"):
        compile_text(SPEC.replace("input x : []", "input x : [D]\n    stabilize log"))


def test_reasons_are_kept():
    compiled = compile_text(SPEC.replace("input x : []", "input x : [D]"))
    assert isinstance(compiled, TokenCompiled)
    reason, other = compiled.token_form.reasons
    assert other.text == "the state enters `tanh` which is not linear"
    assert reason.text == "state `h` has 1 axes; a matrix state [K, V] is compiled (vector states are the scan class)"
    assert reason.span is not None
    assert reason.span.line == 5


def test_what_has_a_chunkwise_form_may_ask_for_none():
    form = compile_text(SPEC.replace("input x : []", "input k : [K]\n    input v : [D]").replace("state h : [D]", "state h : [K, D]")
        .replace("tanh(h[t-1]) + x", "h[t-1] + k @ v^T").replace("= h[t]\n", "= h[t]^T @ k\n")).token_form  # fmt: skip
    assert form.reasons == ()
