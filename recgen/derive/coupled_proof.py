"""The proof of the chunk form of coupled states: expanded for a small chunk, it must equal the unrolled recurrence, exactly."""

from __future__ import annotations

from typing import Any

from recgen.analysis.coupled_form import CoupledForm
from recgen.analysis.order import within_a_token
from recgen.derive.bordered_nodes import Bordered, Cut, Empty, Joined, Kept, Mixed, Square
from recgen.derive.chunk_ir import ChunkForm
from recgen.derive.chunk_meaning import ChunkMeaning
from recgen.derive.chunk_nodes import Node
from recgen.derive.coupled_operands import CoupledOperands
from recgen.derive.meaning import Matrix, Meaning, States, multiplier, turned
from recgen.derive.proof import Proof, compare, initial_states, read_out, sizes_of, unrolled


def prove_coupled(form: CoupledForm, operands: CoupledOperands, chunk: ChunkForm, tokens: int | None = None) -> Proof:
    """Compares outputs and final states of the chunk form with the unrolled recurrence; raises ProofFailed where they differ.

    Chunks of three tokens, of two where several writes of a token may correct each other.
    """
    if tokens is None:
        tokens = 3 if sum(bool(s.corrections) for s in form.streams) <= 1 else 2
    sizes = sizes_of(form.recurrence, form.key_axis, form.value_axis)
    return compare(lambda symbols, number: _Sides(form, operands, chunk, tokens, Meaning(sizes, symbols, number)), tokens, sizes)


class _Sides:
    """Both sides of the identity, in one ring."""

    def __init__(self, form: CoupledForm, operands: CoupledOperands, chunk: ChunkForm, tokens: int, meaning: Meaning) -> None:
        self.form, self.operands, self.chunk, self.tokens = form, operands, chunk, tokens
        self.meaning, self.number = meaning, meaning.number

    def unrolled(self) -> dict[str, Matrix]:
        """Outputs of every token and the final states, token by token."""
        return unrolled(self.form.recurrence, self.meaning, self.tokens, self._after)

    def _after(self, before: dict[str, Matrix], t: int) -> States:
        """All states before and after a token, each after those that its equation reads."""
        known: States = {(name, 1, None): value for name, value in before.items()}
        for info in within_a_token(self.form.recurrence):
            for step, equation in enumerate(info.micro):
                known[info.name, 0, step] = self.meaning.value(equation, t, known)
            known[info.name, 0, None] = self.meaning.value(info.equation, t, known)
        return known

    def chunked(self) -> dict[str, Matrix]:
        """The same from the chunk form."""
        values: dict[str, Matrix] = {}
        for operand in self.operands.operands:
            if operand.symbol not in ("g", "sign"):
                term = self.operands.term(operand.name)
                values[operand.name] = [[x for (x,) in self.meaning.value(term, t, {})] for t in range(self.tokens)]
        run = _Meaning(values, self._multipliers(), self.tokens, len(self.form.streams), self.number)
        initial = initial_states(self.form.recurrence, self.meaning)
        run.values["S"] = [row for name in self.form.names for row in self._turned(initial[name])]
        final = run.forward(self.chunk)
        reads: list[States] = [
            {(f"read {m} ", 0, None): [[x] for x in run.values[name][t]] for m, name in enumerate(self.chunk.reads)}
            for t in range(self.tokens)
        ]
        found = read_out(self.form.outputs, self.meaning, reads)
        keys = len(final) // len(self.form.states)
        parts = {name: self._turned(final[i * keys : (i + 1) * keys]) for i, name in enumerate(self.form.names)}
        return {**found, **{f"the final state {name}": value for name, value in parts.items()}}

    def _turned(self, state: Matrix) -> Matrix:
        """A declared state by its key axis, and back."""
        return turned(state) if self.form.transposed else state

    def _multipliers(self) -> list[list[Any]]:
        """Every state's decay of every token: 1 for a state that does not forget, 0 for one that does not carry itself on."""
        found = []
        for d in self.form.decays:
            if d.log is None:
                found.append([self.number(float(d.kind == "none"))] * self.tokens)
                continue
            alpha = multiplier(d.log) if d.signed is None else d.signed
            found.append([self.meaning.value(alpha, t, {})[0][0] for t in range(self.tokens)])
        return found


class _Meaning(ChunkMeaning):
    """Evaluates chunk steps over polynomials, the links of several states with their border."""

    def __init__(self, values: dict[str, Matrix], decays: list[list[Any]], tokens: int, streams: int, number: Any) -> None:
        super().__init__(values, [], [], [], "coupled", tokens, streams, number)
        self.decays = decays

    def value(self, node: Node) -> Matrix:
        """The node as a matrix of polynomials."""
        match node:
            case Kept():
                return self._kept(node)
            case Cut(matrix, rows, columns):
                found = [row[_PLACES[columns]] for row in self.value(matrix)[_PLACES[rows]]]
                return turned(found) if (rows, columns) == ("end", "tokens") else found
            case Bordered(matrix, "after", "all"):
                found = self.value(matrix)
                return [[self.zero] * len(found[0]), *found]
            case Empty(matrix):
                return [[self.zero for _ in row] for row in self.value(matrix)]
            case Joined(parts):
                found = next(self.value(p) for p in parts if p is not None)
                rows_of = [[[self.zero for _ in row] for row in found] if p is None else self.value(p) for p in parts]
                return [[x for part in rows_of for x in part[i]] for i in range(len(found))]
            case Square(entries):
                return [[self.zero if x is None else self.value(x)[0][0] for x in row] for row in entries]
            case Mixed(square, state, False):
                return self._mixed(self.value(square), self.value(state))
        return super().value(node)

    def _kept(self, node: Kept) -> Matrix:
        """The products of a state's decays between tokens, from before the first."""
        decay = self.decays[int(node.tag[1:]) - 1] if node.kind == "scalar" else [self.one] * self.tokens
        places = range(self.tokens + 1)
        found = [[self.one if i == j else self.zero for j in places] for i in places]
        for j in places:
            for i in range(j + 1, self.tokens + 1):
                found[i][j] = found[i - 1][j] * decay[i - 1]
        return found

    def _mixed(self, square: Matrix, state: Matrix) -> Matrix:
        """Every state as a sum of multiples of all."""
        keys = len(state) // len(square)
        parts = [state[i * keys : (i + 1) * keys] for i in range(len(square))]
        return [
            [sum((z * part[k][v] for z, part in zip(row, parts, strict=True)), self.zero) for v in range(len(state[0]))]
            for row in square
            for k in range(keys)
        ]


_PLACES = {"after": slice(1, None), "tokens": slice(1, None), "before": slice(None, -1), "end": slice(-1, None), "start": slice(0, 1)}
_PLACES["all"] = slice(None)
"""Rows and columns of the parts of a matrix of links."""
