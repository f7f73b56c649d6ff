"""Inputs named like what emitted functions call their own things: every form in PyTorch against the loop, or refused by name."""

from __future__ import annotations

import pytest

from recgen.lang import SpecErrors
from recgen.lang.functions import argument_reason, reserved_reason
from recgen.pipeline import compile_text
from recgen.verify import reproduce
from recgen.verify.adjoint import check_adjoint

NAMES = [
    "d_q",
    "d_k",
    "d_out",
    "d_S",
    "dq",
    "plan",
    "scale",
    "BT",
    "BK",
    "N",
    "D",
    "d",
    "d_1",
    "F",
    "math",
    "room",
    "whole",
    "tile",
    "at",
    "keep",
    "read",
    "read_",
    "read_1",
    "maximum",
    "before",
    "after",
    "before_",
    "after_",
    "after_1",
    "S_first",
    "S_states",
    "S_memory",
    "S_before",
    "S_after",
    "q_tokens",
    "q_spread",
    "product",
    "total",
    "dot",
    "b_q",
    "b_k",
    "p_q",
    "p_o",
    "i_t",
    "i_n",
    "i_h",
    "o_k",
    "m_t",
    "m_k",
    "cumulated",
    "decay",
    "through",
    "E",
    "U",
    "W",
    "L",
    "A_qk",
    "x",
    "r",
    "w",
    "info",
    "gradient",
    "dS",
    "from_start",
    "to_end",
    "q_",
    "h",
    "chunk",
    "sizes",
    "state",
    "tl",
    "torch",
]
CONTEXT = """language 1

recurrence names
    input q : [K]
    input k : [K]
    input v : [V]
    input g : [] log_decay
    input {name} : [] in(0, 1)
    state S : [K, V]
"""
BODIES = {
    "chunk": "S[t] = exp(g) * (S[t-1] - {name} * k @ (k^T @ S[t-1])) + {name} * k @ v^T",
    "scan": "plan scan\n    S[t] = exp(g * {name} * {name}) * S[t-1] + ({name} * k) @ v^T",
    "recurrent": "plan recurrent\n    S[t] = exp(g) * S[t-1] + tanh({name} * k) @ v^T",
}


def compiled(name: str, kind: str):
    text = f"{CONTEXT}    {BODIES[kind]}\n    out = S[t]^T @ q + {{name}} * v\n"
    return compile_text(text.replace("{name}", name), "names.rec")


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("name", NAMES)
def test_every_form(name: str, kind: str) -> None:
    if argument_reason(name) or reserved_reason(name):
        with pytest.raises(SpecErrors, match=name):
            compiled(name, kind)
        return
    result = compiled(name, kind)
    check_adjoint(result)
    for form in ("naive", "chunk 16", "recurrent", "step"):
        if form != "chunk 16" or kind != "recurrent":
            report = reproduce(result, form, "float64", tokens=18, key_heads=2, heads=2)
            assert report.ok, str(report)


def test_renaming_keeps_names_apart() -> None:
    from recgen.codegen.expressions import RESERVED, local

    names = [base + "_" * n for base in (*sorted(RESERVED), "after_1", "maximum", "read_1", "x", "d_q") for n in range(3)]
    assert len({local(n) for n in names}) == len(names)
    assert not RESERVED & {local(n) for n in names}
