"""The proof of the chunk form of a normal form: expanded for a small chunk, it must equal the unrolled recurrence, exactly."""

from __future__ import annotations

from typing import Any

from recgen.analysis.arithmetic import plus
from recgen.analysis.normal_form import NormalForm
from recgen.derive.chunk_ir import ChunkForm
from recgen.derive.chunk_meaning import ChunkMeaning
from recgen.derive.meaning import Matrix, Meaning, States, Symbols, multiplier, turned
from recgen.derive.operands import OperandSet
from recgen.derive.proof import Proof, compare, initial_states, read_out, sizes_of, unrolled
from recgen.lang.terms import SCALAR, Apply, State, Term


def prove(form: NormalForm, operands: OperandSet, chunk: ChunkForm, tokens: int | None = None) -> Proof:
    """Compares outputs and final state of the chunk form with the unrolled recurrence; raises ProofFailed where they differ.

    Chunks of three tokens, of two where a token takes more than two micro-steps: every one multiplies the terms of the polynomials.
    """
    if tokens is None:
        tokens = 3 if len({s.slot for s in form.streams}) <= 2 else 2
    sizes = sizes_of(form.recurrence, form.key_axis, form.value_axis)
    return compare(lambda symbols, number: _Sides(form, operands, chunk, tokens, sizes, symbols, number), tokens, sizes)


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
        values = self._operand_values()
        initial = initial_states(self.form.recurrence, self.meaning)
        scales = self._scales(initial)
        run = ChunkMeaning(
            {**values, "S": self._joined(initial)},
            self._multipliers(scales),
            self._value_multipliers(),
            self._weights(scales),
            self.chunk.decay,
            self.tokens,
            len({s.slot for s in self.form.streams}),
            self.number,
        )
        final = run.forward(self.chunk)
        found = read_out(self.form.outputs, self.meaning, [self._reads(run.values, scales, t) for t in range(self.tokens)])
        ends = {**self._apart(final), **{name: value for (name, lag, _), value in scales[-1].items() if not lag}}
        return {**found, **{f"the final state {name}": value for name, value in ends.items()}}

    def _operand_values(self) -> dict[str, Matrix]:
        """The chunk's operands, [C, axis], but those that describe decays and weights."""
        found = {}
        for operand in self.operands.operands:
            if operand.name not in ("log_decay", "value_log_decay", "log_weight", *self.operands.signs):
                term = self.operands.term(operand.name)
                found[operand.name] = [[x for (x,) in self.meaning.value(term, t, {})] for t in range(self.tokens)]
        return found

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
        """What was read at a token, by the names that `read_out` looks for."""
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
