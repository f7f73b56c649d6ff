"""One token of a recurrence as a straight-line program over scalars, vectors and matrices, and its adjoint.

Every value keeps its orientation: `Value.axis` is "" for a scalar, else the names of rows and columns with a space between them, "1" for
one of which there is one: "K 1" is a column, "1 V" a row, "K V" a matrix, and "K K" may be one too. Operands are brought to one shape by
"spread", an operation of its own, so that its gradient is the right sum; "turn" is the transposed value, "product" that of two matrices.
Everything is of one token and value head: what params and grouped inputs share is summed by whoever runs the program.
"""

from __future__ import annotations

from dataclasses import dataclass

from recgen.analysis.arithmetic import transpose
from recgen.analysis.rewriting import applied
from recgen.analysis.token_form import TokenForm
from recgen.derive.gradient import differentiate
from recgen.derive.program import HINTS, Branch, Literal, Operand, Program, Scope, Value, fold, needed
from recgen.lang.terms import ROW_FUNCTIONS, SCALAR, Apply, Argument, AxisSize, Constant, Eye, OptionValue, Read, Shape, State, Term

EPSILON = Literal("1e-06", 1e-6)
"""What l2norm and rmsnorm add under the root."""


@dataclass(frozen=True)
class TokenProgram:
    """A token and its adjoint.

    `arguments`, `before`: values of the arguments and of the states before the token, in declaration order, which the caller binds.
    `forward`: results are the outputs by name, then the states after the token under the names in `after`. `update`: those states alone.
    `adjoint`: results are named after the values of `arguments` and `before` that anything depends on; `cotangents` pairs every result of
    `forward` with the value that holds its gradient, but for numbers.
    """

    arguments: tuple[Value, ...]
    before: tuple[Value, ...]
    after: tuple[str, ...]
    forward: Program
    update: Program
    adjoint: Program
    cotangents: tuple[tuple[str, Value], ...]


def shape_of(value: Value) -> Shape:
    """The names of a value's rows and columns."""
    rows, columns = value.axis.split() if value.axis else SCALAR
    return rows, columns


def kind(shape: Shape, name: str = "") -> Value:
    """A value of this shape."""
    return Value(name, "" if shape == SCALAR else " ".join(shape), False, True)


def axes_shape(axes: tuple[str, ...]) -> Shape:
    """The shape of what is declared with these axes: a vector is a column."""
    return (axes[0], axes[1]) if len(axes) == 2 else (axes[0], "1") if axes else SCALAR


def token_program(form: TokenForm, reserved: frozenset[str]) -> TokenProgram:
    """The program of a token form; `reserved` names are not used for values."""
    recurrence = form.recurrence
    scope = Scope({applied(d.value): d.name for d in recurrence.definitions}, set(reserved))
    arguments = tuple(kind(axes_shape(a.axes), scope.fresh(a.name)) for a in recurrence.arguments)
    before = tuple(kind(axes_shape(s.axes), scope.fresh(f"{s.name}_before")) for s in form.states)
    after = tuple(_after(s.name, recurrence.outputs, scope) for s in form.states)
    for a, value in zip(recurrence.arguments, arguments, strict=True):
        scope.bind(Argument(a.name, a.role, axes_shape(a.axes)), value)
    for s, value in zip(form.states, before, strict=True):
        scope.bind(State(s.name, 1, axes_shape(s.axes)), value)
    lowering = _Lowering(
        {(s.name, None): s.equation for s in form.states} | {(s.name, i): m for s in form.states for i, m in enumerate(s.micro)}
    )
    results: list[tuple[str, Operand]] = [(o.name, lowering.operand(o.value, scope)) for o in form.outputs]
    results += [(name, lowering.operand(s.equation, scope)) for name, s in zip(after, form.states, strict=True)]
    forward = Program((*arguments, *before), tuple(scope.statements), tuple(results))
    states = tuple(results[len(form.outputs) :])
    wanted = {x.name for _, x in states if isinstance(x, Value)}
    update = Program(forward.inputs, needed(forward.statements, wanted), states)
    adjoint, cotangents = differentiate(forward, (*arguments, *before), reserved)
    return TokenProgram(arguments, before, after, forward, update, adjoint, cotangents)


def _after(state: str, outputs: tuple[str, ...], scope: Scope) -> str:
    """The name of a state after the token: results of the forward are known by their names, so that it is no output's."""
    name = scope.fresh(f"{state}_after")
    while name in outputs:
        name = scope.fresh(f"{state}_after")
    return name


