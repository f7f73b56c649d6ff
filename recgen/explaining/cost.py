"""What a chunk form costs: products counted from its steps, as polynomials in C, K and V; further columns are not counted."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from recgen.derive.bordered_nodes import (
    Block,
    Bordered,
    ColumnSum,
    Crossing,
    Cut,
    Empty,
    Entry,
    Gathered,
    Joined,
    Kept,
    Mixed,
    Pairings,
    Square,
)
from recgen.derive.chunk_ir import ChunkForm, Step, children, needed, used_names
from recgen.derive.chunk_nodes import (
    INVERTED,
    Beside,
    Causal,
    DecayColumn,
    Decayed,
    DecayedProduct,
    Gamma,
    GateGradient,
    Hadamard,
    Inverse,
    MatMul,
    Negative,
    Node,
    Part,
    RowSum,
    Scaled,
    ScaledColumns,
    Score,
    ScoreGradients,
    Solved,
    Substitution,
    Sum,
    Sym,
    Symmetric,
    Through,
)

Shape = tuple[str, str]
_VARIABLES = "CKV"


@dataclass(frozen=True)
class Polynomial:
    """Terms (powers of C, K, V) -> coefficient, sorted by powers."""

    terms: tuple[tuple[tuple[int, int, int], Fraction], ...] = ()

    def __add__(self, other: Polynomial) -> Polynomial:
        total: dict[tuple[int, int, int], Fraction] = {}
        for powers, coefficient in (*self.terms, *other.terms):
            total[powers] = total.get(powers, Fraction(0)) + coefficient
        return Polynomial(tuple(sorted(((p, c) for p, c in total.items() if c), reverse=True)))

    def per_token(self) -> Polynomial:
        """Divided by C."""
        return Polynomial(tuple(((c - 1, k, v), x) for (c, k, v), x in self.terms))

    def at(self, chunk: int, keys: int, values: int) -> float:
        """The value for these sizes."""
        return float(sum(x * Fraction(chunk) ** c * Fraction(keys) ** k * Fraction(values) ** v for (c, k, v), x in self.terms))

    def text(self, key_axis: str = "K", value_axis: str = "V") -> str:
        """As a formula in the spec's axis names."""
        return " + ".join(_term(powers, x, ("C", key_axis, value_axis)) for powers, x in self.terms) or "0"


def monomial(coefficient: int | Fraction, *sizes: str) -> Polynomial:
    """coefficient times these sizes, each "C", "K", "V" or "1", or a multiple such as "2K"."""
    counts = [sum(size[-1] == name for size in sizes) for name in _VARIABLES]
    multiples = math.prod(int(size[:-1]) for size in sizes if len(size) > 1)
    return Polynomial((((counts[0], counts[1], counts[2]), Fraction(coefficient) * multiples),))


def total(parts: Iterable[Polynomial]) -> Polynomial:
    """The sum."""
    whole = Polynomial()
    for part in parts:
        whole += part
    return whole


def _term(powers: tuple[int, int, int], coefficient: Fraction, names: tuple[str, str, str]) -> str:
    above = [name if p == 1 else f"{name}^{p}" for name, p in zip(names, powers, strict=True) if p > 0]
    below = [name if p == -1 else f"{name}^{-p}" for name, p in zip(names, powers, strict=True) if p < 0]
    number = [str(coefficient.numerator)] if coefficient.numerator != 1 or not above else []
    divisor = ([str(coefficient.denominator)] if coefficient.denominator != 1 else []) + below
    return " ".join((*number, *above)) + (f" / {' '.join(divisor)}" if divisor else "")


def forward_flops(chunk: ChunkForm) -> Polynomial:
    """Floating-point operations in products and solves of one chunk and head, forward."""
    return _Shapes(chunk).flops((*chunk.prepare, *chunk.scan, *chunk.finish))


def backward_flops(chunk: ChunkForm) -> Polynomial:
    """The same for the backward, with the forward steps that it computes again."""
    adjoint = (*chunk.adjoint_prepare, *chunk.adjoint_scan, *chunk.adjoint_finish)
    return _Shapes(chunk).flops((*recomputed(chunk), *adjoint))


