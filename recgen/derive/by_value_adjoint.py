"""The adjoint of the chunk form that differs by value channel: the transposed substitution, and the links of both sides.

What flows through the weights of a decayed product is a score over the value channels; what flows through its rows, and to the gate of the
value side, are a score's gradients. So the same steps serve, with the two sides exchanged.
"""

from __future__ import annotations

from recgen.derive.adjoint import DS, Adjoint, Gate, gate_gradient
from recgen.derive.by_value import ByValueBuilder
from recgen.derive.chunk_ir import Step
from recgen.derive.chunk_nodes import Decayed, Hadamard, MatMul, Node, RowSum, ScoreGradients, Solved, Sum, Sym
from recgen.derive.forward import S, total
from recgen.derive.operands import ReadNames, StreamNames


def add_adjoint_by_value(b: ByValueBuilder) -> None:
    """Appends the adjoint's steps to the builder."""
    _ByValueAdjoint(b).build()


class _ByValueAdjoint(Adjoint):
    def __init__(self, builder: ByValueBuilder) -> None:
        super().__init__(builder)
        self.by = builder
        self.value_gate = Gate()

    def build(self) -> None:
        """Prepare, scan backwards, finish."""
        self._prepare()
        self._scan()
        for s in self.by.operands.streams:
            self._into_end(s)
        self._correction(self.by.corrector)
        for read in self.by.operands.reads:
            (self._read_across if read.across else self._read)(read)
        if self.by.decay != "none":
            self.add("log_decay", gate_gradient(self.gate, self.by.through_values(S)))
        if self.by.value_decay:
            self.add("value_log_decay", gate_gradient(self.value_gate, self.by.through_keys(S), values=True))
        self._totals()

    def _linked(
        self, tag: str, weights: Node, gradient: Node, s: StreamNames, phase: list[Step], *, exclusive: bool, strict: bool
    ) -> tuple[Node, Node]:
        """For the gradient of what was taken of a stream's writes: what was taken, and the gradient of the writes; the gate's is kept."""
        if not self.by.value_decay:
            return MatMul(weights, self.by.write(s)), MatMul(weights, gradient, turn_left=True)
        names = (f"dl_{tag}", f"dr_{tag}", f"dg_{tag}")
        value = ScoreGradients(weights, gradient, self.by.write(s), exclusive, strict, values=True)
        phase.append(Step(", ".join(names), value, "dP", "through the decayed product: what was taken; to the writes and the gate"))
        self.value_gate.between.append(Sym(names[2]))
        return Sym(names[0]), Sym(names[1])

    def _prepare(self) -> None:
        b, s, prepare = self.by, self.by.corrector, self.by.adjoint_prepare
        prepare.append(Step(f"found_in{s.tag}", b.reach(S), "A^in S", "what the corrections find of the incoming state"))
        solved = Solved(Sym(f"T{s.tag}"), b.right_side(Sym(f"found_in{s.tag}")))
        prepare.append(Step(f"E{s.tag}", solved, "E", "resolved writes, by substitution"))
        for read in b.operands.across:
            for r in b.operands.streams:
                self._weights(read, r)
        for r in b.operands.streams:
            taken = [self._into_writes(read, r) for read in b.operands.reads]
            prepare.append(Step(f"dE_read{r.tag}", total(taken), "A^T dO", "gradient of the writes through the chunk's reads"))
        for read in b.operands.reads:
            self._outward(read)
        into = [self._into_state(read) for read in b.operands.reads]
        prepare.append(Step("dS_read", total(into), "Q^T dO", "gradient of the incoming state through the reads"))

    def _into_writes(self, read: ReadNames, s: StreamNames) -> Node:
        """The gradient of a stream's resolved writes through a read."""
        tags = f"{read.tag}{s.tag}"
        flags = {"exclusive": read.lag == 1, "strict": not read.sees(s)}
        if read.across:
            return self._into_found(read, s, **flags) if self.by.value_decay else self._into_values(read, s)
        return self._linked(f"qv{tags}", Sym(f"A_qk{tags}"), Sym(f"d_read{read.tag}"), s, self.by.adjoint_prepare, **flags)[1]

    def _into_found(self, read: ReadNames, s: StreamNames, *, exclusive: bool, strict: bool) -> Node:
        """Through what a query across finds, a score over the value channels: to the writes; the query's part and the gate's are kept."""
        tag = f"qx{read.tag}{s.tag}"
        names = (f"dl_{tag}", f"dr_{tag}", f"dg_{tag}")
        weights = Sym(f"P_qe{read.tag}{s.tag}")
        scores = ScoreGradients(weights, Sym(read.query), self.by.write(s), exclusive, strict, values=True)
        meaning = "through the scores across: to each side and the value side's gate"
        self.by.adjoint_prepare.append(Step(", ".join(names), scores, "dA", meaning))
        self.add(read.query, Sym(names[0]))
        self.value_gate.between.append(Sym(names[2]))
        return Sym(names[1])

    def _outward(self, read: ReadNames) -> None:
        """The gradient of a read decayed from the chunk's start, where that is not what the query carries."""
        gradient = Sym(f"d_read{read.tag}")
        value = gradient if read.across else self.by.at_values(gradient, read.stretch)
        if self.by.decay == "scalar" or (read.across and self.by.decay == "vector"):
            value = Decayed(value, read.stretch)
        if not isinstance(value, Sym):
            self.by.adjoint_prepare.append(Step(f"dO_in{read.tag}", value, "dO^in", "gradients decayed from the chunk's start"))

    def _gradient_in(self, read: ReadNames) -> Sym:
        """What `_outward` made."""
        made = self.by.decay == "scalar" or self.by.value_decay
        return Sym(f"{'dO_in' if made else 'd_read'}{read.tag}")

    def _into_state(self, read: ReadNames) -> Node:
        if read.across and self.by.value_decay:
            return MatMul(self._outward_across(read), Sym(f"q_across{read.tag}"), turn_left=True)
        if read.across:
            return super()._into_state(read)
        query = f"q_in{read.tag}" if self.by.decay == "vector" else read.query
        return MatMul(Sym(query), self._gradient_in(read), turn_left=True)

    def _scan(self) -> None:
        b, s, scan = self.by, self.by.corrector, self.by.adjoint_scan
        into_writes = Sum((Sym(f"dE_read{s.tag}"), self._from_end(s)))
        scan.append(Step(f"Z{s.tag}", into_writes, "Z", "gradient of the resolved writes"))
        solved = Solved(Sym(f"T{s.tag}"), Sym(f"Z{s.tag}"), turned=True)
        scan.append(Step(f"dX{s.tag}", solved, "dX", "gradient of the right-hand side, by the transposed substitution"))
        inward = b.at_values(b.strength(s, Sym(f"dX{s.tag}")), s.stretch)
        scan.append(Step(f"dR_in{s.tag}", inward, "dU^in", "gradient of what the correction found of the incoming state"))
        direction = s.correct if b.decay == "none" else f"a_in{s.tag}"
        into = MatMul(Sym(direction), Sym(f"dR_in{s.tag}"), turn_left=True)
        scan.append(Step("dS", Sum((Sym("dS_read"), b.through(DS), into)), "dS", "gradient of the state at the chunk's start"))

    def _from_end(self, s: StreamNames) -> Node:
        return self.by.at_values(MatMul(Sym(f"k_end{s.tag}"), DS), "end")

    def _correction(self, s: StreamNames) -> None:
        b, before = self.by, not s.decayed
        right_side = Sym(f"dX{s.tag}")
        if s.value:
            self._value(s, right_side)
        gradient = self.step(f"dR{s.tag}", b.strength(s, right_side), "dU", "gradient of what the correction found")
        found: list[Node] = [Sym(f"found_in{s.tag}")]
        for r in b.operands.streams:
            tags, score = f"{s.tag}{r.tag}", Sym(f"R{s.tag}{r.tag}")
            taken, into = self._linked(f"kv{tags}", score, gradient, r, b.adjoint_finish, exclusive=before, strict=True)
            found.append(taken)
            if not r.correct:
                from_end = Sym(f"dE_end{r.tag}") if b.value_decay else self._from_end(r)
                self._value(r, Sum((Sym(f"dE_read{r.tag}"), from_end, into)))
            weights = self._weighted(f"D_kk{tags}", b.value_score(gradient, b.write(r), exclusive=before, strict=True))
            self._score(s.correct, r.write, weights, score, f"kk{tags}", exclusive=before, strict=True)
        if s.strength:
            answer = self.step(f"found{s.tag}", Sum(tuple(found)), "S^T a", "what the correction found")
            product = Hadamard(right_side, answer)
            self.add(s.strength, product if s.by_channel else RowSum(product))
        outer = b.decayed(MatMul(Sym(f"dR_in{s.tag}"), S, turn_right=True), s.stretch)
        inward = self.step(f"da_in{s.tag}", outer, "da^in", "from the incoming state")
        self.add(s.correct, inward)
        self._crossing(s.decayed, Hadamard(Sym(s.correct), inward), Hadamard(gradient, found[0]))

    def _weighted(self, name: str, value: Node) -> Node:
        """The gradient of a score; a step of its own where it is a score itself and no step takes it up."""
        inline = self.by.decay != "vector" or not self.by.value_decay
        return value if inline else self.step(name, value, "dA", "gradient of the scores")

    def _crossing(self, inclusive: bool, keys: Node, values: Node) -> None:
        """Links from the incoming state to a token, or to just before it, of either side."""
        for gate, link in ((self.gate, keys), (self.value_gate, values)):
            (gate.start if inclusive else gate.before).append(link)

    def _read(self, read: ReadNames) -> None:
        b, before, gradient = self.by, read.lag == 1, Sym(f"d_read{read.tag}")
        outer = MatMul(self._gradient_in(read), S, turn_right=True)
        value = Decayed(outer, read.stretch) if b.decay == "vector" else outer
        inward = self.step(f"dq_in{read.tag}", value, "dq^in", "from the incoming state")
        self.add(read.query, inward)
        read_in = Sym(f"read_in{read.tag}")
        if b.value_decay:
            self.step(read_in.name, b.inward_read(read), "O^in", "what the queries read of the incoming state")
        self._crossing(not before, Hadamard(Sym(read.query), inward), Hadamard(gradient, read_in))
        for s in b.operands.streams:
            tags, flags = f"{read.tag}{s.tag}", {"exclusive": before, "strict": not read.sees(s)}
            weights = self._weighted(f"D_qk{tags}", b.value_score(gradient, b.write(s), **flags))
            self._score(read.query, s.write, weights, Sym(f"A_qk{tags}"), f"qk{tags}", **flags)

    def _outward_across(self, read: ReadNames) -> Sym:
        """The gradient of a read across, decayed from the chunk's start by the key side."""
        return Sym(f"{'d_read' if self.by.decay == 'none' else 'dO_in'}{read.tag}")

    def _read_across(self, read: ReadNames) -> None:
        b, before, gradient = self.by, read.lag == 1, Sym(f"d_read{read.tag}")
        if not b.value_decay:
            super()._read_across(read)
            return
        outer = b.at_values(MatMul(self._outward_across(read), S), read.stretch)
        inward = self.step(f"dq_in{read.tag}", outer, "dq^in", "from the incoming state")
        self.add(read.query, inward)
        read_in = self.step(f"read_in{read.tag}", b.inward_across(read), "O^in", "what the queries read of the incoming state")
        self._crossing(not before, Hadamard(gradient, read_in), Hadamard(Sym(read.query), inward))
        b.adjoint_finish += b.found_across(read)
        for s in b.operands.streams:
            self._into_taken(read, s)

    def _into_end(self, s: StreamNames) -> None:
        """What the chunk's end state gives to a write direction and to the gates."""
        b = self.by
        into_end = self.step(
            f"dw_end{s.tag}",
            b.decayed(MatMul(b.at_values(b.write(s), "end"), DS, turn_right=True), "end"),
            "dw^end",
            "from the chunk's end state",
        )
        self.add(s.write, into_end)
        self.gate.end.append(Hadamard(Sym(s.write), into_end))
        if b.value_decay:
            from_end = self.step(f"dE_end{s.tag}", self._from_end(s), "dE^end", "gradient of the writes from the chunk's end state")
            self.value_gate.end.append(Hadamard(b.write(s), from_end))
