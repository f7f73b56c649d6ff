"""The forward chunk form of a correction that differs by value channel: beside a decay of the value side, or with a strength for each.

What token i finds of token j's write is then c_iv A_ij exp(U_iv - U_jv) in channel v, a system for every channel, and its inverse would be
a matrix for each. The resolved writes are substituted instead, chunk after chunk, where the incoming state is known.
"""

from __future__ import annotations

from dataclasses import dataclass

from recgen.derive.chunk_ir import Step
from recgen.derive.chunk_nodes import Decayed, DecayedProduct, MatMul, Node, Score, Solved, Substitution, Sum, Sym, Through
from recgen.derive.forward import Builder, S, total
from recgen.derive.operands import ReadNames, StreamNames


@dataclass
class ByValueBuilder(Builder):
    """Collects the steps; one stream corrects."""

    value_decay: bool = False

    @property
    def corrector(self) -> StreamNames:
        """The stream that corrects."""
        (stream,) = self.feedback
        return stream

    @property
    def plain(self) -> list[StreamNames]:
        """The streams that only write."""
        return [s for s in self.operands.streams if not s.correct]

    def at_values(self, node: Node, stretch: str) -> Node:
        """The rows [C, V] decayed over a stretch by the value side."""
        return Decayed(node, stretch, values=True) if self.value_decay else node

    def through(self, node: Node) -> Node:
        """The state carried through the chunk by both sides."""
        return self.through_values(super().through(node))

    def through_values(self, node: Node) -> Node:
        """The state carried through the chunk by the value side."""
        return Through(node, values=True) if self.value_decay else node

    def through_keys(self, node: Node) -> Node:
        """The state carried through the chunk by the key side."""
        return super().through(node)

    def value_score(self, left: Node, right: Node, *, exclusive: bool, strict: bool) -> Node:
        """What the linked products of rows [C, V] sum up to: the gradient of the weights of `linked`."""
        return Score(left, right, exclusive, strict, values=True) if self.value_decay else MatMul(left, right, turn_right=True)

    def linked(self, name: str, weights: Node, s: StreamNames, phase: list[Step], *, exclusive: bool, strict: bool) -> Node:
        """What rows take of a stream's writes by these weights, decayed by the value side: a step of its own, then, in this phase."""
        if not self.value_decay:
            return MatMul(weights, self.write(s))
        product = DecayedProduct(weights, self.write(s), exclusive, strict, values=True)
        phase.append(Step(name, product, "P(A, E)", "what is taken of the writes, decayed by value channel"))
        return Sym(name)

    def reach(self, matrix: Node) -> Node:
        """What the correction finds of a state before the chunk."""
        s = self.corrector
        return self.at_values(MatMul(Sym(s.correct if self.decay == "none" else f"a_in{s.tag}"), matrix), s.stretch)

    def right_side(self, found: Node) -> Node:
        """The right-hand side of the substitution, from what the correction finds of the incoming state."""
        s = self.corrector
        known = self.known(s)
        return self.strength(s, found) if known is None else Sum((known, self.strength(s, found)))

    def inward_read(self, read: ReadNames) -> Node:
        """What a read takes of the incoming state."""
        if read.across:
            return self.inward_across(read)
        return self.at_values(self.inward(read.query, f"q_in{read.tag}", read.stretch), read.stretch)

    def inward_across(self, read: ReadNames) -> Node:
        """What a read across takes of the incoming state."""
        if not self.value_decay:
            return super().inward_across(read)
        return self.decayed(MatMul(Sym(f"q_across{read.tag}"), S, turn_right=True), read.stretch)

    def found_across(self, read: ReadNames) -> list[Step]:
        """The weights of a read across: what its query finds in each resolved write, which decays by the value side in between."""
        if not self.value_decay:
            return super().found_across(read)
        steps, before = [], read.lag == 1
        for s in self.operands.streams:
            found = self.value_score(Sym(read.query), self.write(s), exclusive=before, strict=not read.sees(s))
            steps.append(Step(f"A_qe{read.tag}{s.tag}", found, "A^qe", "what each query across finds in each write of the chunk"))
        return steps

    # ---------------------------------------------------------------- forward

    def forward(self) -> None:
        """Prepare, scan, finish."""
        self._gammas()
        for read in self.operands.ordinary:
            self._scores(read)
        for read in self.operands.across:
            if self.value_decay:
                inward = self.at_values(Sym(read.query), read.stretch)
                self.prepare.append(Step(f"q_across{read.tag}", inward, "Q^in", "queries across decayed from the chunk's start"))
        self._substitution()
        for s in self.operands.streams:
            meaning = "write directions decayed to the chunk's end"
            self.prepare.append(Step(f"k_end{s.tag}", self.decayed(Sym(s.write), "end"), "K^end", meaning))
        s = self.corrector
        solved = Solved(Sym(f"T{s.tag}"), self.right_side(self.reach(S)))
        self.scan.append(Step(f"E{s.tag}", solved, "E", "resolved writes, by substitution"))
        carried = [MatMul(Sym(f"k_end{r.tag}"), self.at_values(self.write(r), "end"), turn_left=True) for r in self.operands.streams]
        self.scan.append(Step("S", Sum((self.through(S), *carried)), "S", "the state at the chunk's end"))
        for read in self.operands.reads:
            self._read(read)

    def _scores(self, read: ReadNames) -> None:
        """What a read takes of each write, and its query decayed from the chunk's start."""
        for s in self.operands.streams:
            score = self.score(Sym(read.query), Sym(s.write), exclusive=read.lag == 1, strict=not read.sees(s))
            self.prepare.append(Step(f"A_qk{read.tag}{s.tag}", score, "A^qk", "what each read takes of each write of the chunk"))
        if self.decay == "vector":
            inward = Decayed(Sym(read.query), read.stretch)
            self.prepare.append(Step(f"q_in{read.tag}", inward, "Q^in", "queries decayed from the chunk's start"))

    def _substitution(self) -> None:
        """What the correction finds of each write, the known part of the right-hand side, and what solves the rest."""
        s, prepare = self.corrector, self.prepare
        before = not s.decayed
        for r in self.operands.streams:
            raw = self.score(Sym(s.correct), Sym(r.write), exclusive=before, strict=True)
            prepare.append(Step(f"R{s.tag}{r.tag}", raw, "A^kk", "what each correction finds of each earlier write of the chunk"))
        strength = Sym(s.strength) if s.strength else None
        solver = Substitution(Sym(f"R{s.tag}{s.tag}"), strength, before, self.value_decay)
        prepare.append(Step(f"T{s.tag}", solver, "L", "what solves E = Y + c * P(A^kk, E), channel by channel"))
        if self.plain:
            found = [
                self.linked(f"found_kk{r.tag}", Sym(f"R{s.tag}{r.tag}"), r, prepare, exclusive=before, strict=True) for r in self.plain
            ]
            own = [Sym(s.value)] if s.value else []
            known = total([*own, self.strength(s, total(found))])
            prepare.append(Step(f"X{s.tag}", known, "X", "what is written before the chunk's own corrections"))
        if self.decay != "none":
            inward = Decayed(Sym(s.correct), s.stretch)
            prepare.append(Step(f"a_in{s.tag}", inward, "A^in", "correction directions decayed from the chunk's start"))

    def _read(self, read: ReadNames) -> None:
        """A read: from the incoming state and from the writes of the chunk."""
        before = read.lag == 1
        if read.across:
            self.finish += (*self.found_across(read), *self._taken_across(read))
            inner = [self._inner(read, s) for s in self.operands.streams]
        else:
            inner = [
                self.linked(
                    f"taken_qk{read.tag}{s.tag}", Sym(f"A_qk{read.tag}{s.tag}"), s, self.finish, exclusive=before, strict=not read.sees(s)
                )
                for s in self.operands.streams
            ]
        self.finish.append(Step(f"read{read.tag}", Sum((self.inward_read(read), *inner)), "O", "what the queries read"))
