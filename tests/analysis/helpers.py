"""Short specs for the analyzer."""

from __future__ import annotations

from recgen.analysis.analyzer import analyze
from recgen.analysis.normal_form import NormalForm
from recgen.analysis.refusal import Refusal
from recgen.explaining.terms import TermPrinter
from recgen.lang import Source, check, parse
from recgen.lang.terms import Term

KEY_FIRST = """
    input q : [K]
    input k : [K]
    input e : [K]
    input v : [V]
    input u : [V]
    input g : []  log_decay
    input f : [K] log_decay
    input h : [V] log_decay
    input a : []
    input b : []  in(0, 1)
    state S : [K, V]
"""
VALUE_FIRST = KEY_FIRST.replace("[K, V]", "[V, K]")


def analyzed(*lines: str, declarations: str = KEY_FIRST) -> NormalForm:
    """The normal form of these lines; declarations that they do not use are left out, but for consts."""
    body = "\n".join(f"    {line}" for line in lines)
    words = set("".join(c if c.isalnum() or c == "_" else " " for c in body).split())
    used = [line for line in declarations.strip("\n").split("\n") if line.split()[0] == "const" or line.split()[1] in words]
    return analyze(check(parse(Source("spec.rec", "language 1\nrecurrence r\n" + "\n".join(used) + f"\n{body}\n"))).recurrence)


def refusal(*lines: str, declarations: str = KEY_FIRST) -> str:
    """The reason why these lines have no normal form."""
    try:
        form = analyzed(*lines, declarations=declarations)
    except Refusal as found:
        return found.reason
    raise AssertionError(f"not refused: {form}")


def shown(form: NormalForm, term: Term | None) -> str | None:
    """A term as the language writes it."""
    return None if term is None else TermPrinter(form.recurrence, len(form.reads)).text(term)
