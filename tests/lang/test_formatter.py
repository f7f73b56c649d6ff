"""Canonical text: layout, comments, idempotence, meaning kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recgen.lang import Source, SpecErrors, parse
from recgen.lang.formatter import format_spec
from tests.lang.helpers import source

FOLDER = Path(__file__).parent / "diagnostics"
SPECS = Path(__file__).parents[2] / "specs"

UGLY = """
# A header.
language   1


recurrence demo   #the name
"Doc,  kept  as it is # really."
# inputs
input q:[K]grouped
  input   beta :[ ]   in( 0,1 )   grouped   # strength
\tinput g : [] log_decay floor( - 5 )# gate



param A_log:[]
option scale=K ^ -0.5
option use_norm   =true   # compile time
state S:[K,V]
  #! the update

kn=(l2norm( q )if not use_norm else q)
S[ t ]=exp( g )*( I-beta*kn@kn ^ T )@S[t - 1]+-beta*kn@(
  v ^T   # the value

    )
o = where( g<= - 1,S[t] ^T@q,- - q ^ -2 )
output o,kn
plan   scan
"""

CANONICAL = """\
# A header.
language 1

recurrence demo  # the name
    "Doc,  kept  as it is # really."
    # inputs
    input q    : [K] grouped
    input beta : []  in(0, 1) grouped     # strength
    input g    : []  log_decay floor(-5)  # gate

    param A_log : []
    option scale = K^-0.5
    option use_norm = true  # compile time
    state S     : [K, V]
    # ! the update

    kn   = (l2norm(q) if not use_norm else q)
    S[t] = exp(g) * (I - beta * kn @ kn^T) @ S[t-1] + -beta * kn @ (
        v^T  # the value

    )
    o = where(g <= -1, S[t]^T @ q, --q^-2)
    output o, kn
    plan scan
"""


def formatted(text: str) -> str:
    return format_spec(Source("x.rec", text))


def test_layout() -> None:
    assert formatted(UGLY) == CANONICAL


@pytest.mark.parametrize("path", [*sorted(SPECS.glob("*.rec")), *sorted(FOLDER.glob("*.rec"))], ids=lambda p: p.stem)
def test_idempotent_and_meaning_kept(path: Path) -> None:
    spec = Source(path.name, path.read_text(encoding="utf-8"))
    try:
        before = parse(spec)
    except SpecErrors:
        with pytest.raises(SpecErrors):
            format_spec(spec)
        return
    text = format_spec(spec)
    assert formatted(text) == text
    assert parse(Source(path.name, text)) == before


def test_crlf_becomes_lf() -> None:
    text = "language 1\r\n\r\nrecurrence r\r\n    o = 1  # one\r\n"
    assert formatted(text) == text.replace("\r\n", "\n")


def test_comments_at_the_end_and_before_everything() -> None:
    text = "# first\n\nlanguage 1\n# between\nrecurrence r\n    o = 1\n\n    # last\n"
    assert formatted(text) == text


ATOMS = st.sampled_from(["q", "beta", "I", "S[t]", "S[t-1]", "1", "0.5", "1e-5", "inf", ".5", "2."])


def _binary(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(lambda a, op, b: f"{a}{op}{b}", inner, st.sampled_from(["+", "-", "*", "/", "@", "^", " + ", " @ ", "  *\t"]), inner)


EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        _binary(inner),
        inner.map(lambda a: f"({a})"),
        inner.map(lambda a: f"( {a}\n  )"),
        inner.map(lambda a: f"-{a}"),
        inner.map(lambda a: f"({a})^T"),
        st.builds(lambda a, b: f"({a} if f else {b})", inner, inner),
        st.builds(lambda a, b: f"{a} if not f else {b}", inner, inner),
        st.builds(lambda a, b: f"where({a}<{b},{a},{b})", inner, inner),
        inner.map(lambda a: f"exp ({a} # note\n)"),
    ),
    max_leaves=12,
)


@given(EXPRESSIONS)
@settings(deadline=None)
def test_random_expressions_keep_their_meaning(text: str) -> None:
    spec = source(f"o={text}")
    try:
        before = parse(spec)
    except SpecErrors:
        # A conditional inside an operation may not parse; what matters is what does.
        return
    once = format_spec(spec)
    assert parse(Source("x", once)) == before
    assert formatted(once) == once
