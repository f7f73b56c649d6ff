"""Recurrences of papers, written in the language: they pass, with the shapes and bounds one expects."""

from __future__ import annotations

import pytest

from recgen.lang import Source, check, format_spec, interval, parse
from recgen.lang.recurrence import Recurrence
from recgen.lang.terms import Apply, Term, walk

MAMBA_1 = """
    input x     : [D]
    input dt    : [D]
    input B     : [N]
    input C     : [N]
    param A_log : [D, N]
    param bias  : [D]
    param skip  : [D]
    state h     : [D, N]

    step = softplus(dt + bias)
    h[t] = exp(-step * exp(A_log)) * h[t-1] + (step * x) @ B^T
    y    = h[t] @ C + skip * x
"""

MAMBA_2 = """
    input x     : [P]
    input dt    : []
    input B     : [N] grouped
    input C     : [N] grouped
    param A_log : []
    param bias  : []
    param skip  : []
    state S     : [N, P]

    step = softplus(dt + bias)
    S[t] = exp(-exp(A_log) * step) * S[t-1] + B @ (step * x)^T
    y    = S[t]^T @ C + skip * x
"""

KDA = """
    input q    : [K] grouped
    input k    : [K] grouped
    input v    : [V]
    input g    : [K] log_decay floor(-5)
    input beta : []  in(0, 1)
    option scale = K^-0.5
    state S    : [K, V]

    S[t] = (I - beta * k @ k^T) @ (exp(g) * S[t-1]) + beta * k @ v^T
    o    = scale * S[t]^T @ q
"""

RWKV_7 = """
    input r : [K]
    input w : [K] log_decay
    input k : [K]
    input v : [V]
    input a : [K]
    input b : [K]
    state S : [V, K]

    S[t] = S[t-1] @ (exp(w) * I + a @ b^T) + v @ k^T
    o    = S[t] @ r
"""

MLSTM = """
    input q : [K]
    input k : [K]
    input v : [V]
    input i : []
    input f : []
    state S : [K, V]
    state n : [K]
    state m : []
    stabilize log

    g    = logsigmoid(f)
    m[t] = max(g + m[t-1], i)
    keep = exp(g + m[t-1] - m[t])
    add  = exp(i - m[t])
    S[t] = keep * S[t-1] + add * k @ v^T
    n[t] = keep * n[t-1] + add * k
    o    = S[t]^T @ q / max(abs(n[t]^T @ q), exp(-m[t]))
"""

TITANS = """
    input k    : [K]
    input v    : [V]
    input q    : [K]
    input eta  : [] decay
    input beta : [] in(0, 1)
    input g    : [] log_decay
    state M    : [K, V]
    state S    : [K, V]

    error = v - S[t-1]^T @ k
    M[t]  = eta * M[t-1] + beta * k @ error^T
    S[t]  = exp(g) * S[t-1] + M[t]
    o     = S[t]^T @ q
"""

SPECS = {"mamba_1": MAMBA_1, "mamba_2": MAMBA_2, "kda": KDA, "rwkv_7": RWKV_7, "mlstm": MLSTM, "titans": TITANS}


def load(name: str) -> Recurrence:
    result = check(parse(Source(name, f"language 1\nrecurrence {name}\n{SPECS[name]}")))
    assert result.warnings == ()
    return result.recurrence


@pytest.mark.parametrize("name", SPECS)
def test_valid(name: str) -> None:
    found = load(name)
    assert len(found.outputs) == 1
    assert found.definition(found.outputs[0]).shape[1] == "1"


@pytest.mark.parametrize("name", SPECS)
def test_canonical(name: str) -> None:
    text = format_spec(Source(name, f"language 1\n\nrecurrence {name}\n" + SPECS[name][1:]))
    assert text == f"language 1\n\nrecurrence {name}\n" + SPECS[name][1:]


def decay(term: Term) -> Term:
    """The first exponential of a term."""
    return next(x for x in walk(term) if isinstance(x, Apply) and x.op == "exp")


@pytest.mark.parametrize("name", ["mamba_1", "mamba_2", "kda", "rwkv_7", "titans"])
def test_decays_are_proved(name: str) -> None:
    found = load(name)
    bounds = interval(decay(found.states[-1].equation), found.arguments)
    assert bounds.within(0, 1)


def test_floor_bounds_the_decay() -> None:
    found = load("kda")
    assert interval(decay(found.states[0].equation), found.arguments).low == pytest.approx(0.006737946999)
