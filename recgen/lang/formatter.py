"""Canonical text of a spec: same meaning, comments and single blank lines kept, colons, equal signs and comments aligned by block."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from lark import Token

from recgen.lang.api import parse
from recgen.lang.diagnostics import Reporter, internal_error
from recgen.lang.lexer import Line, lex
from recgen.lang.source import Source

_INDENT = "    "
_FRAME = ("LANGUAGE", "RECURRENCE")
_TIGHT_AFTER = {"LPAR", "LSQB", "CARET", "DOTDOT"}
_TIGHT_BEFORE = {"RPAR", "RSQB", "COMMA", "CARET", "TRANSPOSE", "DOTDOT"}
_OPERATORS = {"PLUS", "MINUS", "STAR", "SLASH", "AT", "CARET", "EQUAL", "COMPARE", "LPAR", "LSQB", "COMMA", "IF", "ELSE", "NOT", "IN"}


@dataclass
class _Row:
    """A physical line of the result at an indentation level. A declaration or equation is split at its `separator` to be aligned."""

    number: int
    level: int
    head: str = ""
    separator: str = ""
    body: str = ""
    words: str = ""
    comment: str = ""

    @property
    def code(self) -> str:
        """The row without its comment."""
        text = f"{self.head} {self.separator} {self.body}{self.words}" if self.separator else self.head
        return f"{_INDENT * self.level}{text}".rstrip()


def format_spec(source: Source) -> str:
    """The canonical text of a spec. Raises `SpecErrors` where it does not parse."""
    before = parse(source)
    lexed = lex(source, Reporter(source))
    rows: dict[int, _Row] = {}
    for line in lexed.lines:
        for row in _rows(line):
            rows[row.number] = row
    in_recurrence = [line.tokens[0].line or 1 for line in lexed.lines if line.tokens[0].type == "RECURRENCE"]
    for comment in lexed.comments:
        number = comment.line or 1
        rows.setdefault(number, _Row(number, int(number > in_recurrence[0]))).comment = _comment(comment)
    text = _layout([rows[n] for n in sorted(rows)])
    try:
        same = parse(Source(source.name, text)) == before
    except Exception as problem:
        raise internal_error(source, problem) from problem
    if not same:
        raise internal_error(source, AssertionError("formatting changed the meaning"))
    return text


def _comment(token: Token) -> str:
    inner = token[1:].strip()
    return f"# {inner}" if inner and inner[0] != "#" else f"#{inner}"


def _rows(line: Line) -> list[_Row]:
    """The physical lines of a logical one, split where the user split it."""
    pieces: dict[int, list[int]] = {}
    for index, token in enumerate(line.tokens):
        pieces.setdefault(token.line or 1, []).append(index)
    return [_row(line.tokens, indices, number) for number, indices in pieces.items()]


def _row(tokens: tuple[Token, ...], indices: list[int], number: int) -> _Row:
    start, end = indices[0], indices[-1] + 1
    if start > 0:
        closes = tokens[start].type in ("RPAR", "RSQB")
        return _Row(number, 1 if closes else 2, _spaced(tokens, start, end))
    kind = tokens[0].type
    separator = "COLON" if kind in ("INPUT", "PARAM", "STATE") else "EQUAL"
    split = next((i for i in indices if tokens[i].type == separator), None)
    # Options have names of very different lengths: aligning them reads worse.
    if split is None or split + 1 == end or kind in ("OPTION", "CONST"):
        return _Row(number, int(kind not in _FRAME), _spaced(tokens, start, end))
    row = _Row(number, 1, _spaced(tokens, start, split), str(tokens[split]))
    shape = next((i + 1 for i in indices if tokens[i].type == "RSQB" and i > split), end) if tokens[split] == ":" else end
    row.body = _spaced(tokens, split + 1, shape)
    row.words = _spaced(tokens, shape, end) if shape < end else ""
    return row


def _spaced(tokens: tuple[Token, ...], start: int, end: int) -> str:
    """The tokens with canonical blanks between them."""
    text = str(tokens[start])
    for i in range(start + 1, end):
        text += ("" if _tight(tokens, i) else " ") + str(tokens[i])
    return text


def _tight(tokens: tuple[Token, ...], i: int) -> bool:
    """Whether no blank stands before token `i`."""
    left, right = tokens[i - 1], tokens[i]
    if left.type in _TIGHT_AFTER or right.type in _TIGHT_BEFORE:
        return True
    if right.type in ("LPAR", "LSQB"):
        # A call, an index, or `in(0, 1)`; else a bracket after an operator.
        return left.type == "NAME" or (left.type == "IN" and right.type == "LPAR")
    if left.type == "MINUS" and _is_unary(tokens, i - 1):
        return True
    return _in_index(tokens, i) and (left.type in ("PLUS", "MINUS") or right.type in ("PLUS", "MINUS"))


def _is_unary(tokens: tuple[Token, ...], i: int) -> bool:
    return i == 0 or tokens[i - 1].type in _OPERATORS


def _in_index(tokens: tuple[Token, ...], i: int) -> bool:
    """Whether token `i` stands directly in the brackets of `S[t-1]`."""
    depth = 0
    for token in reversed(tokens[:i]):
        depth += (token.type in ("RPAR", "RSQB")) - (token.type in ("LPAR", "LSQB"))
        if depth < 0:
            return token.type == "LSQB"
    return False


def _layout(rows: list[_Row]) -> str:
    """The rows as text, aligned within blocks; blocks end at blank lines."""
    lines: list[str] = []
    block: list[_Row] = []
    for row in rows:
        if block and row.number > block[-1].number + 1:
            lines += [*_block(block), ""]
            block = []
        block.append(row)
    return "\n".join([*lines, *_block(block)]) + "\n"


def _block(rows: list[_Row]) -> list[str]:
    """Align the parts of the rows of one block, and then their comments."""
    for separator in (":", "="):
        alike = [r for r in rows if r.separator == separator]
        head = max((len(r.head) for r in alike), default=0)
        body = max((len(r.body) for r in alike if r.words), default=0)
        for row in alike:
            row.head = row.head.ljust(head)
            row.words = f"{' ' * (body - len(row.body) + 1)}{row.words}" if row.words else ""
    runs = groupby(rows, key=lambda r: (bool(r.comment and r.code), r.level))
    return [line for _, run in runs for line in _commented(list(run))]


def _commented(rows: list[_Row]) -> list[str]:
    """Rows with their comments in one column; rows without code are comments alone."""
    width = max(len(row.code) for row in rows)
    return [f"{row.code.ljust(width)}  {row.comment}" if row.code and row.comment else row.code or _alone(row) for row in rows]


def _alone(row: _Row) -> str:
    return f"{_INDENT * row.level}{row.comment}"