class _Lowering:
    """Terms to statements; a state at t, or after one of its micro-steps, is the value of its equation."""

    def __init__(self, equations: dict[tuple[str, int | None], Term]) -> None:
        self._equations = equations

    def operand(self, term: Term, scope: Scope) -> Operand:
        """The operand that holds the term, adding the statements that it needs."""
        found = scope.find(term)
        if found is None:
            found = self._new(term, scope)
            scope.bind(term, found)
        return found

    def _new(self, term: Term, scope: Scope) -> Operand:
        match term:
            case Constant(value):
                return Literal(repr(value), value)
            case AxisSize(axis):
                return Literal(axis, None)
            case OptionValue(name):
                return Literal(name, None)
            case State(name, 0, micro=micro):
                return self.operand(self._equations[name, micro], scope)
            case Eye(shape):
                return scope.assign("eye", (), kind(shape), "identity")
            case Apply("transpose", (arg,)):
                return _turn(self.operand(arg, scope), scope)
            case Apply("matmul", (left, right)):
                return self._product(left, right, term, scope)
            case Apply("select"):
                return self._select(term, scope)
            case Apply(op, (arg,)) if op in ROW_FUNCTIONS:
                return _over_entries(op, self.operand(arg, scope), scope, scope.hint(term, op))
            case Apply(op, args):
                operands = tuple(self.operand(a, scope) for a in args)
                if all(isinstance(x, Literal) for x in operands):
                    return fold(op, operands)
                return _elementwise(op, operands, term.shape, scope, scope.hint(term, HINTS.get(op, op.rstrip("<="))))
            case Argument() | Read() | State():
                raise AssertionError(f"unbound {term}")

    def _product(self, left: Term, right: Term, term: Apply, scope: Scope) -> Operand:
        """A product by what it takes: an outer product, a sum over one axis of a tile, or a product of two matrices."""
        hint = scope.hint(term, "product")
        rows, inner, columns = left.shape[0], left.shape[1], right.shape[1]
        if inner == "1":
            return _elementwise("mul", (self.operand(left, scope), self.operand(right, scope)), term.shape, scope, hint)
        if rows != "1" and columns != "1":
            return scope.assign("product", (self.operand(left, scope), self.operand(right, scope)), kind(term.shape), hint)
        if rows == "1" and columns == "1":
            return self._contracted(transpose(left), right, SCALAR, scope, hint)
        if columns == "1" and not _is_transposed(left):
            return self._contracted(left, transpose(right), term.shape, scope, hint)
        if columns == "1":
            return _turn(self._contracted(transpose(left), right, ("1", rows), scope, "row"), scope)
        if not _is_transposed(right):
            return self._contracted(transpose(left), right, term.shape, scope, hint)
        return _turn(self._contracted(left, transpose(right), (columns, "1"), scope, "column"), scope)

    def _contracted(self, left: Term, right: Term, shape: Shape, scope: Scope, hint: str) -> Value:
        """The elementwise product of a matrix and a column or row of it, summed to `shape`."""
        wide = left.shape if "1" not in left.shape else right.shape
        product = _elementwise("mul", (self.operand(left, scope), self.operand(right, scope)), wide, scope, "product")
        return scope.assign("sum", (product,), kind(shape), hint)

    def _select(self, term: Apply, scope: Scope) -> Operand:
        """A choice at compile time: each side has statements of its own."""
        sides = (scope.nested(), scope.nested())
        operands = [self.operand(t, s) for t, s in zip(term.args, sides, strict=True)]
        texts = [x.text for x in operands if isinstance(x, Literal)]
        if len(texts) == len(operands):
            return Literal(f"({texts[0]} if {term.option} else {texts[1]})", None)
        like = next(x for x in operands if isinstance(x, Value))
        target = kind(term.shape, scope.fresh(scope.hint(term, "chosen")))
        for operand, side in zip(operands, sides, strict=True):
            side.finish(target, _spread(operand, term.shape, side), like)
        scope.statements.append(Branch(term.option, tuple(sides[0].statements), tuple(sides[1].statements), (target,)))
        return target


def _is_transposed(term: Term) -> bool:
    return isinstance(term, Apply) and term.op == "transpose"


def _elementwise(op: str, operands: tuple[Operand, ...], shape: Shape, scope: Scope, hint: str) -> Value:
    return scope.assign(op, tuple(_spread(x, shape, scope) for x in operands), kind(shape), hint)


def _spread(operand: Operand, shape: Shape, scope: Scope) -> Operand:
    """The operand with this many rows and columns; numbers as they are."""
    if isinstance(operand, Literal) or shape_of(operand) == shape:
        return operand
    return _moved("spread", operand, kind(shape), scope)


def _turn(operand: Operand, scope: Scope) -> Operand:
    """The transposed operand."""
    if isinstance(operand, Literal) or not operand.axis:
        return operand
    rows, columns = shape_of(operand)
    return _moved("turn", operand, kind((columns, rows)), scope)


def _moved(op: str, value: Value, like: Value, scope: Scope) -> Value:
    """A move, each only once."""
    key = Apply(op, (Argument(value.name, "value", shape_of(value)),), shape_of(like))
    found = scope.find(key)
    if isinstance(found, Value):
        return found
    target = scope.assign(op, (value,), like, f"{value.name}_{op}")
    scope.bind(key, target)
    return target


def _over_entries(op: str, operand: Operand, scope: Scope, hint: str) -> Value:
    """A function over the entries of a vector, in elementwise operations and sums: x / sqrt(sum x^2 + 1e-6), or of the mean."""
    assert isinstance(operand, Value)
    if op == "sum":
        return scope.assign("sum", (operand,), kind(SCALAR), hint)
    shape = shape_of(operand)
    squares = scope.assign("sum", (_elementwise("mul", (operand, operand), shape, scope, "squares"),), kind(SCALAR), "squares")
    if op == "rmsnorm":
        axis = next(a for a in shape if a != "1")
        squares = scope.assign("div", (squares, Literal(axis, None)), kind(SCALAR), "mean_square")
    length = scope.assign("rsqrt", (scope.assign("add", (squares, EPSILON), kind(SCALAR), "square"),), kind(SCALAR), "inverse_length")
    return _elementwise("mul", (operand, length), shape, scope, hint)
