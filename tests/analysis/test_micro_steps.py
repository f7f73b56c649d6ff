"""Micro-steps: which streams they make, what finds what at one token, and what has no chunkwise form."""

from __future__ import annotations

import pytest

from recgen.derive.operands import name_operands
from tests.analysis.helpers import analyzed, refusal

DECLARATIONS = """
    const n = 2
    input q : [K]
    input k : [n, K]
    input v : [n, V]
    input e : [K]
    input u : [V]
    input g : []  log_decay
    input b : [n] in(0, 2)
    state S : [K, V]
"""
DELTA = "S[t, j] = S[t, j-1] + b[j] * k[j] @ (v[j] - S[t, j-1]^T @ k[j])^T for j in 1..n"
READ = "o = S[t]^T @ q"


def test_every_micro_step_corrects_what_the_one_before_left():
    form = analyzed("S[t, 0] = exp(g) * S[t-1]", DELTA, READ, declarations=DECLARATIONS)
    assert form.decay.kind == "scalar"
    assert [(s.slot, s.decayed, s.correct is not None) for s in form.streams] == [(1, True, True), (2, True, True)]
    one, two = name_operands(form).streams
    assert (two.finds(one), one.finds(two), two.finds(two)) == (True, False, False)
    (read,) = name_operands(form).reads
    assert read.sees(one) and read.sees(two)


def test_the_first_micro_step_may_correct_what_it_then_forgets():
    first = "S[t, 1] = exp(g) * S[t, 0] + k[1] @ (v[1] - S[t, 0]^T @ k[1])^T"
    second = "S[t, 2] = S[t, 1] + k[2] @ (v[2] - S[t, 1]^T @ k[2])^T"
    form = analyzed("S[t, 0] = S[t-1]", first, second, READ, declarations=DECLARATIONS)
    assert [(s.slot, s.decayed) for s in form.streams] == [(1, False), (2, True)]


def test_reads_between_micro_steps():
    reads = ("x = S[t, 0]^T @ q", "y = S[t, 1]^T @ q", "z = S[t, n]^T @ q", "w = S[t-1]^T @ q", "output x, y, z, w")
    form = analyzed("S[t, 0] = S[t-1]", DELTA, *reads, declarations=DECLARATIONS)
    assert [(r.lag, r.slot) for r in form.reads] == [(1, 0), (0, 1), (0, 2)]  # before anything happens it is the state before the token
    operands = name_operands(form)
    assert [[r.sees(s) for s in operands.streams] for r in operands.reads] == [[False, False], [True, False], [True, True]]
    form = analyzed("S[t, 0] = exp(g) * S[t-1]", DELTA, *reads, declarations=DECLARATIONS)
    assert [(r.lag, r.slot) for r in form.reads] == [(0, 0), (0, 1), (0, 2), (1, 0)]


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (
            ("S[t, 0] = S[t-1] + e @ u^T", "S[t, 1] = exp(g) * S[t, 0] + k[1] @ v[1]^T + k[2] @ v[2]^T"),
            "the micro-step `S[t, 1]` decays the state, but an earlier one writes; one decay before all writes is compiled",
        ),
        (
            ("S[t, 0] = exp(g) * S[t-1]", "S[t, 1] = exp(g) * S[t, 0] + k[1] @ v[1]^T + k[2] @ v[2]^T"),
            "the micro-step `S[t, 1]` decays the state, but `S[t, 0]` decays already; one decay before all writes is compiled",
        ),
        (
            ("S[t, 0] = exp(g) * S[t-1]", "S[t, 1] = S[t, 0] + k[1] @ (v[1] + v[2])^T - k[2] @ (S[t-1]^T @ k[2])^T"),
            "the micro-step `S[t, 1]` reads `S[t-1]`, not `S[t, 0]` before it",
        ),
        (
            ("S[t, 0] = S[t-1]", "S[t, 1] = exp(g) * S[t, 0]", "p = S[t]^T @ (k[1] + k[2])", "output o, p"),
            "nothing is ever written into the state",
        ),
    ],
)
def test_what_is_refused(lines: tuple[str, ...], reason: str):
    assert refusal(*lines, READ, declarations=DECLARATIONS) == reason
