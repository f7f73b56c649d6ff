"""The adjoint of the chunk form: the same solve transposed, the same scores, read from the other end.

The gradient of every operand is the sum of what each use contributes; the gate's gradient sums the links that cross a token (never a
difference of row and column sums).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from recgen.derive.chunk_ir import Step
from recgen.derive.chunk_nodes import (
    Decayed,
    GateGradient,
    Hadamard,
    MatMul,
    Node,
    Part,
    RowSum,
    Score,
    ScoreGradients,
    Sum,
    Sym,
    Symmetric,
)
from recgen.derive.forward import Builder, S, total
from recgen.derive.operands import ReadNames, StreamNames

DS = Sym("dS")


@dataclass
class Gate:
    """The links of a log decay, as those of a `GateGradient`."""

    links: list[Node] = field(default_factory=list)
    links_before: list[Node] = field(default_factory=list)
    between: list[Node] = field(default_factory=list)
    start: list[Node] = field(default_factory=list)
    before: list[Node] = field(default_factory=list)
    end: list[Node] = field(default_factory=list)


def add_adjoint(b: Builder) -> None:
    """Appends the adjoint's steps to the builder."""
    Adjoint(b).build()


class Adjoint:
    """Collects what each use of an operand contributes to its gradient."""

    def __init__(self, builder: Builder) -> None:
        self.b = builder
        self.parts: dict[str, list[Node]] = {}
        self.gate = Gate()

    def step(self, name: str, value: Node, symbol: str, meaning: str) -> Sym:
        """A step of the last phase, and its name as a node."""
        self.b.adjoint_finish.append(Step(name, value, symbol, meaning))
        return Sym(name)

    def add(self, operand: str, part: Node) -> None:
        """A contribution to an operand's gradient."""
        self.parts.setdefault(operand, []).append(part)

    def build(self) -> None:
        """Prepare, scan backwards, finish."""
        self._prepare()
        self._scan()
        self._writes()
        for read in self.b.operands.reads:
            (self._read_across if read.across else self._read)(read)
        for s in self.b.feedback:
            self._correction(s)
        for s in self.b.operands.streams:
            into_end = self.step(
                f"dw_end{s.tag}",
                self.b.decayed(MatMul(self.b.write(s), DS, turn_right=True), "end"),
                "dw^end",
                "from the chunk's end state",
            )
            self.add(s.write, into_end)
            self.gate.end.append(Hadamard(Sym(s.write), into_end))
        if self.b.decay != "none":
            self.add("log_decay", self._gate())
        self._totals()

    def _totals(self) -> None:
        """The gradient of every operand."""
        for operand in self.b.operands.operands:
            if operand.name in self.b.operands.signs:
                continue
            parts = self.parts[operand.name]
            self.step(f"d_{operand.name}", total(parts), f"d{operand.symbol}", f"gradient of {operand.symbol}")

    def _prepare(self) -> None:
        reads, streams = self.b.operands.reads, self.b.operands.streams
        prepare = self.b.adjoint_prepare
        for s in self.b.feedback:
            inward = self.b.inward(s.correct, f"a_in{s.tag}", s.stretch)
            prepare.append(Step(f"found_in{s.tag}", inward, "A^in S", "what the corrections find of the incoming state"))
        for s in self.b.feedback:
            solved = [MatMul(Sym(f"A_kk{s.tag}{r.tag}"), self._right_side(r)) for r in self.b.feedback]
            prepare.append(Step(f"E{s.tag}", total(list(solved)), "E", "resolved writes: (I - L)^-1 (X + c A^in S)"))
        for read in self.b.operands.across:
            for s in streams:
                self._weights(read, s)
        for s in streams:
            taken: list[Node] = [self._into_values(read, s) for read in reads]
            prepare.append(Step(f"dE_read{s.tag}", total(taken), "A^T dO", "gradient of the writes through the chunk's reads"))
        for read in reads:
            if self.b.decay == "scalar" or (read.across and self.b.decay == "vector"):
                prepare.append(
                    Step(
                        f"dO_in{read.tag}",
                        Decayed(Sym(f"d_read{read.tag}"), read.stretch),
                        "dO^in",
                        "gradients decayed from the chunk's start",
                    )
                )
        into = [self._into_state(read) for read in reads]
        prepare.append(Step("dS_read", total(into), "Q^T dO", "gradient of the incoming state through the reads"))

    def _weights(self, read: ReadNames, s: StreamNames) -> None:
        """The gradient of what a query across finds in a stream's writes."""
        gradient, tag, before = Sym(f"d_read{read.tag}"), f"qe{read.tag}{s.tag}", read.lag == 1
        if self.b.decay == "vector":
            value: Node = Score(gradient, Sym(s.write), before, not read.sees(s))
        else:
            raw = MatMul(gradient, Sym(s.write), turn_right=True)
            self.b.adjoint_prepare.append(Step(f"D_{tag}", raw, "dA", "gradient of the weights across"))
            value = self.b.masked(Sym(f"D_{tag}"), exclusive=before, strict=not read.sees(s))
        self.b.adjoint_prepare.append(Step(f"P_{tag}", value, "dA * Γ", "gradient of the products of queries across and writes"))

    @staticmethod
    def _into_values(read: ReadNames, s: StreamNames) -> Node:
        """The gradient of a stream's resolved writes through a read."""
        if read.across:
            return MatMul(Sym(f"P_qe{read.tag}{s.tag}"), Sym(read.query), turn_left=True)
        return MatMul(Sym(f"A_qk{read.tag}{s.tag}"), Sym(f"d_read{read.tag}"), turn_left=True)

    def _right_side(self, s: StreamNames) -> Node:
        """The right-hand side of the solve: what is known, and what the correction finds of the incoming state."""
        found = self.b.strength(s, Sym(f"found_in{s.tag}"))
        known = self.b.known(s)
        return found if known is None else Sum((known, found))

    def _into_state(self, read: ReadNames) -> Node:
        if read.across:
            gradient = Sym(f"dO_in{read.tag}" if self.b.decay != "none" else f"d_read{read.tag}")
            return MatMul(gradient, Sym(read.query), turn_left=True)
        if self.b.decay == "vector":
            return MatMul(Sym(f"q_in{read.tag}"), Sym(f"d_read{read.tag}"), turn_left=True)
        return MatMul(Sym(read.query), Sym(f"{'dO_in' if self.b.decay == 'scalar' else 'd_read'}{read.tag}"), turn_left=True)

    def _scan(self) -> None:
        parts: list[Node] = [Sym("dS_read"), self.b.through(DS)]
        for s in self.b.feedback:
            self.b.adjoint_scan.append(Step(f"Z{s.tag}", self._into_write(s), "Z", "gradient of the resolved writes"))
            parts.append(MatMul(Sym(f"W{s.tag}"), Sym(f"Z{s.tag}"), turn_left=True))
        self.b.adjoint_scan.append(Step("dS", total(parts), "dS", "gradient of the state at the chunk's start"))

    @staticmethod
    def _into_write(s: StreamNames) -> Node:
        return Sum((Sym(f"dE_read{s.tag}"), MatMul(Sym(f"k_end{s.tag}"), DS)))

    def _writes(self) -> None:
        """Through the transposed inverse to the right-hand sides."""
        for s in self.b.feedback:
            solved: list[Node] = [MatMul(Sym(f"A_kk{r.tag}{s.tag}"), Sym(f"Z{r.tag}"), turn_left=True) for r in self.b.feedback]
            right_side = self.step(f"dX{s.tag}", total(solved), "dX", "gradient of the solve's right-hand side")
            if s.value:
                self._value(s, right_side)
            self.step(f"dR{s.tag}", self.b.strength(s, right_side), "dU", "gradient of what the correction found")
        for r in self.b.operands.streams:
            if r.correct:
                continue
            parts: list[Node] = [self._into_write(r)]
            parts += [MatMul(Sym(f"R{s.tag}{r.tag}"), Sym(f"dR{s.tag}"), turn_left=True) for s in self.b.feedback]
            self._value(r, total(parts))

    def _value(self, s: StreamNames, gradient: Node) -> None:
        """The gradient of what a stream writes, to its values, its further columns, and the log weight that scales all of it."""
        columns, stabilized = self.b.operands.columns, self.b.operands.stabilized
        if not isinstance(gradient, Sym) and (columns or stabilized):
            gradient = self.step(f"dX{s.tag}", gradient, "dX", "gradient of what is written")
        if stabilized:
            self.add("log_weight", RowSum(Hadamard(self.b.value(s), gradient)))
        self.add(s.value, Part(gradient, None, columns) if columns else gradient)
        for i, column in enumerate(s.columns):
            if column:
                self.add(column, Part(gradient, i, columns))

    def _read(self, read: ReadNames) -> None:
        before = read.lag == 1
        outer = MatMul(Sym(f"{'dO_in' if self.b.decay == 'scalar' else 'd_read'}{read.tag}"), S, turn_right=True)
        value = Decayed(outer, read.stretch) if self.b.decay == "vector" else outer
        inward = self.step(f"dq_in{read.tag}", value, "dq^in", "from the incoming state")
        self.add(read.query, inward)
        (self.gate.before if before else self.gate.start).append(Hadamard(Sym(read.query), inward))
        for s in self.b.operands.streams:
            weights = MatMul(Sym(f"d_read{read.tag}"), self.b.write(s), turn_right=True)
            self._score(
                read.query,
                s.write,
                weights,
                Sym(f"A_qk{read.tag}{s.tag}"),
                f"qk{read.tag}{s.tag}",
                exclusive=before,
                strict=not read.sees(s),
            )

    def _read_across(self, read: ReadNames) -> None:
        """To the query, the writes and the gate; its gradients are a read's, with the roles of the two axes exchanged."""
        gradient, before = Sym(f"d_read{read.tag}"), read.lag == 1
        inward = Sym(f"d_read{read.tag}") if self.b.decay == "none" else Sym(f"dO_in{read.tag}")
        self.add(read.query, MatMul(inward, S))
        read_in = self.step(f"read_in{read.tag}", self.b.inward_across(read), "O^in", "what the queries read of the incoming state")
        (self.gate.before if before else self.gate.start).append(Hadamard(gradient, read_in))
        self.b.adjoint_finish += self.b.found_across(read)
        for s in self.b.operands.streams:
            self.add(read.query, MatMul(Sym(f"P_qe{read.tag}{s.tag}"), self.b.write(s)))
            self._into_taken(read, s)

    def _into_taken(self, read: ReadNames, s: StreamNames) -> None:
        """From what a read across takes of a stream's write directions, to those and the gate."""
        gradient, before = Sym(f"d_read{read.tag}"), read.lag == 1
        tag, weights = f"qe{read.tag}{s.tag}", Sym(f"A_qe{read.tag}{s.tag}")
        if self.b.decay == "vector":
            names = (f"dl_{tag}", f"dr_{tag}", f"dg_{tag}")
            scores = ScoreGradients(weights, gradient, Sym(s.write), before, not read.sees(s))
            self.step(", ".join(names), scores, "dA", "through the decayed product: what was read, to the writes and the gate")
            self.add(s.write, Sym(names[1]))
            self.gate.between.append(Sym(names[2]))
        else:
            self.add(s.write, MatMul(weights, gradient, turn_left=True))
            (self.gate.links_before if before else self.gate.links).append(Hadamard(weights, Sym(f"D_{tag}")))

    def _correction(self, s: StreamNames) -> None:
        found: list[Node] = [Sym(f"found_in{s.tag}")]
        found += [MatMul(Sym(f"R{s.tag}{r.tag}"), self.b.write(r)) for r in self.b.operands.streams]
        if s.strength:
            answer = self.step(f"found{s.tag}", Sum(tuple(found)), "S^T a", "what the correction found")
            self.add(s.strength, RowSum(Hadamard(Sym(f"dX{s.tag}"), answer)))
        inward = self.step(
            f"da_in{s.tag}",
            self.b.decayed(MatMul(Sym(f"dR{s.tag}"), S, turn_right=True), s.stretch),
            "da^in",
            "from the incoming state",
        )
        self.add(s.correct, inward)
        (self.gate.start if s.decayed else self.gate.before).append(Hadamard(Sym(s.correct), inward))
        for r in self.b.operands.streams:
            weights = MatMul(Sym(f"dR{s.tag}"), self.b.write(r), turn_right=True)
            tags, strict = f"{s.tag}{r.tag}", not s.finds(r)
            self._score(s.correct, r.write, weights, Sym(f"R{tags}"), f"kk{tags}", exclusive=not s.decayed, strict=strict)

    def _score(self, left: str, right: str, weights: Node, score: Node, tag: str, *, exclusive: bool, strict: bool) -> None:
        """The gradients of one score's operands for the gradient `weights` of its value."""
        if self.b.decay == "vector":
            names = (f"dl_{tag}", f"dr_{tag}", f"dg_{tag}")
            self.step(
                ", ".join(names),
                ScoreGradients(weights, Sym(left), Sym(right), exclusive, strict),
                "dA",
                "through the scores: to each side and the gate",
            )
            self.add(left, Sym(names[0]))
            self.add(right, Sym(names[1]))
            self.gate.between.append(Sym(names[2]))
            return
        raw = self.step(f"D_{tag}", weights, "dA", "gradient of the scores")
        masked = self.step(f"P_{tag}", self.b.masked(raw, exclusive=exclusive, strict=strict), "dA * Γ", "gradient of the products of rows")
        if left == right:
            self.add(left, MatMul(Symmetric(masked), Sym(left)))
        else:
            self.add(left, MatMul(masked, Sym(right)))
            self.add(right, MatMul(masked, Sym(left), turn_left=True))
        (self.gate.links_before if exclusive else self.gate.links).append(Hadamard(score, raw))

    def _gate(self) -> GateGradient:
        return gate_gradient(self.gate, S)


def gate_gradient(g: Gate, state: Node, values: bool = False) -> GateGradient:
    """The sum over the links, `state` the incoming state."""
    links = (tuple(g.links), tuple(g.links_before), tuple(g.between), tuple(g.start), tuple(g.before), tuple(g.end))
    return GateGradient(*links, state, DS, values)
