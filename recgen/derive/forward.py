"""The forward chunk form.

Structure decides what is emitted: without corrections there is no solve, with a scalar decay a [C, C] Gamma, with a vector decay scores
that carry the decay, with none a causal mask.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from recgen.derive.chunk_ir import Step
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
    Node,
    Scaled,
    ScaledColumns,
    Score,
    Sum,
    Sym,
    Through,
)
from recgen.derive.operands import OperandSet, ReadNames, StreamNames

S = Sym("S")


def total(terms: list[Node]) -> Node:
    """The sum of at least one node."""
    return terms[0] if len(terms) == 1 else Sum(tuple(terms))


@dataclass
class Builder:
    """Collects the steps of a chunk form, phase by phase."""

    decay: str
    operands: OperandSet
    prepare: list[Step] = field(default_factory=list)
    scan: list[Step] = field(default_factory=list)
    finish: list[Step] = field(default_factory=list)
    adjoint_prepare: list[Step] = field(default_factory=list)
    adjoint_scan: list[Step] = field(default_factory=list)
    adjoint_finish: list[Step] = field(default_factory=list)

    @property
    def feedback(self) -> list[StreamNames]:
        """Streams that correct."""
        return [s for s in self.operands.streams if s.correct]

    def decayed(self, node: Node, stretch: str) -> Node:
        """The rows decayed over a stretch; unchanged without decay."""
        return node if self.decay == "none" else Decayed(node, stretch)

    def through(self, node: Node) -> Node:
        """The state carried through the chunk."""
        return node if self.decay == "none" else Through(node)

    def score(self, left: Node, right: Node, *, exclusive: bool, strict: bool) -> Node:
        """sum_k left_ik (decay from j to i) right_jk for j <= i or j < i."""
        if self.decay == "vector":
            return Score(left, right, exclusive, strict)
        product = MatMul(left, right, turn_right=True)
        return self.masked(product, exclusive=exclusive, strict=strict)

    def masked(self, matrix: Node, *, exclusive: bool, strict: bool) -> Node:
        """A [C, C] matrix times the decay between its tokens (scalar or no decay)."""
        if self.decay == "none":
            return Causal(matrix, strict)
        weighted = Hadamard(matrix, Sym("gamma_before" if exclusive else "gamma"))
        return Causal(weighted, strict=True) if strict and not exclusive else weighted

    # ---------------------------------------------------------------- forward

    def forward(self) -> None:
        """Prepare, scan, finish."""
        self._beside()
        self._gammas()
        for read in self.operands.ordinary:
            for stream in self.operands.streams:
                seen = read.sees(stream)
                score = self.score(Sym(read.query), Sym(stream.write), exclusive=read.lag == 1, strict=not seen)
                self.prepare.append(Step(f"A_qk{read.tag}{stream.tag}", score, "A^qk", "what each read takes of each write of the chunk"))
            if self.decay == "vector":
                self.prepare.append(
                    Step(f"q_in{read.tag}", Decayed(Sym(read.query), read.stretch), "Q^in", "queries decayed from the chunk's start")
                )
        if self.feedback:
            self._corrections()
        for stream in self.operands.streams:
            self.prepare.append(
                Step(f"k_end{stream.tag}", self.decayed(Sym(stream.write), "end"), "K^end", "write directions decayed to the chunk's end")
            )
        for stream in self.feedback:
            self.scan.append(Step(f"E{stream.tag}", self.resolved(stream), "E", "resolved writes: U + W S"))
        carried = [MatMul(Sym(f"k_end{s.tag}"), self.write(s), turn_left=True) for s in self.operands.streams]
        self.scan.append(Step("S", Sum((self.through(S), *carried)), "S", "the state at the chunk's end"))
        for read in self.operands.reads:
            if read.across:
                self.finish += (*self.found_across(read), *self._taken_across(read))
            inner = [self._inner(read, s) for s in self.operands.streams]
            outer = self.inward_across(read) if read.across else self.inward(read.query, f"q_in{read.tag}", read.stretch)
            self.finish.append(Step(f"read{read.tag}", Sum((outer, *inner)), "O", "what the queries read"))

    def _inner(self, read: ReadNames, s: StreamNames) -> Node:
        """What a read takes of a stream's writes of the chunk."""
        if not read.across:
            return MatMul(Sym(f"A_qk{read.tag}{s.tag}"), self.write(s))
        if self.decay == "vector":
            return Sym(f"taken{read.tag}{s.tag}")
        return MatMul(Sym(f"A_qe{read.tag}{s.tag}"), Sym(s.write))

    def found_across(self, read: ReadNames) -> list[Step]:
        """The weights of a read across: what its query finds in each resolved write. A vector decay links the tokens later."""
        before = read.lag == 1
        steps = []
        for s in self.operands.streams:
            product = MatMul(Sym(read.query), self.write(s), turn_right=True)
            found = product if self.decay == "vector" else self.masked(product, exclusive=before, strict=not read.sees(s))
            steps.append(Step(f"A_qe{read.tag}{s.tag}", found, "A^qe", "what each query across finds in each write of the chunk"))
        return steps

    def _taken_across(self, read: ReadNames) -> list[Step]:
        """With a vector decay, what a read across takes of each write."""
        if self.decay != "vector":
            return []
        before, meaning = read.lag == 1, "what the queries across take of the writes, decayed by channel"
        steps = []
        for s in self.operands.streams:
            value = DecayedProduct(Sym(f"A_qe{read.tag}{s.tag}"), Sym(s.write), before, not read.sees(s))
            steps.append(Step(f"taken{read.tag}{s.tag}", value, "O^qe", meaning))
        return steps

    def inward_across(self, read: ReadNames) -> Node:
        """What a read across takes of the incoming state."""
        return self.decayed(MatMul(Sym(read.query), S, turn_right=True), read.stretch)

    def inward(self, name: str, decayed_name: str, stretch: str) -> Node:
        """Rows decayed from the chunk's start, times the incoming state: a scalar decay is cheapest on the product."""
        if self.decay == "vector":
            return MatMul(Sym(decayed_name), S)
        return self.decayed(MatMul(Sym(name), S), stretch)

    def resolved(self, stream: StreamNames) -> Node:
        """The resolved writes of a correcting stream from the incoming state."""
        reach = MatMul(Sym(f"W{stream.tag}"), S)
        return Sum((Sym(f"U{stream.tag}"), reach)) if self.has_x(stream) else reach

    def write(self, stream: StreamNames) -> Node:
        """The resolved writes of a stream: E where it corrects, else its values."""
        return Sym(f"E{stream.tag}") if stream.correct else self.value(stream)

    def value(self, stream: StreamNames) -> Node:
        """The values of a stream that has some, with those of the further columns beside them."""
        return Sym(f"written{stream.tag}" if stream.columns else stream.value)

    def _beside(self) -> None:
        for s in self.operands.streams:
            if s.columns and s.value:
                columns = tuple(Sym(c) if c else None for c in s.columns)
                self.prepare.append(
                    Step(f"written{s.tag}", Beside(Sym(s.value), columns), "X", "what is written, with the further columns")
                )

    def _gammas(self) -> None:
        if self.decay != "scalar":
            return
        lags = {read.lag for read in self.operands.reads}
        kinds = {s.decayed for s in self.feedback}
        if 0 in lags or True in kinds:
            self.prepare.append(Step("gamma", Gamma(False), "Γ", "decay from token j to token i"))
        if 1 in lags or False in kinds:
            self.prepare.append(Step("gamma_before", Gamma(True), "Γ^<", "decay from token j to just before token i"))

    def strength(self, stream: StreamNames, matrix: Node) -> Node:
        """c * matrix."""
        if stream.by_channel:
            return Hadamard(Sym(stream.strength), matrix)
        return Scaled(Sym(stream.strength), matrix) if stream.strength else matrix

    def _corrections(self) -> None:
        streams = self.operands.streams
        for s in self.feedback:
            for r in streams:
                raw = self.score(Sym(s.correct), Sym(r.write), exclusive=not s.decayed, strict=not s.finds(r))
                self.prepare.append(Step(f"R{s.tag}{r.tag}", raw, "A^kk", "what each correction finds of each earlier write of the chunk"))
        blocks = tuple(tuple(self.strength(s, Sym(f"R{s.tag}{r.tag}")) for r in self.feedback) for s in self.feedback)
        names = ", ".join(f"A_kk{s.tag}{r.tag}" for s in self.feedback for r in self.feedback)
        self.prepare.append(Step(names, Inverse(blocks), "(I - L)^-1", "the causal triangular inverse, L = c * A^kk"))
        for s in self.feedback:
            plain = [MatMul(Sym(f"R{s.tag}{r.tag}"), self.value(r)) for r in streams if not r.correct]
            if plain:
                own: list[Node] = [self.value(s)] if s.value else []
                known = total([*own, self.strength(s, total(list(plain)))])
                self.prepare.append(Step(f"X{s.tag}", known, "X", "what is written before the chunk's own corrections"))
            if self.decay == "vector":
                inward = Decayed(Sym(s.correct), s.stretch)
                self.prepare.append(Step(f"a_in{s.tag}", inward, "A^in", "correction directions decayed from the chunk's start"))
        for s in self.feedback:
            inverse = [Sym(f"A_kk{s.tag}{r.tag}") for r in self.feedback]
            value = [MatMul(a, x) for a, r in zip(inverse, self.feedback, strict=True) if (x := self.known(r)) is not None]
            reach = [self._reach(a, r) for a, r in zip(inverse, self.feedback, strict=True)]
            if value:
                self.prepare.append(Step(f"U{s.tag}", total(list(value)), "U", "the writes if the chunk began with an empty state"))
            self.prepare.append(Step(f"W{s.tag}", total(list(reach)), "W", "how the writes answer to the incoming state"))

    def _reach(self, inverse: Node, stream: StreamNames) -> Node:
        """(I - L)^-1 (c * decay * a); numbers per token scale the columns of the inverse, which is the smaller matrix."""
        if self.decay == "vector":
            return MatMul(inverse, self.strength(stream, Sym(f"a_in{stream.tag}")))
        column: Node | None = Sym(stream.strength) if stream.strength else None
        if self.decay == "scalar":
            decay = DecayColumn(stream.stretch)
            column = decay if column is None else Hadamard(column, decay)
        return MatMul(inverse if column is None else ScaledColumns(inverse, column), Sym(stream.correct))

    def has_x(self, stream: StreamNames) -> bool:
        """Whether the solve has a known part, so that the stream has a U."""
        return any(r.value for r in self.operands.streams)

    def known(self, stream: StreamNames) -> Node | None:
        """The known part of a correcting stream's right-hand side: its values and what it finds of the plain writes."""
        if any(not r.correct for r in self.operands.streams):
            return Sym(f"X{stream.tag}")
        return self.value(stream) if stream.value else None
