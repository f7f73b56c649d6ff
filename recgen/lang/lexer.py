"""Text -> tokens in logical lines. Newlines inside brackets continue a line; look-alikes are reported and read as what they mean."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lark import Token

from recgen.lang.diagnostics import Label, Reporter
from recgen.lang.lookalikes import PATTERN, SUPERSCRIPTS, ascii_name, replacement
from recgen.lang.source import Source, Span

KEYWORDS = ("language", "recurrence", "input", "param", "const", "option", "state", "output", "plan", "stabilize")
"""First words of lines. They are names elsewhere."""

WORDS = {"if": "IF", "else": "ELSE", "for": "FOR", "in": "IN", "not": "NOT", "inf": "NUMBER"}
"""Names that are tokens of their own everywhere."""

MAX_BRACKETS = 100
_MAX_BROKEN = 25

_OPEN = {"(": ")", "[": "]"}
_SYMBOLS = {
    "(": "LPAR", ")": "RPAR", "[": "LSQB", "]": "RSQB", ",": "COMMA", ":": "COLON", "=": "EQUAL",
    "+": "PLUS", "-": "MINUS", "*": "STAR", "/": "SLASH", "@": "AT", "^": "CARET",
}  # fmt: skip

_TOKEN = re.compile(
    rf"""
    (?P<SPACE>[ \t\ufeff]+|\r(?=\n|\Z))
  | (?P<NEWLINE>\n)
  | (?P<COMMENT>\#[^\n]*)
  | (?P<STRING>"[^"\n]*")
  | (?P<UNCLOSED>"[^"\n]*)
  | (?P<TRANSPOSE>\^[ \t]*T(?!\w))
  | (?P<LOOKALIKE>{PATTERN})
  | (?P<NUMBER>(?:[0-9]+(?:\.(?!\.|T(?!\w))[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
  | (?P<NAME>[^\W\d{SUPERSCRIPTS}][^\W{SUPERSCRIPTS}]*)
  | (?P<DOTDOT>\.\.)
  | (?P<COMPARE><=|>=|<|>)
  | (?P<SYMBOL>[()\[\],:=+\-*/@^])
  | (?P<OTHER>.)
    """,
    re.VERBOSE | re.DOTALL,
)

# In brackets, only a new statement looks like this: the bracket was forgotten.
_STATEMENT = re.compile(rf"[ \t]*(?:(?:{'|'.join(KEYWORDS)})[ \t]+\w|[A-Za-z_]\w*[ \t]*(?:\[[^\]\n]*\])?[ \t]*=(?!=))")


@dataclass(frozen=True)
class Line:
    """A logical line: its tokens, and whether an error in them was already reported."""

    tokens: tuple[Token, ...]
    broken: bool


@dataclass(frozen=True)
class Lexed:
    """A file as logical lines without empty ones, and its comments."""

    lines: tuple[Line, ...]
    comments: tuple[Token, ...]


def span_of(token: Token) -> Span:
    """Where a token stands."""
    return Span(token.line or 1, token.column or 1, token.end_line or 1, token.end_column or 1)


def lex(source: Source, reporter: Reporter) -> Lexed:
    """The logical lines of a source; what is not a token is reported and left out."""
    return _Lexer(source, reporter).run()


class _Lexer:
    def __init__(self, source: Source, reporter: Reporter) -> None:
        self.text = source.text
        self.reporter = reporter
        self.number, self.line_start = 1, 0
        self.tokens: list[Token] = []
        self.brackets: list[Token] = []
        self.broken = False
        self.lines: list[Line] = []
        self.comments: list[Token] = []

    def run(self) -> Lexed:
        position, broken = 0, 0
        while position < len(self.text):
            match = _TOKEN.match(self.text, position)
            assert match is not None
            assert match.lastgroup is not None
            self._take(match.lastgroup, match)
            position = match.end()
            if match.lastgroup == "NEWLINE":
                broken += self._newline(position)
                if broken >= _MAX_BROKEN and position < len(self.text):
                    self.reporter.report("E010", Span(self.number, 1, self.number, 1))
                    break
        self._end_line()
        return Lexed(tuple(self.lines), tuple(self.comments))

    def _take(self, kind: str, match: re.Match[str]) -> None:
        """Handle one match that is not a newline."""
        found = match.group()
        span = Span(self.number, match.start() - self.line_start + 1, self.number, match.end() - self.line_start + 1)
        if kind == "COMMENT":
            self.comments.append(_token("COMMENT", found.rstrip(), span))
        elif kind == "UNCLOSED":
            self._fail("E004", span, help='close it on the same line with `"`')
        elif kind == "OTHER":
            self._other(found, span)
        elif kind == "LOOKALIKE":
            self._lookalike(found, span)
        elif kind == "NAME" and not found.isascii():
            self._foreign_name(found, span)
        elif kind not in ("SPACE", "NEWLINE"):
            self._add(kind, found, span)

    def _add(self, kind: str, text: str, span: Span) -> None:
        """Append a token and keep track of brackets."""
        kind = WORDS.get(text, kind) if kind == "NAME" else _SYMBOLS.get(text, kind)
        if kind == "NAME" and not self.tokens and text in KEYWORDS:
            kind = text.upper()
        token = _token(kind, "^T" if kind == "TRANSPOSE" else text, span)
        self.tokens.append(token)
        if text in _OPEN:
            self.brackets.append(token)
            if len(self.brackets) == MAX_BRACKETS + 1:
                self._fail("E005", span, help="give inner parts names of their own", limit=MAX_BRACKETS)
        elif kind in ("RPAR", "RSQB"):
            self._close(token, span)

    def _close(self, token: Token, span: Span) -> None:
        opener = self.brackets.pop() if self.brackets else None
        if opener is not None and _OPEN[opener] == token:
            return
        other = next(o for o, c in _OPEN.items() if c == token)
        if opener is None:
            self._fail("E009", span, f"remove it, or write `{other}` before it", bracket=token, other=other)
        else:
            label = Label(span_of(opener), f"this `{opener}` is open")
            self._fail("E009", span, f"write `{_OPEN[opener]}`", label, bracket=token, other=other)

    def _lookalike(self, found: str, span: Span) -> None:
        """Report a foreign spelling and go on with the right one, so that the rest of the line is still checked."""
        right = replacement(found)
        if found == "==" and self.brackets:
            self._fail("E007", span, help="compare with `<`, `<=`, `>` or `>=`", found=found)
            return
        if found == "\N{NO-BREAK SPACE}":
            self.reporter.report("E003", span, help="write an ordinary space", character=_describe(found))
            return
        self.reporter.report("E007", span, help=f"write `{right}`", found=found)
        for match in _TOKEN.finditer(right):
            if match.lastgroup is not None:
                self._add(match.lastgroup, match.group(), span)

    def _foreign_name(self, found: str, span: Span) -> None:
        name = ascii_name(found)
        advice = "names are made of ASCII letters, digits and `_`"
        if name is None:
            self._fail("E007", span, help=advice, found=found)
            return
        self.reporter.report("E007", span, help=f"write `{name}`: {advice}", found=found)
        self._add("NAME", name, span)

    def _other(self, found: str, span: Span) -> None:
        advice = {
            "{": "group with `(` and `)`",
            "}": "group with `(` and `)`",
            ";": "write one statement on each line",
            "\\": "a line goes on inside brackets: no `\\` is needed",
            "%": "comments start with `#`",
            "“": 'write `"`',
            "”": 'write `"`',
        }
        self._fail("E003", span, help=advice.get(found), character=_describe(found))

    def _fail(self, code: str, span: Span, help: str | None, label: Label | None = None, **values: object) -> None:
        """Report an error that makes the line unusable; only the first one of a line is worth reading."""
        if not self.broken:
            self.reporter.report(code, span, secondary=label, help=help, **values)
        self.broken = True

    def _newline(self, position: int) -> bool:
        """Start the next physical line at `position`; whether a broken logical line ended here."""
        self.number, self.line_start = self.number + 1, position
        if self.brackets and _STATEMENT.match(self.text, position) is None:
            return False
        return self._end_line()

    def _end_line(self) -> bool:
        """Finish the logical line; whether it was broken."""
        if self.brackets and not self.broken:
            opener = self.brackets[-1]
            self._fail("E008", span_of(opener), help=f"add `{_OPEN[opener]}`", bracket=opener)
        broken = self.broken
        if self.tokens or broken:
            self.lines.append(Line(tuple(self.tokens), broken))
        self.tokens, self.brackets, self.broken = [], [], False
        return broken


def _token(kind: str, text: str, span: Span) -> Token:
    return Token(kind, text, line=span.line, column=span.column, end_line=span.end_line, end_column=span.end_column)


def _describe(character: str) -> str:
    return f"`{character}`" if character.isprintable() else f"U+{ord(character):04X}"
