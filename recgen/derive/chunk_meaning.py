"""The exact meaning of chunk steps over polynomials."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from recgen.derive.chunk_ir import ChunkForm, Step
from recgen.derive.chunk_nodes import (
    Beside,
    Causal,
    DecayColumn,
    Decayed,
    DecayedProduct,
    Gamma,
    Hadamard,
    Inverse,
    MatMul,
    Negative,
    Node,
    Scaled,
    ScaledColumns,
    Score,
    Solved,
    Substitution,
    Sum,
    Sym,
    Through,
)
from recgen.derive.meaning import Matrix, Unknown, product, turned
from recgen.derive.proof import ProofFailed

_BOUNDS: dict[str, Callable[[int, int], tuple[int, int]]] = {
    "start": lambda i, _: (-1, i),
    "before": lambda i, _: (-1, i - 1),
    "end": lambda i, tokens: (i, tokens - 1),
}
"""For each stretch: the token after which decay counts and the last that counts, of row i in a chunk of so many tokens."""


class ChunkMeaning:
    """Evaluates chunk steps over polynomials; `weights` scale what each token writes."""

    def __init__(
        self,
        values: dict[str, Matrix],
        decay: list[list[Any]],
        value_decay: list[list[Any]],
        weights: list[Any],
        chunk_decay: str,
        tokens: int,
        steps: int,
        number: Any,
    ) -> None:
        self.values, self.decay, self.chunk_decay, self.tokens, self.number = values, decay, chunk_decay, tokens, number
        self.value_decay, self.weights = value_decay, weights
        self.solvers: dict[str, Substitution] = {}
        self.steps = steps  # micro-steps that write at a token
        self.zero, self.one = number(0.0), number(1.0)

    def step(self, step: Step) -> None:
        """Evaluates one step and keeps its value."""
        if isinstance(step.value, Inverse):
            self.values |= zip(step.names, self._inverse(step.value.blocks), strict=True)
        elif isinstance(step.value, Substitution):
            self.solvers[step.name] = step.value
        else:
            self.values[step.name] = self.value(step.value)

    def forward(self, chunk: ChunkForm) -> Matrix:
        """Evaluates the forward's phases, the last from the incoming state; returns the outgoing one."""
        for step in chunk.prepare:
            self.step(step)
        incoming = self.values["S"]
        for step in chunk.scan:
            self.step(step)
        final, self.values["S"] = self.values["S"], incoming
        for step in chunk.finish:
            self.step(step)
        return final

    def span(self, after: int, until: int, k: int, values: bool = False) -> Any:
        """The product of the decays of tokens after+1 .. until, of one channel of a side."""
        out = self.one
        for t in range(after + 1, until + 1):
            out = out * (self.value_decay if values else self.decay)[t][k]
        return out

    def value(self, node: Node) -> Matrix:
        """The node as a matrix of polynomials."""
        match node:
            case Sym(name):
                return self.values[name]
            case MatMul(left, right, turn_left, turn_right):
                a, b = self.value(left), self.value(right)
                return product(turned(a) if turn_left else a, turned(b) if turn_right else b, self.zero)
            case Sum(terms):
                first, *rest = [self.value(t) for t in terms]
                for m in rest:
                    first = [[x + y for x, y in zip(r, s, strict=True)] for r, s in zip(first, m, strict=True)]
                return first
            case Negative(matrix):
                return [[-x for x in row] for row in self.value(matrix)]
            case Scaled(column, matrix):
                return [[c * x for x in row] for (c,), row in zip(self.value(column), self.value(matrix), strict=True)]
            case ScaledColumns(matrix, column):
                factors = [c for (c,) in self.value(column)]
                return [[x * c for x, c in zip(row, factors, strict=True)] for row in self.value(matrix)]
            case Hadamard(left, right):
                return [[x * y for x, y in zip(r, s, strict=True)] for r, s in zip(self.value(left), self.value(right), strict=True)]
            case Beside(matrix, columns):
                beside = [None if c is None else self.value(c) for c in columns]
                extra = [[self.zero if c is None else c[i][0] for c in beside] for i in range(self.tokens)]
                return [[*row, *more] for row, more in zip(self.value(matrix), extra, strict=True)]
        return self._of_tokens(node)

    def _of_tokens(self, node: Node) -> Matrix:
        """A node that goes by the order of tokens: links, decays, solves."""
        match node:
            case DecayColumn(stretch):
                return [[self.span(*_BOUNDS[stretch](i, self.tokens), 0)] for i in range(self.tokens)]
            case Causal(matrix, strict):
                return [[x if j < i + (not strict) else self.zero for j, x in enumerate(row)] for i, row in enumerate(self.value(matrix))]
            case Gamma(exclusive):
                n = range(self.tokens)
                return [[self.weights[j] * self.span(j, i - exclusive, 0) if j <= i - exclusive else self.zero for j in n] for i in n]
            case Score():
                return self._score(node)
            case DecayedProduct():
                return self._decayed_product(node)
            case Solved(Sym(name), right):
                return self._solved(self.solvers[name], self.value(right))
            case Decayed(matrix, stretch, values):
                rows = self.value(matrix)
                scalar = self.chunk_decay == "scalar" and not values
                spans = [_BOUNDS[stretch](i, self.tokens) for i in range(self.tokens)]
                weights = self.weights if stretch == "end" else [self.one] * self.tokens
                return [
                    [x * weights[i] * self.span(*spans[i], 0 if scalar else k, values) for k, x in enumerate(row)]
                    for i, row in enumerate(rows)
                ]
            case Through(matrix, True):
                return [[x * self.span(-1, self.tokens - 1, v, True) for v, x in enumerate(row)] for row in self.value(matrix)]
            case Through(matrix):
                return [[x * self.span(-1, self.tokens - 1, k) for x in row] for k, row in enumerate(self.value(matrix))]
        raise AssertionError(f"{type(node).__name__} is not part of the forward form")

    def _score(self, node: Score) -> Matrix:
        left, right = self.value(node.left), self.value(node.right)
        out = []
        for i in range(self.tokens):
            until = i - node.exclusive
            last = i - (node.strict or node.exclusive)
            row = [
                sum((left[i][k] * self.span(j, until, k, node.values) * right[j][k] for k in range(len(left[i]))), self.zero)
                if j <= last
                else self.zero
                for j in range(self.tokens)
            ]
            out.append(row)
        return out

    def _decayed_product(self, node: DecayedProduct) -> Matrix:
        weights, right = self.value(node.weights), self.value(node.right)
        if node.values:
            self._require_causal(weights, node.strict or node.exclusive)
        out = []
        for i in range(self.tokens):
            linked = range(i + 1 - (node.strict or node.exclusive))
            row = [
                sum((weights[i][j] * self.span(j, i - node.exclusive, k, node.values) * right[j][k] for j in linked), self.zero)
                for k in range(len(right[i]))
            ]
            out.append(row)
        return out

    @staticmethod
    def _require_causal(weights: Matrix, strict: bool) -> None:
        """What the code of these nodes never reads has to be 0."""
        beyond = (x for i, row in enumerate(weights) for x in row[i + (not strict) :])
        if any(not isinstance(x, Unknown) and x != 0 for x in beyond):
            raise ProofFailed("weights of tokens that are not linked")

    def _solved(self, solver: Substitution, right: Matrix) -> Matrix:
        """E = right + c * P(A, E), token after token."""
        weights = self.value(solver.matrix)
        self._require_causal(weights, True)
        out: Matrix = []
        strength = None if solver.strength is None else self.value(solver.strength)
        for i, row in enumerate(right):
            until = i - solver.exclusive
            spans = [[self.span(j, until, v, True) if solver.decays else self.one for v in range(len(row))] for j in range(i)]
            found = [sum((weights[i][j] * spans[j][v] * out[j][v] for j in range(i)), self.zero) for v in range(len(row))]
            factors = [self.one] * len(row) if strength is None else strength[i] * (len(row) if len(strength[i]) == 1 else 1)
            out.append([x + c * f for x, c, f in zip(row, factors, found, strict=True)])
        return out

    def _inverse(self, blocks: tuple[tuple[Node, ...], ...]) -> list[Matrix]:
        """The blocks of I + L + L^2 + ..., which ends because L is strictly causal, over tokens and the micro-steps of each."""
        values = [[self.value(b) for b in line] for line in blocks]
        whole = [[x for b in line for x in b[i]] for line in values for i in range(self.tokens)]
        n = len(whole)
        total = [[self.one if i == j else self.zero for j in range(n)] for i in range(n)]
        power = total
        for _ in range(self.tokens * self.steps):
            power = product(power, whole, self.zero)
            total = [[x + y for x, y in zip(r, s, strict=True)] for r, s in zip(total, power, strict=True)]
        parts = [slice(i * self.tokens, (i + 1) * self.tokens) for i in range(len(blocks))]
        return [[line[column] for line in total[row]] for row in parts for column in parts]
