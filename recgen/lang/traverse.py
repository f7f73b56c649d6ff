"""Walking syntax trees."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from recgen.lang import syntax
from recgen.lang.syntax import Expr


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct subexpressions, in the order of the text."""
    match expr:
        case syntax.Negate() | syntax.Transpose():
            return (expr.operand,)
        case syntax.Binary() | syntax.Compare():
            return (expr.left, expr.right)
        case syntax.Conditional():
            return (expr.then, expr.test, expr.otherwise)
        case syntax.Call():
            return expr.arguments
    return ()


def walk(expr: Expr) -> Iterator[Expr]:
    """The expression and everything below it, parents first."""
    yield expr
    for child in children(expr):
        yield from walk(child)


def rewrite(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """The expression with `change` applied to every node, subexpressions first."""
    match expr:
        case syntax.Negate() | syntax.Transpose():
            expr = replace(expr, operand=rewrite(expr.operand, change))
        case syntax.Binary() | syntax.Compare():
            expr = replace(expr, left=rewrite(expr.left, change), right=rewrite(expr.right, change))
        case syntax.Conditional():
            then, test, otherwise = (rewrite(x, change) for x in (expr.then, expr.test, expr.otherwise))
            expr = replace(expr, then=then, test=test, otherwise=otherwise)
        case syntax.Call():
            expr = replace(expr, arguments=tuple(rewrite(x, change) for x in expr.arguments))
    return change(expr)


def names_read(expr: Expr) -> set[str]:
    """Every name that the expression mentions; of a state only the name."""
    return {x.name for x in walk(expr) if isinstance(x, syntax.Name | syntax.StateRef | syntax.Index)}
