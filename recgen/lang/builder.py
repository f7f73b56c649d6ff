"""Lark's tree of one line -> a statement of the syntax tree."""

from __future__ import annotations

import math

from lark import Token, Tree

from recgen.lang import syntax
from recgen.lang.diagnostics import Reporter
from recgen.lang.lexer import span_of
from recgen.lang.source import Span
from recgen.lang.suggest import quote
from recgen.lang.syntax import Expr, Micro, Name

Node = Tree[Token]

MAX_DEPTH = 150
"""Levels of an expression: Python's own stack holds several times as many."""


def check_depth(tree: Node, reporter: Reporter, span: Span) -> None:
    """Report and abandon a tree that is too deep to be walked by recursion."""
    level: list[Node] = [tree]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in node.children if isinstance(child, Tree)]
        if not level:
            return
    raise reporter.abandon("E005", span, help="give inner parts names of their own", limit=MAX_DEPTH)


def name_of(token: Token) -> Name:
    """A name with its span."""
    return Name(str(token), span_of(token))


def number_of(token: Token, reporter: Reporter) -> float:
    """The value of a number; `inf` and 0 are numbers, what only overflows or underflows to them is not."""
    value = float(token)
    if math.isinf(value) and token != "inf":
        raise reporter.abandon("E006", span_of(token), help="write `inf` for infinity", size="large")
    if value == 0.0 and set(token.lower().partition("e")[0]) - set("0."):
        raise reporter.abandon("E006", span_of(token), help="write `0`, which is what it would be rounded to", size="small")
    return value


class Builder:
    """Builds the expressions and equations of one source."""

    def __init__(self, reporter: Reporter) -> None:
        self.reporter = reporter

    def equation(self, node: Node, span: Span) -> syntax.Equation:
        """`target = value`, with a loop for micro-steps."""
        left, _, right, *rest = node.children
        target = self._target(_tree(left))
        loop = self._loop(_tree(rest[0])) if rest and rest[0] is not None else None
        return syntax.Equation(target, self.expression(right), loop, span)

    def expression(self, node: Node | Token) -> Expr:
        """Any expression."""
        tree = _tree(node)
        children = tree.children
        match tree.data:
            case "number":
                return syntax.Number(number_of(_token(children[0]), self.reporter), str(children[0]), span_of(_token(children[0])))
            case "name":
                token = _token(children[0])
                return syntax.Identity(span_of(token)) if token == "I" else name_of(token)
            case "group":
                return self.expression(children[1])
            case "negate":
                return syntax.Negate(self.expression(children[1]), _span(tree))
            case "transpose":
                return syntax.Transpose(self.expression(children[0]), _span(tree))
            case "binary" | "compare":
                return self._binary(tree)
            case "conditional":
                return self._conditional(tree)
            case "call":
                token = _token(children[0])
                arguments = tuple(self.expression(c) for c in children[2:-1] if isinstance(c, Tree))
                return syntax.Call(str(token), arguments, span_of(token), _span(tree))
            case _:
                return self._subscript(tree)

    def _binary(self, tree: Node) -> Expr:
        left, op, right = tree.children
        operator = _token(op)
        if tree.data == "compare":
            return syntax.Compare(str(operator), self.expression(left), self.expression(right), _span(tree))
        return syntax.Binary(str(operator), self.expression(left), self.expression(right), span_of(operator), _span(tree))

    def _conditional(self, tree: Node) -> Expr:
        then, _, test, _, otherwise = tree.children
        *nots, condition = _tree(test).children
        return syntax.Conditional(
            self.expression(then), self.expression(condition), self.expression(otherwise), len(nots) % 2 == 1, _span(tree)
        )

    def _target(self, tree: Node) -> Name | syntax.StateRef | syntax.Index:
        (node,) = tree.children
        if isinstance(node, Token):
            return name_of(node)
        target = self._subscript(_tree(node))
        if isinstance(target, syntax.Index) or target.lag == 0:
            return target
        text = quote(self.reporter.source, target.span)
        raise self.reporter.abandon("E113", target.span, help=f"write `{target.name}[t] = ...`", target=text)

    def _subscript(self, tree: Node) -> syntax.StateRef | syntax.Index:
        """`S[t]`, `S[t-1]`, `S[t, j]`, `k[j]`."""
        head, *rest = tree.children
        token, indices = _token(head), [self.expression(c) for c in rest if isinstance(c, Tree)]
        first = self._offset(indices[0])
        if first is not None and first[0] == "t" and first[1] in (0, 1) and len(indices) <= 2:
            micro = self._micro(indices[1]) if len(indices) == 2 else None
            return syntax.StateRef(str(token), first[1], micro, _span(tree))
        if first is None or first[0] == "t" or len(indices) > 1:
            self._bad_index(tree, str(token), first)
        return syntax.Index(str(token), self._micro(indices[0]), _span(tree))

    def _bad_index(self, tree: Node, name: str, first: tuple[str | None, int] | None) -> None:
        advice = f"write `{name}[t]` or `{name}[t-1]`"
        if first is not None and first[0] == "t" and first[1] < 0:
            advice = f"write it one token earlier, as in `{name}[t] = ... {name}[t-1] ...`"
        elif first is not None and first[0] == "t" and first[1] > 1:
            advice = f"only the token before can be read: carry an older value in a state of its own, and write `{name}[t-1]`"
        raise self.reporter.abandon("E110", _span(tree), help=advice, index=quote(self.reporter.source, _span(tree)))

    def _micro(self, expr: Expr) -> Micro:
        found = self._offset(expr)
        if found is None or found[0] == "t":
            raise self.reporter.abandon(
                "E110", expr.span, help="a micro-step is a number, `j` or `j-1`", index=quote(self.reporter.source, expr.span)
            )
        return Micro(found[0], found[1], expr.span)

    def _offset(self, expr: Expr) -> tuple[str | None, int] | None:
        """(name, n) of `name-n`, `name` and plain numbers (no name); None for any other expression."""
        match expr:
            case syntax.Number(value=value) if value.is_integer():
                return None, int(value)
            case Name(name=name):
                return name, 0
            case syntax.Binary(op="-", left=Name(name=name), right=syntax.Number(value=value)) if value.is_integer():
                return name, int(value)
            case syntax.Binary(op="+", left=Name(name=name), right=syntax.Number(value=value)) if value.is_integer():
                return name, -int(value)
        return None

    def _loop(self, tree: Node) -> syntax.Loop:
        _, variable, _, first, _, last = (_token(c) for c in tree.children)
        return syntax.Loop(str(variable), self._whole(first), str(last) if last.type == "NAME" else self._whole(last), _span(tree))

    def _whole(self, token: Token) -> int:
        value = number_of(token, self.reporter)
        if not math.isfinite(value) or not value.is_integer():
            raise self.reporter.abandon("E106", span_of(token), expected="a whole number", found=f"`{token}`")
        return int(value)


def _tree(node: Node | Token) -> Node:
    assert isinstance(node, Tree)
    return node


def _token(node: Node | Token) -> Token:
    assert isinstance(node, Token)
    return node


def _span(tree: Node) -> Span:
    meta = tree.meta
    return Span(meta.line, meta.column, meta.end_line, meta.end_column)
