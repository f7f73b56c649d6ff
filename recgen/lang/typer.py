"""Check: expressions -> typed terms, with definitions put in and every shape known."""

from __future__ import annotations

from typing import NoReturn, cast

from recgen.lang import syntax
from recgen.lang.diagnostics import Abandon, Label, Reporter
from recgen.lang.scope import Scope
from recgen.lang.shapes import (
    UNSIZED,
    broadcast,
    column_with_row,
    describe,
    give_size,
    is_matrix,
    is_vector,
    operand_text,
    product_advice,
    transposed,
)
from recgen.lang.source import Span
from recgen.lang.suggest import quote
from recgen.lang.syntax import Expr
from recgen.lang.terms import ROW_FUNCTIONS, SCALAR, Apply, Argument, AxisSize, Constant, Eye, OptionValue, Shape, State, Term
from recgen.lang.traverse import walk

_OPERATIONS = {"+": "add", "-": "sub", "*": "mul", "/": "div", "^": "pow"}


class Typer:
    """Types the expressions of one spec whose names are resolved; `values` holds the terms of the definitions so far."""

    def __init__(self, scope: Scope, reporter: Reporter) -> None:
        self.scope, self.reporter = scope, reporter
        self.values: dict[str, Term] = {}

    def value(self, expr: Expr) -> Term:
        """The term of a whole right-hand side; an error is reported and raises `Abandon`."""
        term = self.term(expr)
        if term.shape == UNSIZED:
            self.unsized(next(x.span for x in walk(expr) if isinstance(x, syntax.Identity)))
        return term

    def term(self, expr: Expr) -> Term:
        """The term of any subexpression."""
        match expr:
            case syntax.Number():
                return Constant(expr.value, span=expr.span)
            case syntax.Name():
                return self._name(expr)
            case syntax.Identity():
                return Eye(UNSIZED, expr.span)
            case syntax.StateRef():
                micro = None if expr.micro is None else expr.micro.value
                return State(expr.name, expr.lag, self._declared(expr.name), expr.span, micro)
            case syntax.Negate():
                operand = self.term(expr.operand)
                return Constant(-operand.value, span=expr.span) if isinstance(operand, Constant) else _same("neg", operand, expr.span)
            case syntax.Transpose():
                operand = self.term(expr.operand)
                return Apply("transpose", (operand,), (operand.shape[1], operand.shape[0]), span=expr.span)
            case syntax.Binary():
                return self._binary(expr)
            case syntax.Conditional():
                return self._conditional(expr)
            case syntax.Call():
                return self._call(expr)
        raise AssertionError(f"{type(expr).__name__} passed the check of names")

    def _declared(self, name: str) -> Shape:
        symbol = self.scope.symbols[name]
        if len(symbol.axes) > 2:
            # Its declaration was reported.
            raise Abandon
        return symbol.shape

    def _name(self, expr: syntax.Name) -> Term:
        symbol = self.scope.symbols[expr.name]
        match symbol.role:
            case "input" | "param":
                return Argument(expr.name, symbol.role, self._declared(expr.name), expr.span)
            case "axis":
                return AxisSize(expr.name, span=expr.span)
            case "const":
                return Constant(float(symbol.value), span=expr.span)
            case "option":
                return OptionValue(expr.name, span=expr.span)
        if expr.name not in self.values:
            # Its own line is at fault, and says so.
            raise Abandon
        return self.values[expr.name]

    def _binary(self, expr: syntax.Binary) -> Term:
        left, right = self.term(expr.left), self.term(expr.right)
        if expr.op == "@":
            return self._product(expr, left, right)
        if expr.op == "^":
            if right.shape != SCALAR:
                advice = "`^` raises each entry to one power"
                if left.shape in (right.shape, SCALAR):
                    base, power = (
                        quote(self.reporter.source, expr.left.span),
                        operand_text(expr.right, self.reporter.source, right_side=False),
                    )
                    advice = f"for a power of its own for each entry write `exp({power} * log({base}))`"
                raise self.reporter.abandon("E307", expr.right.span, help=advice, shape=_shape(right.shape))
            return Apply("pow", (left, right), left.shape, span=expr.span)
        terms, shape = self._fit(expr.op, expr.op_span, ((expr.left, left), (expr.right, right)))
        return Apply(_OPERATIONS[expr.op], terms, shape, span=expr.span)

    def _product(self, expr: syntax.Binary, left: Term, right: Term) -> Term:
        source = self.reporter.source
        if left.shape == UNSIZED and right.shape not in (SCALAR, UNSIZED) and right.shape[0] != "1":
            left = give_size(left, right.shape[0])
        elif right.shape == UNSIZED and left.shape not in (SCALAR, UNSIZED) and left.shape[1] != "1":
            right = give_size(right, left.shape[1])
        if left.shape[1] == right.shape[0]:
            return Apply("matmul", (left, right), (left.shape[0], right.shape[1]), span=expr.span)
        l_text, r_text = self._shown(expr.left, left), self._shown(expr.right, right)
        if SCALAR in (left.shape, right.shape):
            l_factor, r_factor = operand_text(expr.left, source, right_side=False), operand_text(expr.right, source, right_side=True)
            advice: str | None = f"write `{l_factor} * {r_factor}`"
            raise self.reporter.abandon("E304", expr.op_span, help=advice, left=l_text, right=r_text)
        advice = product_advice(expr.left, left.shape, expr.right, right.shape, source)
        raise self.reporter.abandon("E303", expr.op_span, help=advice, left=l_text, right=r_text)

    def _conditional(self, expr: syntax.Conditional) -> Term:
        test = cast(syntax.Name, expr.test)
        then, otherwise = self.term(expr.then), self.term(expr.otherwise)
        if UNSIZED in (then.shape, otherwise.shape):
            shape = _join(then.shape, otherwise.shape, additive=True)
            then, otherwise = _sized(then, shape or UNSIZED), _sized(otherwise, shape or UNSIZED)
        if then.shape != otherwise.shape:
            label = Label(expr.otherwise.span, f"this is {_shape(otherwise.shape)}")
            advice, left, right = "give both branches the same shape", _shape(then.shape), _shape(otherwise.shape)
            raise self.reporter.abandon("E308", expr.then.span, secondary=label, help=advice, left=left, right=right)
        branches = (otherwise, then) if expr.negated else (then, otherwise)
        return Apply("select", branches, then.shape, test.name, expr.span)

    def _call(self, expr: syntax.Call) -> Term:
        if expr.function == "where":
            return self._where(expr)
        operands = tuple((a, self.term(a)) for a in expr.arguments)
        if expr.function in ("min", "max"):
            terms, shape = self._fit(expr.function, expr.function_span, operands)
            return Apply(expr.function, terms, shape, span=expr.span)
        term = operands[0][1]
        if expr.function not in ROW_FUNCTIONS:
            return _same(expr.function, term, expr.span)
        if not is_vector(term.shape):
            advice = "remove the call: a scalar has one entry"
            if is_matrix(term.shape):
                advice = "make it a vector first, as in `S[t]^T @ q`"
            raise self.reporter.abandon("E306", expr.arguments[0].span, help=advice, name=expr.function, shape=_shape(term.shape))
        return Apply(expr.function, (term,), SCALAR if expr.function == "sum" else term.shape, span=expr.span)

    def _where(self, expr: syntax.Call) -> Term:
        test = cast(syntax.Compare, expr.arguments[0])
        written = (test.left, test.right, *expr.arguments[1:])
        terms, shape = self._fit("where", expr.function_span, tuple((a, self.term(a)) for a in written))
        left, right, then, otherwise = terms
        if test.op[0] == ">":
            left, right = right, left
        return Apply("where<=" if test.op.endswith("=") else "where<", (left, right, then, otherwise), shape, span=expr.span)

    def _fit(self, op: str, span: Span, operands: tuple[tuple[Expr, Term], ...]) -> tuple[tuple[Term, ...], Shape]:
        """The operands of an elementwise operation with every `I` sized, and the shape of the result."""
        shape = operands[0][1].shape
        for index, (_, term) in enumerate(operands):
            joined = _join(shape, term.shape, additive=op not in ("*", "/"))
            if joined is None:
                widest = next(o for o in operands[:index] if o[1].shape == shape)
                self._misfit(op, span, widest, operands[index])
            shape = joined
        return tuple(_sized(term, shape) for _, term in operands), shape

    def _misfit(self, op: str, span: Span, left: tuple[Expr, Term], right: tuple[Expr, Term]) -> NoReturn:
        """Report two operands that do not go together elementwise."""
        source = self.reporter.source
        l_text, r_text = self._shown(*left), self._shown(*right)
        a, b = left[1].shape, right[1].shape
        op = op if len(op) == 1 else "and"
        if UNSIZED in (a, b):
            raise self.reporter.abandon("E301", span, help="`I` needs a square matrix beside it", op=op, left=l_text, right=r_text)
        if column_with_row(a, b):
            column, row = (left[0], right[0]) if a[1] == "1" else (right[0], left[0])
            advice = f"write `{operand_text(column, source, right_side=False)} @ {operand_text(row, source, right_side=True)}`"
            raise self.reporter.abandon("E302", span, help=advice, op=op, left=l_text, right=r_text)
        advice = "elementwise operands have the same shape, or one is a scalar, or a column or row of the other"
        if (a[1], a[0]) == b:
            advice = f"write `{transposed(right[0], source)}` on the right"
        elif is_vector(a) and is_vector(b) and op == "*":
            advice = f"for the outer product write `{operand_text(left[0], source, right_side=False)} @ {transposed(right[0], source)}`"
        raise self.reporter.abandon("E301", span, help=advice, op=op, left=l_text, right=r_text)

    def _shown(self, expr: Expr, term: Term) -> str:
        return f"`{quote(self.reporter.source, expr.span)}` {_shape(term.shape)}"

    def unsized(self, span: Span) -> NoReturn:
        """Report an `I` without a neighbour that gives its size."""
        raise self.reporter.abandon("E305", span, help="use it beside a matrix in the same line, as in `I - beta * k @ k^T`")


def _same(op: str, term: Term, span: Span) -> Term:
    return Apply(op, (term,), term.shape, span=span)


def _shape(shape: Shape) -> str:
    return "a matrix of unknown size" if shape == UNSIZED else describe(shape)


def _sized(term: Term, shape: Shape) -> Term:
    return give_size(term, shape[0]) if term.shape == UNSIZED != shape else term


def _join(a: Shape, b: Shape, additive: bool) -> Shape | None:
    """As `broadcast`, with `I` taking the size of a square matrix, and of a vector that scales it (a diagonal matrix)."""
    if UNSIZED not in (a, b) or a == b or SCALAR in (a, b):
        return broadcast(a, b)
    known = b if a == UNSIZED else a
    if is_vector(known) and not additive:
        axis = known[0] if known[1] == "1" else known[1]
        return (axis, axis)
    return known if known[0] == known[1] else None
