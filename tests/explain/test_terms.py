"""Terms as text read back as the same terms; brackets stand where precedence needs them and nowhere else."""

import pytest

from recgen.explaining.terms import TermPrinter
from recgen.lang import compile_spec
from recgen.lang.source import Source
from recgen.lang.terms import reads_state, rebuild
from tests.explain.helpers import SPECS, compiled

DECLARATIONS = """language 1
recurrence r
    input q : [K]
    input k : [K]
    input v : [V]
    input a : []
    input b : []
    option x = 2
    option on = false
    state S : [K, V]
"""
TERMS = [
    ("a - (b - x)", r"a - \left( b - x \right)"),
    ("a - b - x", "a - b - x"),
    ("a / (b * x)", r"\frac{a}{b \, x}"),
    ("a * b / x", r"\frac{a \, b}{x}"),
    ("(a + b) * x", r"\left( a + b \right) \, x"),
    ("-a^2", "-a^{2}"),
    ("(-a)^2", r"\left( -a \right)^{2}"),
    ("a^b^x", "a^{b^{x}}"),
    ("(a^b)^x", r"\left( a^{b} \right)^{x}"),
    ("2 * -a", r"2 \, -a"),
    ("a if on else b", r"\begin{cases} a & \text{if \texttt{on}} \\ b & \text{otherwise} \end{cases}"),
    ("(a if on else b) + 1", r"\begin{cases} a & \text{if \texttt{on}} \\ b & \text{otherwise} \end{cases} + 1"),
    ("where(a < b, a, b)", r"\begin{cases} a & a < b \\ b & \text{otherwise} \end{cases}"),
    ("max(a, 0.1) * sigmoid(b)", r"\max\left( a, 0.1 \right) \, \sigma\left( b \right)"),
    ("K^-0.5", r"K^{-0.5}"),
    ("k^T @ (q * k)", r"k^\top \, \left( q \odot k \right)"),
]


def value_of(text):
    """The term of an expression; everything is used so that nothing is reported as unused."""
    lines = f"    it = {text}\n    S[t] = S[t-1] + k @ v^T\n    o = it * S[t]^T @ q + (a + b + x) * v * (1 if on else 0)\n"
    return (recurrence := compile_spec(Source("r.rec", DECLARATIONS + lines))), recurrence.definition("it")


@pytest.mark.parametrize(("text", "latex"), TERMS, ids=[t for t, _ in TERMS])
def test_text_is_kept_and_latex_is_right(text, latex):
    recurrence, term = value_of(text)
    printed = TermPrinter(recurrence).formula(term, whole=True)
    assert (printed.text, printed.latex) == (text, latex)


@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_definitions_read_back(path):
    recurrence = compiled(path).recurrence
    printer = TermPrinter(recurrence)
    text = path.read_text(encoding="utf-8")
    # What reads the state is printed in full wherever it stands: then no other line may read it.
    reading = [d.name for d in recurrence.definitions if reads_state(d.value) and "1" in d.value.shape]
    text += f"    output {', '.join(reading)}\n" * ("output" not in text)
    lines = {line.split("=")[0].strip(): line for line in text.split("\n")}
    for definition in recurrence.definitions:
        if definition.name not in lines:  # the value of one micro-step: `x[j] = ...` stands for all
            continue
        start = lines[definition.name]
        printed = printer.formula(definition.value, whole=True).text
        again = compile_spec(Source(path.name, text.replace(start, f"    {definition.name} = {printed}")))
        assert rebuild(again.definition(definition.name), lambda t: t) == definition.value
