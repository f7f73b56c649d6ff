"""Lark's trees of declaration lines -> statements."""

from __future__ import annotations

import math
from collections.abc import Iterable

from lark import Token, Tree

from recgen.lang import syntax
from recgen.lang.builder import Builder, Node, name_of, number_of
from recgen.lang.diagnostics import Label, Reporter
from recgen.lang.lexer import span_of
from recgen.lang.source import Span
from recgen.lang.suggest import closest, did_you_mean

DOMAINS = {"log_decay": 0, "decay": 0, "in": 2, "positive": 0, "negative": 0, "nonnegative": 0, "floor": 1}
"""Domain -> how many bounds it takes."""

DIRECTIVES = {"plan": ("scan", "recurrent"), "stabilize": ("log",)}
"""First word of a directive -> the words that may follow."""


def statement(tree: Node, reporter: Reporter, span: Span) -> syntax.Statement:
    """The statement of a `line` tree that covers `span`."""
    (node,) = tree.children
    assert isinstance(node, Tree)
    build = Builder(reporter)
    match node.data:
        case "argument":
            return _argument(node, reporter, span)
        case "const":
            return _const(node, build, span)
        case "option":
            return _option(node, build, span)
        case "state":
            return syntax.StateDecl(_names(node)[0], _axes(node.children[-1]), span)
        case "output":
            return syntax.OutputDecl(tuple(_names(node)), span)
        case "directive":
            return _directive(node, reporter, span)
        case _:
            return build.equation(node, span)


def _argument(node: Node, reporter: Reporter, span: Span) -> syntax.ArgumentDecl:
    keyword, _, _, shape, *words = node.children
    domain: syntax.DomainSyntax | None = None
    floor: syntax.DomainSyntax | None = None
    grouped: Span | None = None
    for word in words:
        assert isinstance(word, Tree)
        assert isinstance(word.children[0], Token)
        head = word.children[0]
        if head == "grouped" and len(word.children) == 1:
            _once(reporter, head, grouped)
            grouped = span_of(head)
            if keyword == "param":
                help_ = "remove `grouped`: a param has a value for every value head"
                raise reporter.abandon("E220", grouped, help=help_, name=_names(node)[0].name)
        elif head == "floor":
            _once(reporter, head, floor.span if floor else None)
            floor = _domain(word, head, reporter)
        else:
            found = _domain(word, head, reporter)
            _once(reporter, head, domain.span if domain else None)
            domain = found
    if domain is not None and floor is not None:
        domain = syntax.DomainSyntax(domain.name, domain.bounds, domain.span, floor.bounds[0])
    return syntax.ArgumentDecl(str(keyword), _names(node)[0], _axes(shape), domain or floor, grouped is not None, span)


def _once(reporter: Reporter, word: Token, other: Span | None) -> None:
    if other is not None:
        raise reporter.abandon(
            "E213", span_of(word), secondary=Label(other, "it is already given here"), help="keep one of them",
            word=word, other=_word_at(reporter, other),
        )  # fmt: skip


def _word_at(reporter: Reporter, span: Span) -> str:
    return reporter.source.line(span.line)[span.column - 1 : span.end_column - 1].split("(")[0].strip()


def _domain(word: Node, head: Token, reporter: Reporter) -> syntax.DomainSyntax:
    if head not in DOMAINS:
        known = [*DOMAINS, "grouped"]
        advice = did_you_mean(head, known) or f"the domains are {', '.join(DOMAINS)}"
        raise reporter.abandon("E211", span_of(head), help=advice, name=head)
    bounds = tuple(_bound(b, reporter) for b in word.children if isinstance(b, Tree))
    meta = word.meta
    span = Span(meta.line, meta.column, meta.end_line, meta.end_column)
    count = DOMAINS[head]
    if len(bounds) != count:
        example = {0: f"write `{head}` alone", 1: f"write `{head}(-5)`", 2: f"write `{head}(0, 1)`"}[count]
        raise reporter.abandon("E212", span, help=example, name=head, expected=_bounds(count), found=_bounds(len(bounds)))
    return syntax.DomainSyntax(str(head), bounds, span)


def _bounds(count: int) -> str:
    return "no bounds" if count == 0 else "one bound" if count == 1 else f"{count} bounds"


def _bound(node: Node, reporter: Reporter) -> float:
    token = node.children[-1]
    assert isinstance(token, Token)
    value = number_of(token, reporter)
    return -value if len(node.children) == 2 else value


def _const(node: Node, build: Builder, span: Span) -> syntax.ConstDecl:
    value = build.expression(node.children[-1])
    whole = isinstance(value, syntax.Number) and math.isfinite(value.value) and value.value.is_integer() and value.value >= 1
    if not isinstance(value, syntax.Number) or not whole:
        found = f"`{value.text}`" if isinstance(value, syntax.Number) else "an expression"
        raise build.reporter.abandon("E112", value.span, help="a number that may be any real one is an `option`", found=found)
    return syntax.ConstDecl(_names(node)[0], int(value.value), span)


def _option(node: Node, build: Builder, span: Span) -> syntax.OptionDecl:
    value = build.expression(node.children[-1])
    if isinstance(value, syntax.Name) and value.name in ("True", "False"):
        raise build.reporter.abandon("E217", value.span, help=f"write `{value.name.lower()}`")
    if isinstance(value, syntax.Name) and value.name in ("true", "false"):
        return syntax.OptionDecl(_names(node)[0], value.name == "true", span)
    return syntax.OptionDecl(_names(node)[0], value, span)


def _directive(node: Node, reporter: Reporter, span: Span) -> syntax.Directive:
    keyword, word = node.children
    assert isinstance(keyword, Token)
    assert isinstance(word, Token)
    allowed = DIRECTIVES[keyword]
    if word not in allowed:
        choice = closest(word, allowed)
        advice = f"write {' or '.join(f'`{keyword} {w}`' for w in ((choice,) if choice else allowed))}"
        raise reporter.abandon("E111", span_of(word), help=advice, word=word, keyword=keyword)
    return syntax.Directive(str(keyword), str(word), span)


def _names(node: Node) -> list[syntax.Name]:
    return [name_of(c) for c in _tokens(node) if c.type == "NAME"]


def _axes(shape: Node | Token) -> tuple[syntax.AxisRef, ...]:
    return tuple(syntax.AxisRef(str(c), span_of(c)) for c in _tokens(shape) if c.type == "NAME")


def _tokens(node: Node | Token) -> Iterable[Token]:
    return [c for c in node.children if isinstance(c, Token)] if isinstance(node, Tree) else []
