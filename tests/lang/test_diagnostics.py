"""Every code with its exact text: each `diagnostics/CODE-what.rec` gives `diagnostics/CODE-what.txt`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recgen.lang import Source, Span, SpecErrors, compile_spec, diagnose, parse, read_source
from recgen.lang import api as lang_api
from recgen.lang.codes import CODES
from recgen.lang.diagnostics import Reporter
from tests.lang.helpers import source

FOLDER = Path(__file__).parent / "diagnostics"
CASES = sorted(FOLDER.glob("*.rec"))
TESTED_HERE = {"E001", "E501", "E503", "E999", "W502", "W503"}


def rendered(spec: Source) -> str:
    return "\n\n".join(d.render() for d in diagnose(spec))


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_exact_text(path: Path) -> None:
    spec = Source(path.name, path.read_text(encoding="utf-8"))
    expected = path.with_suffix(".txt").read_text(encoding="utf-8")
    assert rendered(spec) + "\n" == expected
    assert f"[{path.stem.split('-')[0]}]" in expected


def test_every_code_is_tested() -> None:
    assert {p.stem.split("-")[0] for p in CASES} | TESTED_HERE == set(CODES)


def test_every_case_has_its_text() -> None:
    assert {p.stem for p in FOLDER.glob("*.txt")} == {p.stem for p in CASES}


def test_severity_follows_the_code() -> None:
    assert all(entry.severity == ("warning" if code[0] == "W" else "error") for code, entry in CODES.items())


def test_binary_file(tmp_path: Path) -> None:
    path = tmp_path / "x.rec"
    path.write_bytes(b"language 1\nab\xff\xfe")
    with pytest.raises(SpecErrors) as caught:
        read_source(path)
    (found,) = caught.value.diagnostics
    assert (found.code, found.span.line, found.span.column) == ("E001", 2, 3)
    assert found.render() == (
        f"{path}:2:3: error[E001]: this is not a text file: byte 0xFF is not UTF-8\n"
        "    ab\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}\n"
        "      ^\n"
        "help: a spec is UTF-8 text"
    )


def test_nul_bytes() -> None:
    text = rendered(Source("x.rec", "language 1\0\n"))
    assert text == (
        "x.rec:1:1: error[E001]: this is not a text file: it contains NUL bytes\n"
        "    language 1\N{REPLACEMENT CHARACTER}\n"
        "    ^\n"
        "help: a spec is UTF-8 text"
    )


def test_byte_order_mark_and_crlf(tmp_path: Path) -> None:
    path = tmp_path / "x.rec"
    body = "\r\n".join(["language 1", "recurrence r", "input k : [K]", "state s : [K]", "s[t] = s[t-1] + (k", "  + 1)", "o = s[t]", ""])
    path.write_bytes(b"\xef\xbb\xbf" + body.encode())
    assert compile_spec(read_source(path)).outputs == ("o",)
    path.write_bytes(body.replace("o = s[t]", "o = s[t] + kk").encode())
    assert rendered(Source("x.rec", path.read_bytes().decode())) == (
        "x.rec:7:12: error[E201]: unknown name `kk`\n    o = s[t] + kk\n               ^^\nhelp: did you mean `k`?"
    )


def test_internal_error_takes_the_blame(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError("boom")

    monkeypatch.setattr(lang_api, "parse_text", fail)
    with pytest.raises(SpecErrors) as caught:
        parse(Source("x.rec", "language 1\n"))
    assert str(caught.value) == (
        "x.rec:1:1: error[E999]: internal error in recgen, not in your spec: KeyError: 'boom'\n"
        "    language 1\n"
        "    ^\n"
        "help: please report this spec and this message to the authors of recgen"
    )


def test_refusal_of_a_later_stage() -> None:
    reporter = Reporter(source("o = 1"))
    reporter.report("E501", Span(4, 5, 4, 6), form="chunkwise form", reason="the state is squared")
    (found,) = reporter.sorted()
    assert found.render() == "spec.rec:4:5: error[E501]: no chunkwise form: the state is squared\n        o = 1\n        ^"


def test_tabs_keep_the_caret_in_place() -> None:
    text = rendered(source("\to =\tkk"))
    assert "\n        \to =\tkk\n        \t   \t^^\n" in text


def test_long_lines_are_cut_around_the_caret() -> None:
    lines = rendered(source("x = " + "1 + " * 100 + "kk")).splitlines()
    at = next(i for i, line in enumerate(lines) if "E201" in line)
    assert len(lines[at + 1]) <= 144
    column = lines[at + 2].index("^^")
    assert lines[at + 1][column : column + 2] == "kk"


def test_json() -> None:
    found = diagnose(source("input q : [K]", "input q : [K]"))
    first = next(d for d in found if d.code == "E202")
    assert json.loads(json.dumps(first.to_json())) == {
        "code": "E202",
        "severity": "error",
        "message": "`q` is defined twice",
        "file": "spec.rec",
        "line": 5,
        "column": 11,
        "end_line": 5,
        "end_column": 12,
        "secondary": {"line": 4, "column": 11, "end_line": 4, "end_column": 12, "text": "the first one is here, an input"},
        "help": "give one of them another name",
    }
    assert next(d for d in found if d.code == "E406").to_json()["secondary"] is None


@pytest.mark.parametrize(
    ("text", "line", "help"),
    [
        ("langauge 1\nrecurrence r\no = 1", 1, "did you mean `language`?"),
        ("language 1\nrecurence r\no = 1", 2, "did you mean `recurrence`?"),
    ],
)
def test_a_misspelt_first_line_is_one_error(text: str, line: int, help: str) -> None:
    (found,) = diagnose(Source("x.rec", text))
    assert (found.code, found.span.line, found.help) == ("E105", line, help)


def test_independent_errors_are_found_in_one_run() -> None:
    found = diagnose(source("inptu q : [K]", "input k : [K] logdecay", "o = 2 k", "p = (1"))
    assert [d.code for d in found] == ["E105", "E211", "E107", "E008"]
