"""Stage 1: text -> syntax tree. Every line is parsed by itself, so that each gets its own errors."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from importlib.resources import files
from typing import Any

from lark import Lark, Token, Tree, UnexpectedInput
from lark.lexer import Lexer

from recgen.lang import syntax
from recgen.lang.builder import check_depth, name_of, number_of
from recgen.lang.declarations import statement
from recgen.lang.diagnostics import Abandon, Label, Reporter
from recgen.lang.lexer import KEYWORDS, Line, lex, span_of
from recgen.lang.source import Source, Span
from recgen.lang.suggest import closest
from recgen.lang.syntax_errors import explain

LANGUAGE = 1
"""The revision of the language that this compiler reads."""


class _Tokens(Lexer):
    """Hands the tokens of a line to Lark."""

    def __init__(self, _: Any) -> None:
        pass

    def lex(self, data: Any) -> Iterator[Token]:  # type: ignore[override]
        return iter(data)


@lru_cache(maxsize=1)
def _grammar() -> Lark:
    text = files("recgen.lang").joinpath("grammar.lark").read_text(encoding="utf-8")
    return Lark(text, parser="lalr", lexer=_Tokens, start="line", propagate_positions=True, maybe_placeholders=False, keep_all_tokens=True)


def parse_text(source: Source, reporter: Reporter) -> syntax.Spec | None:
    """The syntax tree; errors go to the reporter. None only where the file's frame (language, recurrence) is missing."""
    start = Span(1, 1, 1, 1)
    if "\0" in source.text:
        reporter.report("E001", start, help="a spec is UTF-8 text", reason="it contains NUL bytes")
        return None
    lines = lex(source, reporter).lines
    if not lines:
        reporter.report("E002", start, help="start with `language 1`, then `recurrence NAME`")
        return None
    return _Frame(source, reporter).read(lines)


class _Frame:
    """Reads the lines of a file in order and keeps what surrounds the statements."""

    def __init__(self, source: Source, reporter: Reporter) -> None:
        self.source, self.reporter = source, reporter
        self.language: Span | None = None
        self.version = LANGUAGE
        self.name: syntax.Name | None = None
        self.doc: list[str] = []
        self.statements: list[syntax.Statement] = []

    def read(self, lines: tuple[Line, ...]) -> syntax.Spec | None:
        for line in lines:
            try:
                self._line(line)
            except Abandon:
                continue
        if self.name is None and not self.reporter.found:
            last = span_of(lines[-1].tokens[-1])
            self.reporter.report("E103", last, help="name the recurrence, as in `recurrence gated_delta_rule`")
        if self.name is None:
            return None
        return syntax.Spec(self.source, self.version, self.name, "\n".join(self.doc), tuple(self.statements))

    def _line(self, line: Line) -> None:
        kind = line.tokens[0].type if line.tokens else ""
        if line.broken:
            # What the line was meant to be still counts, so that no second error follows from the first.
            self.language = self.language or Span(1, 1, 1, 1)
            if kind == "RECURRENCE" and self.name is None:
                self.name = syntax.Name("unknown", span_of(line.tokens[0]))
            return
        span = span_of(line.tokens[0]).to(span_of(line.tokens[-1]))
        self._order(line, kind, span)
        try:
            tree = _grammar().parse(line.tokens)
        except UnexpectedInput as problem:
            explain(line.tokens, problem, self.reporter)
        check_depth(tree, self.reporter, span)
        self._keep(tree, kind, line, span)

    def _order(self, line: Line, kind: str, span: Span) -> None:
        """The frame's own lines must come first and once. A misspelt one counts: it gets an error of its own, and no second one."""
        meant = closest(line.tokens[0], KEYWORDS) if kind == "NAME" and len(line.tokens) == 2 else None
        if meant == "language":
            self.language = self.language or span
            return
        if meant == "recurrence":
            self.name = self.name or syntax.Name("unknown", span)
        if kind != "LANGUAGE" and self.language is None:
            self.language = span
            self.reporter.report("E101", span, help="write `language 1` above it")
        if kind == "STRING":
            return
        if kind not in ("LANGUAGE", "RECURRENCE") and self.name is None:
            self.name = syntax.Name("unknown", span)
            self.reporter.report("E103", span, help="write `recurrence NAME` above it, as in `recurrence gated_delta_rule`")
        known = {"LANGUAGE": self.language, "RECURRENCE": self.name.span if self.name else None}.get(kind)
        if known is not None:
            keyword = kind.lower()
            advice = "one file holds one recurrence" if kind == "RECURRENCE" else "remove it"
            raise self.reporter.abandon("E104", span, secondary=Label(known, "the first one is here"), help=advice, keyword=keyword)

    def _keep(self, tree: Tree[Token], kind: str, line: Line, span: Span) -> None:
        if kind == "LANGUAGE":
            self.language = span
            self._version(line.tokens[1])
        elif kind == "RECURRENCE":
            self.name = name_of(line.tokens[1])
        elif kind == "STRING":
            if self.name is None or self.statements:
                raise self.reporter.abandon("E109", span, help="write a comment with `#`")
            self.doc.append(str(line.tokens[0])[1:-1])
        else:
            self.statements.append(statement(tree, self.reporter, span))

    def _version(self, token: Token) -> None:
        if number_of(token, self.reporter) != LANGUAGE:
            raise self.reporter.abandon("E102", span_of(token), help=f"this compiler reads `language {LANGUAGE}`", number=token)
