"""Products of simple matrix factors:  coefficient * (scalar terms) * (a chain of matrix factors);  a chain holds at most one state."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

from recgen.analysis.arithmetic import times, transpose
from recgen.analysis.refusal import Refusal
from recgen.lang.source import Span
from recgen.lang.terms import SCALAR, Apply, Constant, Shape, State, Term


@dataclass(frozen=True)
class Column:
    """A state-free column vector."""

    term: Term


@dataclass(frozen=True)
class Row:
    """The transpose of a state-free column vector (`term` is the column)."""

    term: Term


@dataclass(frozen=True)
class Diagonal:
    """diag(term), `term` a state-free column."""

    term: Term


@dataclass(frozen=True)
class Dense:
    """A state-free matrix that is no product of vectors."""

    term: Term


@dataclass(frozen=True)
class StateFactor:
    """The state with its lag, transposed or not."""

    state: State
    transposed: bool


Factor = Column | Row | Diagonal | Dense | StateFactor


@dataclass(frozen=True)
class Product:
    """coefficient * scalars * chain; an empty chain is a scalar (or the identity, where the shape is a matrix)."""

    coefficient: float
    scalars: tuple[Term, ...]
    chain: tuple[Factor, ...]
    shape: Shape
    span: Span | None

    @property
    def state(self) -> State | None:
        """The state in the chain, if there is one."""
        return next((f.state for f in self.chain if isinstance(f, StateFactor)), None)


def multiplied(left: Product, right: Product) -> tuple[float, tuple[Term, ...]]:
    """Coefficient and scalars of the product of two; a number that their product would round stays a factor of its own."""
    scalars = left.scalars + right.scalars
    product = left.coefficient * right.coefficient
    if _exact(left.coefficient, right.coefficient, product):
        return product, scalars
    return left.coefficient, (*scalars, Constant(right.coefficient))


def quotient(left: float, right: float) -> float | None:
    """left / right, None where it would be rounded."""
    return left / right if right != 0.0 and _exact(right, left / right, left) else None


def _exact(left: float, right: float, product: float) -> bool:
    return all(map(math.isfinite, (left, right, product))) and Fraction(left) * Fraction(right) == Fraction(product)


def reduced(product: Product) -> Product:
    """Rows that meet columns become scalars, diagonals are folded into the vectors beside them."""
    chain: list[Factor] = []
    scalars = list(product.scalars)
    for factor in product.chain:
        chain.append(factor)
        while len(chain) > 1 and (merged := _meet(chain[-2], chain[-1])) is not None:
            del chain[-2:]
            if isinstance(merged, Apply):
                scalars.append(merged)
            else:
                assert not isinstance(merged, Constant)
                chain.append(merged)
    return replace(product, scalars=tuple(scalars), chain=tuple(chain))


def _meet(left: Factor, right: Factor) -> Factor | Apply | None:
    match left, right:
        case Row(a), Column(b):
            return Apply("matmul", (transpose(a), b), SCALAR, "", a.span)
        case Row(a), Diagonal(b):
            return Row(times(a, b))
        case Diagonal(a), Column(b):
            return Column(times(a, b))
        case Diagonal(a), Diagonal(b):
            return Diagonal(times(a, b))
        case (Dense(a), Column()) | (Row(), Dense(a)):
            raise Refusal("a full matrix multiplies a vector of inputs: make their product an input", a.span)
    return None


def flip(product: Product) -> Product:
    """The transposed product."""
    turned: list[Factor] = []
    for factor in reversed(product.chain):
        match factor:
            case Column(t):
                turned.append(Row(t))
            case Row(t):
                turned.append(Column(t))
            case Dense(t):
                turned.append(Dense(transpose(t)))
            case StateFactor(s, transposed):
                turned.append(StateFactor(s, not transposed))
            case Diagonal():
                turned.append(factor)
    return replace(product, chain=tuple(turned), shape=(product.shape[1], product.shape[0]))
