"""Shapes: how they combine, and what to write where they do not."""

from __future__ import annotations

from recgen.lang import syntax
from recgen.lang.source import Source
from recgen.lang.suggest import quote
from recgen.lang.syntax import Expr
from recgen.lang.terms import SCALAR, Apply, Eye, Shape, Term, rebuild

UNSIZED: Shape = ("?", "?")
"""The shape of `I`, and of what is made of it, until a neighbour gives the size."""


def is_vector(shape: Shape) -> bool:
    """Whether exactly one side is 1."""
    return (shape[0] == "1") != (shape[1] == "1")


def is_matrix(shape: Shape) -> bool:
    """Whether neither side is 1."""
    return "1" not in shape


def column_with_row(a: Shape, b: Shape) -> bool:
    """Whether one is a column and the other a row."""
    return is_vector(a) and is_vector(b) and (a[0] == "1") != (b[0] == "1")


def broadcast(a: Shape, b: Shape) -> Shape | None:
    """The shape of an elementwise operation, None where the operands do not fit."""
    if a == b or b == SCALAR:
        return a
    if a == SCALAR:
        return b
    for matrix, vector in ((a, b), (b, a)):
        if is_matrix(matrix) and is_vector(vector) and vector in ((matrix[0], "1"), ("1", matrix[1])):
            return matrix
    return None


def describe(shape: Shape) -> str:
    """The shape as a user writes it: `[]`, `[K]`, `[K, V]`; a row is `[1, K]`."""
    if shape == SCALAR:
        return "[]"
    return f"[{shape[0]}]" if shape[1] == "1" else f"[{shape[0]}, {shape[1]}]"


def give_size(term: Term, axis: str) -> Term:
    """The term with every unsized `I` in it made the identity of `axis`."""

    def change(node: Term) -> Term:
        if node.shape != UNSIZED:
            return node
        if isinstance(node, Apply):
            return Apply(node.op, node.args, (axis, axis), node.option, node.span)
        return Eye((axis, axis), node.span)

    return rebuild(term, change)


def product_advice(left: Expr, a: Shape, right: Expr, b: Shape, source: Source) -> str | None:
    """What to write for `left @ right` whose inner sizes differ: a transposed operand or the other order, None if nothing fits."""
    l_text, r_text = operand_text(left, source, right_side=False), operand_text(right, source, right_side=True)
    flipped_l, flipped_r = transposed(left, source), transposed(right, source)
    other_order = f"{operand_text(right, source, right_side=False)} @ {operand_text(left, source, right_side=True)}"
    # The likeliest mistake first: a `^T` too many, then, between matrices, the order, then a `^T` too few.
    choices = (
        (isinstance(right, syntax.Transpose) and a[1] == b[1], f"{l_text} @ {flipped_r}"),
        (isinstance(left, syntax.Transpose) and a[0] == b[0], f"{flipped_l} @ {r_text}"),
        (is_matrix(a) and is_matrix(b) and b[1] == a[0], other_order),
        (a[1] == b[1], f"{l_text} @ {flipped_r}"),
        (a[0] == b[0], f"{flipped_l} @ {r_text}"),
        (b[1] == a[0], other_order),
        (a[0] == b[1], f"{flipped_l} @ {flipped_r}"),
    )
    fitting = [text for fits, text in choices if fits]
    return f"write `{fitting[0]}`" if fitting else None


def operand_text(expr: Expr, source: Source, right_side: bool) -> str:
    """The text of a factor of a product, in brackets where it needs them."""
    text = quote(source, expr.span)
    operators = "+-*/@" if right_side else "+-"
    loose = isinstance(expr, syntax.Conditional) or (isinstance(expr, syntax.Binary) and expr.op in operators)
    return f"({text})" if loose else text


def transposed(expr: Expr, source: Source) -> str:
    """The text of the transpose of an expression: `^T` added or taken away."""
    if isinstance(expr, syntax.Transpose):
        inner = quote(source, expr.operand.span)
        return f"({inner})" if _compound(expr.operand) else inner
    text = quote(source, expr.span)
    return f"({text})^T" if _compound(expr) else f"{text}^T"


def _compound(expr: Expr) -> bool:
    return isinstance(expr, syntax.Binary | syntax.Negate | syntax.Conditional)