def recomputed(chunk: ChunkForm) -> tuple[Step, ...]:
    """The forward steps that the backward computes again instead of reading them."""
    return needed(chunk.prepare, used_names((*chunk.adjoint_prepare, *chunk.adjoint_scan, *chunk.adjoint_finish)))


class _Shapes:
    """Sizes of every name, as letters."""

    def __init__(self, chunk: ChunkForm) -> None:
        self.known: dict[str, Shape] = {o.name: ("C", o.size) for o in chunk.operands}
        self.states = chunk.states
        keys = "K" if chunk.states == 1 else f"{chunk.states}K"
        self.known |= {"S": (keys, "V"), "dS": (keys, "V")}
        self._know((*chunk.prepare, *chunk.scan, *chunk.finish))
        self.known |= {f"d_{name}": self.known[name] for name in chunk.reads}
        self._know((*chunk.adjoint_prepare, *chunk.adjoint_scan, *chunk.adjoint_finish))

    def _know(self, steps: tuple[Step, ...]) -> None:
        for step in steps:
            self.known |= dict.fromkeys(step.names, self.of(step.value))

    def of(self, node: Node) -> Shape:
        """The shape of a node; for one with several results, of each."""
        match node:
            case Sym(name):
                return self.known[name]
            case MatMul(left, right, turn_left, turn_right):
                a, b = self.of(left), self.of(right)
                return a[turn_left], b[not turn_right]
            case Sum(terms):
                return self.of(terms[0])
            case Scaled(_, m) | ScaledColumns(m, _) | Negative(m) | Symmetric(m) | Causal(m) | Decayed(m) | Through(m) | Hadamard(m, _):
                return self.of(m)
            case Beside(m):
                return self.of(m)
            case Part(m, column):
                return self.of(m) if column is None else ("C", "1")
            case RowSum() | DecayColumn():
                return ("C", "1")
            case Gamma() | Score() | Inverse() | Substitution():
                return ("C", "C")
            case ScoreGradients() | DecayedProduct() | GateGradient():
                return ("C", "V" if node.values else "K")
            case Solved(_, right):
                return self.of(right)
            case _:
                return self._bordered(node)

    def _bordered(self, node: Node) -> Shape:
        """Of what coupled states add; a border of one row and column is not counted."""
        many = f"{self.states}K"
        match node:
            case Cut(_, "end", "tokens") | ColumnSum() | Crossing():
                return ("C", "1")
            case Cut(_, rows, columns):
                return ("1" if rows == "end" else "C", "1" if columns == "start" else "C")
            case Kept() | Bordered() | Gathered() | Empty():
                return ("C", "C")
            case Joined():
                return ("C", many)
            case Block():
                return ("C", "K")
            case Mixed():
                return (many, "V")
            case Square() | Entry() | Pairings():
                return ("1", "1")
        raise AssertionError(node)

    def flops(self, steps: tuple[Step, ...]) -> Polynomial:
        """Of all steps."""
        return total(self._node(s.value) for s in steps)

    def _node(self, node: Node) -> Polynomial:
        below = total(self._node(c) for c in children(node))
        match node:
            case MatMul(left, right, turn_left, turn_right):
                a, b = self.of(left), self.of(right)
                return below + monomial(2, a[turn_left], a[not turn_left], b[not turn_right])
            case Score() | DecayedProduct():
                return below + monomial(2, "C", "C", "V" if node.values else "K")
            case ScoreGradients():
                return below + monomial(4, "C", "C", "V" if node.values else "K")
            case Substitution():
                return below + monomial(2 * (INVERTED**2 - 1) // 3, "C", "V")  # two products of halves at every size
            case Solved():
                return below + monomial(1, "C", "C", "V")
            case Inverse(blocks):
                return below + monomial(Fraction(len(blocks) ** 3, 3), "C", "C", "C")
            case Mixed() | Pairings():
                return below + monomial(2 * self.states**2, "K", "V")
        return below
