"""Whatever the text: diagnostics, never another exception, never an internal error, and quickly."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recgen.lang import Diagnostic, Source, SpecErrors, diagnose, read_source
from recgen.lang.formatter import format_spec
from tests.lang.helpers import source

SPECS = Path(__file__).parents[2] / "specs"
VALID = [p.read_text(encoding="utf-8") for p in sorted(SPECS.glob("*.rec"))]
VALID += [p.read_text(encoding="utf-8") for p in sorted((Path(__file__).parent / "diagnostics").glob("*.rec"))]
PIECES = [
    "(", ")", "[", "]", "^T", "^", "*", "**", "@", "+", "-", "/", "=", ":", ",", "..", "<", ">=", "if", "else", "not", "for", "in", "t",
    "T", "I", "S[t]", "S[t-1]", "S", "k", "q", "exp(", "sum(", "where(", "1", "0", "1e999", "inf", "2.5", '"', "#", "'", "\n", "\r", "\t",
    " ", "\0", "α", "ᵀ", "₋", "input", "state", "option", "output o", "plan scan", "language 1", "recurrence r", "true", "lambda", "\\",
    "{", "é", "\u2028", "\ud7ff",
]  # fmt: skip


def harmless(text: str) -> tuple[Diagnostic, ...]:
    """All diagnostics of a text; each can be rendered, and none is an internal error."""
    spec = Source("x.rec", text)
    found = diagnose(spec)
    assert "E999" not in [d.code for d in found], found[0].message
    for diagnostic in found:
        assert diagnostic.render()
        assert diagnostic.to_json()
        assert diagnostic.span.line >= 1
        assert diagnostic.span.column >= 1
    assert "E999" not in format_codes(spec)
    return found


def format_codes(spec: Source) -> list[str]:
    try:
        format_spec(spec)
    except SpecErrors as problem:
        return [d.code for d in problem.diagnostics]
    return []


@given(st.text(max_size=300))
@settings(deadline=None)
def test_any_text(text: str) -> None:
    harmless(text)
    harmless("language 1\nrecurrence r\n" + text)


@given(st.lists(st.sampled_from(PIECES), max_size=40), st.sampled_from(["", " "]))
@settings(deadline=None)
def test_any_pieces(pieces: list[str], between: str) -> None:
    harmless("language 1\nrecurrence r\nstate S : [K, V]\ninput k : [K]\n" + between.join(pieces))


@given(st.sampled_from(VALID), st.data())
@settings(max_examples=300, deadline=None)
def test_mutated_specs(text: str, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 12)))
        middle = data.draw(st.one_of(st.just(""), st.sampled_from(PIECES), st.text(max_size=3), st.just(text[start:end][::-1])))
        text = text[:start] + middle + text[end:]
    harmless(text)


@given(st.sampled_from(VALID), st.data())
@settings(deadline=None)
def test_swapped_words_and_truncation(text: str, data: st.DataObject) -> None:
    words = text.split(" ")
    i, j = data.draw(st.integers(0, len(words) - 1)), data.draw(st.integers(0, len(words) - 1))
    words[i], words[j] = words[j], words[i]
    harmless(" ".join(words)[: data.draw(st.integers(0, len(text)))])


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_any_bytes(data: bytes) -> None:
    harmless(data.decode("latin-1"))


def test_bytes_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "x.rec"
    path.write_bytes(bytes(range(256)) * 4)
    with pytest.raises(SpecErrors) as caught:
        read_source(path)
    assert [d.code for d in caught.value.diagnostics] == ["E001"]


HUGE: dict[str, Callable[[], str]] = {
    "brackets": lambda: "o = " + "(" * 5000 + "1" + ")" * 5000,
    "open brackets": lambda: "o = " + "(" * 5000,
    "brackets over lines": lambda: "o = " + "(\n" * 5000,
    "mixed brackets": lambda: "o = " + "([" * 5000,
    "minus signs": lambda: "o = " + "-" * 5000 + "1",
    "nots": lambda: "o = 1 if " + "not " * 5000 + "f else 2",
    "sum": lambda: "o = " + "1 + " * 5000 + "1",
    "powers": lambda: "o = " + "2^" * 5000 + "1",
    "transposes": lambda: "o = k" + "^T" * 5000,
    "conditionals": lambda: "o = " + "1 if f else " * 5000 + "1",
    "calls": lambda: "o = " + "exp(" * 99 + "1" + ")" * 99,
    "digits": lambda: "o = " + "9" * 100_000,
    "const digits": lambda: "const n = " + "9" * 5000,
    "long name": lambda: "input " + "a" * 100_000 + " : [K]",
    "long unknown name": lambda: "input q : [K]\no = " + "q" * 100_000,
    "arguments": lambda: "o = max(" + "1," * 5000 + "1)",
    "axes": lambda: "input q : [" + "K," * 5000 + "K]",
    "definitions": lambda: "\n".join(f"x{i} = x{i + 1}" for i in range(2000)),
    "unknown names": lambda: "\n".join(f"x{i} = y{i}" for i in range(500)),
    "doubling": lambda: "x0 = 1\n" + "\n".join(f"x{i + 1} = x{i} * x{i}" for i in range(200)),
    "quotes": lambda: '"' * 5001,
    "comments": lambda: "#" * 100_000,
    "blank lines": lambda: "\n" * 100_000,
    "bad lines": lambda: "$\n" * 100_000,
    "wrong lines": lambda: "input\n" * 3000,
}


@pytest.mark.parametrize("name", HUGE)
def test_huge_texts(name: str) -> None:
    start = time.perf_counter()
    harmless(source(*HUGE[name]().split("\n")).text)
    assert time.perf_counter() - start < 10


def test_levels_say_so() -> None:
    for name in ("brackets", "minus signs", "sum", "powers", "transposes", "conditionals"):
        assert [d.code for d in harmless(source(HUGE[name]()).text)] == ["E005"]
