"""What is wrong with a line that does not parse, in the user's terms."""

from __future__ import annotations

import keyword
from typing import NoReturn

from lark import Token, UnexpectedInput, UnexpectedToken

from recgen.lang.diagnostics import Reporter
from recgen.lang.lexer import KEYWORDS, span_of
from recgen.lang.source import Span
from recgen.lang.suggest import closest, quote

_ENDS_OPERAND = {"NUMBER", "NAME", "RPAR", "RSQB", "TRANSPOSE"}
_STARTS_OPERAND = {"NUMBER", "NAME", "LPAR"}
_EXAMPLES = {
    "LANGUAGE": "write `language 1`",
    "RECURRENCE": "write `recurrence NAME`, a name of letters, digits and `_`",
    "INPUT": "write `input NAME : [K]`, or `[]` for one number per token and head",
    "PARAM": "write `param NAME : [K]`, or `[]` for one number per head",
    "CONST": "write `const NAME = 2`",
    "OPTION": "write `option NAME = 0.5`, or `true` or `false`",
    "STATE": "write `state NAME : [K, V]`",
    "OUTPUT": "write `output NAME, NAME`",
    "PLAN": "write `plan scan` or `plan recurrent`",
    "STABILIZE": "write `stabilize log`",
}
_TERMINALS = {
    "NUMBER": "a number", "NAME": "a name", "COLON": "`:`", "EQUAL": "`=`", "LSQB": "`[`", "RSQB": "`]`", "LPAR": "`(`", "RPAR": "`)`",
    "COMMA": "`,`", "$END": "the end of the line", "IN": "`in`", "ELSE": "`else`", "DOTDOT": "`..`", "FOR": "`for`", "MINUS": "`-`",
}  # fmt: skip


def explain(tokens: tuple[Token, ...], problem: UnexpectedInput, reporter: Reporter) -> NoReturn:
    """Report why the line of these tokens does not parse, and abandon it."""
    assert isinstance(problem, UnexpectedToken)
    index = next((i for i, t in enumerate(tokens) if t is problem.token), len(tokens))
    _whole_line(tokens, reporter)
    if 0 < index < len(tokens):
        _missing_operator(tokens, index, reporter)
    accepts = set(problem.accepts or problem.expected)
    _missing_comma(tokens, index, accepts, reporter)
    _expected(tokens, index, accepts, reporter)


def _whole_line(tokens: tuple[Token, ...], reporter: Reporter) -> None:
    """Lines whose first word or missing `=` tells more than the place where the parse stopped."""
    first = tokens[0]
    if first.type != "NAME" or _has_equal(tokens):
        _keyword_definition(tokens, reporter)
        return
    meant = closest(first, KEYWORDS)
    if meant is not None and len(tokens) > 1 and tokens[1].type in ("NAME", "NUMBER"):
        raise reporter.abandon("E105", span_of(first), help=f"did you mean `{meant}`?", keyword=first)
    span = span_of(first).to(span_of(tokens[-1]))
    if len(tokens) > 3 and tokens[1].type == "NAME" and tokens[2].type == "COLON":
        raise reporter.abandon("E105", span_of(first), help=f"the keywords are {', '.join(KEYWORDS)}", keyword=first)
    rest = quote(reporter.source, span_of(tokens[1]).to(span_of(tokens[-1]))) if len(tokens) > 1 else "..."
    if len(tokens) > 2 and tokens[1].type == "COLON":
        rest = quote(reporter.source, span_of(tokens[2]).to(span_of(tokens[-1])))
        shape = tokens[2].type == "LSQB"
        raise reporter.abandon("E108", span, help=f"write `input {first} : {rest}`" if shape else f"write `{first} = {rest}`")
    raise reporter.abandon("E108", span, help=f"write `{first} = {rest}`" if _definable(tokens) else "write `name = expression`")


def _definable(tokens: tuple[Token, ...]) -> bool:
    """Whether the line reads as a name and then an expression."""
    return len(tokens) > 1 and tokens[1].type in ("NAME", "NUMBER")


