"""The exact meaning of a spec over polynomials: the unrolled recurrence, straight from its typed expressions.

Shares nothing with the analyzer. Sums, products and transpositions are carried out; every state-free value that is not one of these (an
input, `exp(g)`, `l2norm(k)`, `1 / x`) is a symbol per token and entry, the same symbol wherever the same expression stands.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from recgen.lang.terms import Apply, Argument, Constant, Eye, State, Term, reads_state, walk

Matrix = list[list[Any]]
States = dict[tuple[str, int, int | None], Matrix]
"""States by name, lag and micro-step."""


class Unknown:
    """Stands for any ring element while symbols are being collected."""

    def __add__(self, _: object) -> Unknown:
        return self

    __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __add__

    def __neg__(self) -> Unknown:
        return self


class Symbols:
    """One generator per opaque entry, and per entry of a function of the state, told apart by its arguments' values.

    Used twice: the first pass counts what is needed, `generate` makes the ring, the second pass evaluates in it.
    """

    def __init__(self) -> None:
        self._entries: dict[tuple[Term, int, int, int], int] = {}
        self._functions: dict[tuple[object, ...], int] = {}
        self._needed = 0
        self._generators: list[Any] = []

    @property
    def count(self) -> int:
        """How many symbols there are."""
        return len(self._entries) + len(self._functions)

    def generate(self) -> Callable[[float], Any]:
        """Makes the polynomial ring over the rationals; returns the map from numbers to its elements."""
        from sympy import QQ, Rational
        from sympy.polys.rings import ring

        polynomials, *self._generators = ring([f"x{i}" for i in range(len(self._entries) + self._needed + 1)], QQ)
        return lambda value: polynomials(QQ.from_sympy(Rational(value)))

    def entry(self, term: Term, token: int, row: int, column: int) -> Any:
        """The symbol of an entry of the state-free `term` at `token` (one for all tokens where nothing varies)."""
        if not any(isinstance(x, Argument) and x.role == "input" for x in walk(term)):
            token = -1
        index = self._entries.setdefault((term, token, row, column), len(self._entries))
        return self._generators[index] if self._generators else Unknown()

    def function(self, op: str, option: str, arguments: tuple[Matrix, ...], row: int, column: int) -> Any:
        """The symbol of an entry of a function of the state, the same for equal arguments."""
        if not self._generators:
            self._needed += 1
            return Unknown()
        key = (op, option, tuple(x for m in arguments for r in m for x in r), row, column)
        index = self._functions.setdefault(key, len(self._functions))
        return self._generators[len(self._entries) + index]


class Meaning:
    """Evaluates terms at a token, with axis sizes and the states given."""

    def __init__(self, sizes: dict[str, int], symbols: Symbols, number: Callable[[float], Any]) -> None:
        self.sizes = {**sizes, "1": 1}
        self.symbols = symbols
        self.number = number

    def value(self, term: Term, token: int, states: States) -> Matrix:
        """The term as a matrix of ring elements."""
        rows, columns = (self.sizes[axis] for axis in term.shape)
        match term:
            case Constant(value):
                return [[self.number(value)]]
            case State(name, lag, micro=micro):
                return states[name, lag, micro]
            case Eye():
                return [[self.number(float(i == j)) for j in range(columns)] for i in range(rows)]
            case Apply("transpose", (arg,)):
                return turned(self.value(arg, token, states))
            case Apply("matmul", (left, right)):
                return product(self.value(left, token, states), self.value(right, token, states), self.number(0.0))
            case Apply("neg", (arg,)):
                return [[-x for x in row] for row in self.value(arg, token, states)]
            case Apply("add" | "sub" | "mul", (left, right)):
                return self._elementwise(term.op, left, right, (rows, columns), token, states)
            case Apply("div", (left, right)) if left != Constant(1.0):
                inverse = Apply("div", (Constant(1.0), right), right.shape)
                return self._elementwise("mul", left, inverse, (rows, columns), token, states)
            case Apply("exp", (log,)) if not reads_state(term) and multiplier(log) != term:
                return self.value(multiplier(log), token, states)
            case Apply(op, args) if reads_state(term):
                values = tuple(self.value(a, token, states) for a in args)
                return [[self.symbols.function(op, term.option, values, i, j) for j in range(columns)] for i in range(rows)]
            case _:
                return [[self.symbols.entry(term, token, i, j) for j in range(columns)] for i in range(rows)]

    def _elementwise(self, op: str, left: Term, right: Term, size: tuple[int, int], token: int, states: States) -> Matrix:
        a, b = self.value(left, token, states), self.value(right, token, states)

        def entry(m: Matrix, i: int, j: int) -> Any:
            return m[i if len(m) > 1 else 0][j if len(m[0]) > 1 else 0]

        combine: Callable[[Any, Any], Any] = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}[op]
        return [[combine(entry(a, i, j), entry(b, i, j)) for j in range(size[1])] for i in range(size[0])]


def product(left: Matrix, right: Matrix, zero: Any) -> Matrix:
    """left @ right."""
    return [[sum((a * b for a, b in zip(row, column, strict=True)), zero) for column in zip(*right, strict=True)] for row in left]


def turned(matrix: Matrix) -> Matrix:
    """The transposed matrix."""
    return [list(column) for column in zip(*matrix, strict=True)]


def multiplier(log: Term) -> Term:
    """The decay whose logarithm is `log`, without an exponential of a logarithm: exp(a + b) = exp(a) exp(b)."""
    match log:
        case Apply("add", (a, b)):
            return Apply("mul", (multiplier(a), multiplier(b)), log.shape)
        case Apply("logsigmoid", args):
            return Apply("sigmoid", args, log.shape)
        case Apply("log_floor", (factor,)):
            return factor
        case _:
            return Apply("exp", (log,), log.shape)
