"""Inputs and outputs named like what emitted functions call their own things: every form in PyTorch against the loop, or refused."""

from __future__ import annotations

import symtable

import pytest

from recgen.lang import SpecErrors
from recgen.lang.functions import USED_BY_GENERATED, argument_reason, reserved_reason
from recgen.lang.lexer import KEYWORDS
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
    input {input} : [] in(0, 1)
    state S : [K, V]
"""
BODIES = {
    "chunk": "S[t] = exp(g) * (S[t-1] - {input} * k @ (k^T @ S[t-1])) + {input} * k @ v^T",
    "scan": "plan scan\n    S[t] = exp(g * {input} * {input}) * S[t-1] + ({input} * k) @ v^T",
    "recurrent": "plan recurrent\n    S[t] = exp(g) * S[t-1] + tanh({input} * k) @ v^T",
}


OUTPUTS = [
    "torch",
    "tl",
    "triton",
    "F",
    "math",
    "float",
    "ValueError",
    "final",
    "saved",
    "final_S",
    "_B",
    "_save",
    "_d_q",
    "_softplus",
    "_value_tl",
    "S_after",
]
"""Names of outputs: what launchers and kernels of their own look up, or take, or set."""


def compiled(kind: str, name: str = "b", output: str = "out"):
    text = f"{CONTEXT}    {BODIES[kind]}\n    half = softplus(0.5 * {{input}})\n    {{output}} = S[t]^T @ q + half * v\n"
    return compile_text(text.replace("{input}", name).replace("{output}", output), "names.rec")


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("name", NAMES)
def test_every_form(name: str, kind: str) -> None:
    if argument_reason(name) or reserved_reason(name):
        with pytest.raises(SpecErrors, match=name):
            compiled(kind, name)
        return
    result = compiled(kind, name)
    check_adjoint(result)
    _check_forms(result, kind)


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("name", OUTPUTS)
def test_every_form_of_an_output(name: str, kind: str) -> None:
    """It is known to callers by its place, and by its name in what the functions say they return."""
    result = compiled(kind, output=name)
    assert f"\n        {name} [B, T, HV, V]" in result.module.text
    check_adjoint(result)
    _check_forms(result, kind)


def _check_forms(result, kind: str) -> None:
    for form in ("naive", "chunk 16", "recurrent", "step"):
        if form != "chunk 16" or kind != "recurrent":
            report = reproduce(result, form, "float64", tokens=18, key_heads=2, heads=2)
            assert report.ok, str(report)


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize(
    "name", [n for n in dict.fromkeys((*NAMES, *OUTPUTS, *sorted(USED_BY_GENERATED))) if not reserved_reason(n) and n not in KEYWORDS]
)
def test_no_output_stands_in_the_place_of_another_thing(name: str, kind: str) -> None:
    """No function of a module takes for a variable of its own what every module's functions look up outside of them."""
    outside = _outside(compiled(kind).module.text)
    assert _outside(compiled(kind, output=name).module.text) == outside


def _outside(text: str) -> set[tuple[str, str]]:
    """Every function of a module with every name that it looks up outside of it."""
    functions = symtable.symtable(text, "names.py", "exec").get_children()
    return {(f.get_name(), s.get_name()) for f in functions for s in f.get_symbols() if s.is_global()}


def test_renaming_keeps_names_apart() -> None:
    from recgen.codegen.expressions import RESERVED, local

    names = [base + "_" * n for base in (*sorted(RESERVED), "after_1", "maximum", "read_1", "x", "d_q") for n in range(3)]
    assert len({local(n) for n in names}) == len(names)
    assert not RESERVED & {local(n) for n in names}