def _keyword_definition(tokens: tuple[Token, ...], reporter: Reporter) -> None:
    """`input = ...`: the first words of lines cannot be defined."""
    if tokens[0].type.lower() in KEYWORDS and len(tokens) > 1 and tokens[1].type in ("EQUAL", "LSQB"):
        word = str(tokens[0])
        raise reporter.abandon("E203", span_of(tokens[0]), help="choose another name", name=word, reason="it starts a line of its own kind")


def _has_equal(tokens: tuple[Token, ...]) -> bool:
    return any(t.type == "EQUAL" for t in tokens)


def _missing_operator(tokens: tuple[Token, ...], index: int, reporter: Reporter) -> None:
    left, right = tokens[index - 1], tokens[index]
    words = (str(left), str(right))
    if left.type not in _ENDS_OPERAND or right.type not in _STARTS_OPERAND or any(keyword.iskeyword(w) for w in words):
        return
    # Inside an expression only: declarations and output lists have their own grammar.
    if tokens[0].type not in ("NAME", "OPTION", "CONST") or not _has_equal(tokens[:index]):
        return
    span = span_of(left).to(span_of(right))
    raise reporter.abandon("E107", span, help=f"write `{left} * {right}`, or `@` for a matrix product", left=left, right=right)


def _missing_comma(tokens: tuple[Token, ...], index: int, accepts: set[str], reporter: Reporter) -> None:
    """`in(0 1)`: inside the brackets of a domain, where the bounds are apart but for a comma."""
    if tokens[0].type not in ("INPUT", "PARAM") or index >= len(tokens) or not {"COMMA", "RPAR"} <= accepts:
        return
    opened = max((i for i, t in enumerate(tokens[:index]) if t.type == "LPAR"), default=0)
    closed = next((i for i, t in enumerate(tokens) if i >= index and t.type == "RPAR"), len(tokens))
    if not opened or any(t.type == "RPAR" for t in tokens[opened:index]):
        return
    parts = [quote(reporter.source, span_of(ts[0]).to(span_of(ts[-1]))) for ts in (tokens[opened + 1 : index], tokens[index:closed]) if ts]
    advice = f"write `{tokens[opened - 1]}({', '.join(parts)})`"
    expected = "`,` between the bounds of the domain"
    raise reporter.abandon("E106", span_of(tokens[index]), help=advice, expected=expected, found=f"`{tokens[index]}`")


def _expected(tokens: tuple[Token, ...], index: int, accepts: set[str], reporter: Reporter) -> NoReturn:
    """The general case: what could stand here, and what does."""
    last = span_of(tokens[-1])
    span = span_of(tokens[index]) if index < len(tokens) else Span(last.end_line, last.end_column, last.end_line, last.end_column + 1)
    found = f"`{tokens[index]}`" if index < len(tokens) else "the end of the line"
    first = tokens[0].type
    if index < len(tokens) and "NAME" in accepts and "LPAR" not in accepts and str(tokens[index]).isidentifier():
        word = str(tokens[index])
        raise reporter.abandon("E203", span, help="choose another name", name=word, reason="it is a word of the language")
    advice = _EXAMPLES.get(first, "write `x if option else y`" if "ELSE" in accepts else None)
    raise reporter.abandon("E106", span, help=advice, expected=_describe(accepts), found=found)


def _describe(accepts: set[str]) -> str:
    """The accepted terminals in words, the many of an expression as one."""
    if "RECURRENCE" in accepts:
        return "a declaration or an equation"
    if {"NUMBER", "NAME", "LPAR", "MINUS"} <= accepts:
        return "an expression"
    if {"PLUS", "MINUS", "STAR"} <= accepts:
        closing = [_TERMINALS[t] for t in ("RPAR", "RSQB", "COMMA", "ELSE") if t in accepts]
        return " or ".join(["an operator", *closing])
    names = sorted(_TERMINALS.get(t, t.lower()) for t in accepts)
    return " or ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]
