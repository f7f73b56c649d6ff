"""The proof of a chunk form: expanded for a small chunk, it must equal the unrolled recurrence, exactly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from recgen.analysis.algebra import plus
from recgen.analysis.normal_form import NormalForm
from recgen.derive.chunk_ir import (
    Beside,
    Causal,
    ChunkForm,
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
    Step,
    Substitution,
    Sum,
    Sym,
    Through,
)
from recgen.derive.meaning import Matrix, Meaning, States, Symbols, Unknown, multiplier, product, turned
from recgen.derive.operands import OperandSet
from recgen.lang.recurrence import Recurrence
from recgen.lang.terms import SCALAR, Apply, Read, State, Term, rebuild


class ProofFailed(Exception):
    """The chunk form does not equal the recurrence: a compiler bug."""


@dataclass(frozen=True)
class Proof:
    """What was shown: for chunks of `tokens` tokens and the given axis sizes, `identities` polynomial identities hold exactly."""

    tokens: int
    sizes: tuple[tuple[str, int], ...]
    identities: int
    symbols: int

    def __str__(self) -> str:
        sizes = ", ".join(f"{axis} = {n}" for axis, n in self.sizes)
        span = f"chunk of {self.tokens} tokens" if self.tokens > 1 else "one token"
        return f"{span}, {sizes}: {self.identities} polynomial identities in {self.symbols} symbols hold exactly"


def prove(form: NormalForm, operands: OperandSet, chunk: ChunkForm, tokens: int | None = None) -> Proof:
    """Compares outputs and final state of the chunk form with the unrolled recurrence; raises ProofFailed where they differ.

    Chunks of three tokens, of two where a token takes more than two micro-steps: every one multiplies the terms of the polynomials.
    """
    if tokens is None:
        tokens = 3 if len({s.slot for s in form.streams}) <= 2 else 2
    sizes = sizes_of(form.recurrence, form.key_axis, form.value_axis)
    return compare(lambda symbols, number: _Sides(form, operands, chunk, tokens, sizes, symbols, number), tokens, sizes)


def sizes_of(recurrence: Recurrence, key_axis: str, value_axis: str) -> dict[str, int]:
    """The sizes of the axes in a proof: two keys and values, one of everything else."""
    sizes = dict.fromkeys((key_axis, value_axis), 2)
    return sizes | {axis: 1 for a in recurrence.arguments for axis in a.axes if axis not in sizes}


class Sides(Protocol):
    """Both sides of an identity, by the names of what is compared."""

    def unrolled(self) -> dict[str, Matrix]:
        """What the recurrence gives."""

    def chunked(self) -> dict[str, Matrix]:
        """What the chunk form gives."""


def compare(make: Callable[[Symbols, Any], Sides], tokens: int, sizes: dict[str, int]) -> Proof:
    """Both sides in one ring, entry by entry; raises ProofFailed where they differ."""
    symbols = Symbols()
    unproved = make(symbols, lambda _: Unknown())
    unproved.unrolled(), unproved.chunked()
    sides = make(symbols, symbols.generate())
    unrolled, derived = sides.unrolled(), sides.chunked()
    count = 0
    for name, left in unrolled.items():
        for i, (row, other) in enumerate(zip(left, derived[name], strict=True)):
            for j, (x, y) in enumerate(zip(row, other, strict=True)):
                count += 1
                if x - y != 0:
                    raise ProofFailed(f"{name}[{i}, {j}]: the recurrence gives {x}, the chunk form {y}")
    return Proof(tokens, tuple(sizes.items()), count, symbols.count)


class _Sides:
    """Both sides of the identity, in one ring."""

    def __init__(
        self, form: NormalForm, operands: OperandSet, chunk: ChunkForm, tokens: int, sizes: dict[str, int], symbols: Symbols, number: Any
    ) -> None:
        self.form, self.operands, self.chunk, self.tokens = form, operands, chunk, tokens
        self.meaning = Meaning(sizes, symbols, number)
        self.number = number
        self.keys, self.values = sizes[form.key_axis], sizes[form.value_axis]

    def _known(self, before: dict[str, Matrix], t: int) -> States:
        """All states before and after a token, the running maximum first, since the others read it."""
        known: States = {(name, 1, None): value for name, value in before.items()}
        scale = "" if self.form.stabilizer is None else self.form.stabilizer.state.name
        for info in sorted(self.form.recurrence.states, key=lambda x: x.name != scale):
            for step, equation in enumerate(info.micro):
                known[info.name, 0, step] = self.meaning.value(equation, t, known)
            known[info.name, 0, None] = self.meaning.value(info.equation, t, known)
        return known

    def unrolled(self) -> dict[str, Matrix]:
        """Outputs of every token and the final states, token by token."""
        return unrolled(self.form.recurrence, self.meaning, self.tokens, self._known)

    def chunked(self) -> dict[str, Matrix]:
        """The same from the chunk form; the running maximum, which is no polynomial, as written."""
        values: dict[str, Matrix] = {}
        for operand in self.operands.operands:
            term = self.operands.term(operand.name)
            if operand.name not in ("log_decay", "value_log_decay", "log_weight", *self.operands.signs):
                values[operand.name] = [[x for (x,) in self.meaning.value(term, t, {})] for t in range(self.tokens)]
        initial = initial_states(self.form.recurrence, self.meaning)
        scales = self._scales(initial)
        run = ChunkMeaning(
            values,
            self._multipliers(scales),
            self._value_multipliers(),
            self._weights(scales),
            self.chunk.decay,
            self.tokens,
            len({s.slot for s in self.form.streams}),
            self.number,
        )
        values["S"] = self._joined(initial)
        for step in self.chunk.prepare:
            run.step(step)
        incoming = values["S"]
        for step in self.chunk.scan:
            run.step(step)
        final = values["S"]
        values["S"] = incoming
        for step in self.chunk.finish:
            run.step(step)
        found = {}
        for t in range(self.tokens):
            reads = self._reads(values, scales, t)
            for output in self.form.outputs:
                found[f"{output.name} at token {t}"] = self.meaning.value(rebuild(output.value, as_state), t, reads)
        ends = {**self._apart(final), **{name: value for (name, lag, _), value in scales[-1].items() if not lag}}
        return {**found, **{f"the final state {name}": value for name, value in ends.items()}}

    def _joined(self, states: dict[str, Matrix]) -> Matrix:
        """The matrix state by its key axis, with the vector states as its last columns."""
        matrix = states[self.form.state.name]
        columns = [states[c.name] for c in self.form.columns]
        return [[*row, *(c[k][0] for c in columns)] for k, row in enumerate(turned(matrix) if self.form.transposed else matrix)]

    def _apart(self, joined: Matrix) -> dict[str, Matrix]:
        """The declared states of a joined one."""
        matrix = [row[: self.values] for row in joined]
        found = {self.form.state.name: turned(matrix) if self.form.transposed else matrix}
        return {**found, **{c.name: [[row[self.values + i]] for row in joined] for i, c in enumerate(self.form.columns)}}

    def _reads(self, values: dict[str, Matrix], scales: list[States], t: int) -> States:
        """What was read at a token, by the names that `as_state` gives."""
        found: States = {(f"read 0 {name}", 0, None): value for (name, lag, _), value in scales[t].items() if not lag}
        for m, name in enumerate(self.chunk.reads):
            row = values[name][t]
            found[f"read {m} ", 0, None] = [[x] for x in row[: self.values]]
            found |= {(f"read {m} {c.name}", 0, None): [[row[self.values + i]]] for i, c in enumerate(self.form.columns)}
        return found

    def _scales(self, initial: dict[str, Matrix]) -> list[States]:
        """The running maximum before and after every token; nothing without one."""
        if self.form.stabilizer is None:
            return [{} for _ in range(self.tokens)]
        state = self.form.stabilizer.state
        found: list[States] = []
        before = initial[state.name]
        for t in range(self.tokens):
            after = self.meaning.value(state.equation, t, {(state.name, 1, None): before})
            found.append({(state.name, 1, None): before, (state.name, 0, None): after})
            before = after
        return found

    def _multipliers(self, scales: list[States]) -> list[list[Any]]:
        """The decay of every token and key channel: exp(g), or exp(g + m[t-1] - m[t]) of which e^(G_i + .. - m_i) is the product."""
        if self.form.decay.log is None:
            return []
        alpha = multiplier(self.form.decay.log) if self.form.decay.signed is None else self.form.decay.signed
        if self.form.stabilizer is not None:
            alpha = self._scaled(plus(self.form.decay.log, State(self.form.stabilizer.state.name, 1, SCALAR)))
        columns = [self.meaning.value(alpha, t, scales[t]) for t in range(self.tokens)]
        return [[row[0] for row in column] * (self.keys if len(column) == 1 else 1) for column in columns]

    def _value_multipliers(self) -> list[list[Any]]:
        """The decay of every token and value channel."""
        decay = self.form.value_decay
        if decay.log is None:
            return []
        gamma = multiplier(decay.log) if decay.signed is None else decay.signed
        return [[x for (x,) in self.meaning.value(gamma, t, {})] for t in range(self.tokens)]

    def _weights(self, scales: list[States]) -> list[Any]:
        """exp(l - m[t]) of every token, 1 without a stabilizer."""
        if self.form.stabilizer is None:
            return [self.number(1.0)] * self.tokens
        weight = self._scaled(self.form.stabilizer.weight)
        return [self.meaning.value(weight, t, scales[t])[0][0] for t in range(self.tokens)]

    def _scaled(self, log: Term) -> Term:
        """exp(log - m[t])."""
        assert self.form.stabilizer is not None
        after = State(self.form.stabilizer.state.name, 0, SCALAR)
        return Apply("exp", (Apply("sub", (log, after), SCALAR),), SCALAR)


def initial_states(recurrence: Recurrence, meaning: Meaning) -> dict[str, Matrix]:
    """Every incoming state as declared."""
    found = {}
    for info in recurrence.states:
        first, second = (*info.axes, "1", "1")[:2]
        rows, columns = meaning.sizes[first], meaning.sizes[second]
        state = State(info.name, 1, (first, second))
        found[info.name] = [[meaning.symbols.entry(state, -1, i, j) for j in range(columns)] for i in range(rows)]
    return found


def unrolled(recurrence: Recurrence, meaning: Meaning, tokens: int, after: Callable[[dict[str, Matrix], int], States]) -> dict[str, Matrix]:
    """Outputs of every token and the final states; `after` gives all states before and after a token from those before it."""
    states, found = initial_states(recurrence, meaning), {}
    for t in range(tokens):
        known = after(states, t)
        for output in recurrence.outputs:
            found[f"{output} at token {t}"] = meaning.value(recurrence.definition(output), t, known)
        states = {name: known[name, 0, None] for name in states}
    return {**found, **{f"the final state {name}": value for name, value in states.items()}}


def as_state(term: Term) -> Term:
    """A read, as a state whose value is given."""
    return State(f"read {term.index} {term.state}", 0, term.shape) if isinstance(term, Read) else term


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
            case DecayColumn(stretch):
                return [[self.span(*_BOUNDS[stretch](i, self.tokens), 0)] for i in range(self.tokens)]
            case Hadamard(left, right):
                return [[x * y for x, y in zip(r, s, strict=True)] for r, s in zip(self.value(left), self.value(right), strict=True)]
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
            case Beside(matrix, columns):
                beside = [None if c is None else self.value(c) for c in columns]
                extra = [[self.zero if c is None else c[i][0] for c in beside] for i in range(self.tokens)]
                return [[*row, *more] for row, more in zip(self.value(matrix), extra, strict=True)]
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
