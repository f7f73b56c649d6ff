"""The adjoint of the chunk form of coupled states: the same solve transposed and the same links, from the other end.

Whatever a link scales leaves a gradient for it; these are gathered for every pair of states and go back through the products of triangular
matrices, the last state first. A decay's gradient is then the sum of its own links that cross a token, those from the chunk's start and to
its end among them.
"""

from __future__ import annotations

from recgen.derive.bordered_nodes import Block, Bordered, ColumnSum, Crossing, Cut, Entry, Gathered, Mixed, Pairings
from recgen.derive.chunk_ir import Step
from recgen.derive.chunk_nodes import Hadamard, MatMul, Node, RowSum, Scaled, ScaledColumns, Sym, Symmetric
from recgen.derive.coupled_forward import ROWS, CoupledBuilder
from recgen.derive.coupled_operands import CoupledStreamNames
from recgen.derive.forward import S, total
from recgen.derive.operands import ReadNames

DS = Sym("dS")


def add_coupled_adjoint(b: CoupledBuilder) -> None:
    """Appends the adjoint's steps to the builder."""
    _Adjoint(b).build()


class _Adjoint:
    def __init__(self, builder: CoupledBuilder) -> None:
        self.b = builder
        self.parts: dict[str, list[Node]] = {}
        self.links: dict[tuple[int, int], list[Node]] = {}

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
            self._read(read)
        for s in self.b.feedback:
            self._correction(s)
        self._ends()
        self._links()
        for operand in self.b.operands.operands:
            if operand.name not in self.b.operands.signs:
                parts = self.parts[operand.name]
                self.step(f"d_{operand.name}", total(parts), f"d{operand.symbol}", f"gradient of {operand.symbol}")

    def _prepare(self) -> None:
        b, prepare = self.b, self.b.adjoint_prepare
        for s in b.feedback:
            inward = MatMul(Sym(f"a_in{s.tag}"), S)
            prepare.append(Step(f"found_in{s.tag}", inward, "A^in S", "what the corrections find of the incoming states"))
        for s in b.feedback:
            solved: list[Node] = []
            for r in b.feedback:
                known = b.known(r)
                right = total([*([] if known is None else [known]), Sym(f"found_in{r.tag}")])
                solved.append(MatMul(Sym(f"A_kk{s.tag}{r.tag}"), right))
            prepare.append(Step(f"E{s.tag}", total(solved), "E", "resolved writes: (I - L)^-1 (X + A^in S)"))
        for r in b.operands.streams:
            taken: list[Node] = [
                MatMul(Sym(f"A_qk{read.tag}{r.tag}"), Sym(f"d_read{read.tag}"), turn_left=True) for read in self._readers(r)
            ]
            if taken:
                prepare.append(Step(f"dE_read{r.tag}", total(taken), "A^T dO", "gradient of the writes through the chunk's reads"))
        into: list[Node] = [MatMul(Sym(f"q_in{m.tag}"), Sym(f"d_read{m.tag}"), turn_left=True) for m in b.operands.reads]
        prepare.append(Step("dS_read", total(into), "Q^T dO", "gradient of the incoming states through the reads"))

    def _readers(self, r: CoupledStreamNames) -> list[ReadNames]:
        return [read for read in self.b.operands.reads if r in self.b.seen(read)]

    def _into_write(self, r: CoupledStreamNames) -> Node:
        onward = MatMul(Sym(f"k_end{r.tag}"), DS)
        return total([Sym(f"dE_read{r.tag}"), onward]) if self._readers(r) else onward

    def _scan(self) -> None:
        parts: list[Node] = [Sym("dS_read"), Mixed(Sym("through"), DS, True)]
        for s in self.b.feedback:
            self.b.adjoint_scan.append(Step(f"Z{s.tag}", self._into_write(s), "Z", "gradient of the resolved writes"))
            parts.append(MatMul(Sym(f"W{s.tag}"), Sym(f"Z{s.tag}"), turn_left=True))
        self.b.adjoint_scan.append(Step("dS", total(parts), "dS", "gradient of the states at the chunk's start, side by side"))

    def _writes(self) -> None:
        """Through the transposed inverse to the right-hand sides."""
        for s in self.b.feedback:
            solved: list[Node] = [MatMul(Sym(f"A_kk{r.tag}{s.tag}"), Sym(f"Z{r.tag}"), turn_left=True) for r in self.b.feedback]
            gradient = self.step(f"dX{s.tag}", total(solved), "dX", "gradient of the solve's right-hand side")
            if s.value:
                self.add(s.value, gradient)
        for r in self.b.operands.streams:
            if not r.corrections:
                parts = [self._into_write(r)]
                parts += [MatMul(Sym(f"R{s.tag}{r.tag}"), Sym(f"dX{s.tag}"), turn_left=True) for s in self.b.feedback]
                self.add(r.value, total(parts))

    # ------------------------------------------------------- what links scale

    def _read(self, read: ReadNames) -> None:
        gradient = Sym(f"d_read{read.tag}")
        inward = self.step(f"dq_in{read.tag}", MatMul(gradient, S, turn_right=True), "dq^in", "from the incoming states, side by side")
        self._from_start(read.query, read.state, ROWS[read.lag], inward)
        for r in self.b.seen(read):
            tags = f"qk{read.tag}{r.tag}"
            raw = self.step(f"D_{tags}", MatMul(gradient, self.b.write(r), turn_right=True), "dA", "gradient of the scores")
            self._score(read.query, r, read.state, ROWS[read.lag], raw, f"P_{tags}")

    def _correction(self, s: CoupledStreamNames) -> None:
        gradient = Sym(f"dX{s.tag}")
        inward = self.step(f"da_in{s.tag}", MatMul(gradient, S, turn_right=True), "da^in", "from the incoming states, side by side")
        for c in s.corrections:
            self._from_start(c.correct, c.state, ROWS[c.lag], inward)
        for r in self.b.operands.streams:
            tags = f"kk{s.tag}{r.tag}"
            found = [c for c in s.corrections if self.b.share(c.state, r, ROWS[c.lag]) is not None]
            if found:
                raw = self.step(f"D_{tags}", MatMul(gradient, self.b.write(r), turn_right=True), "dA", "gradient of the scores")
            for i, c in enumerate(found):
                self._score(c.correct, r, c.state, ROWS[c.lag], raw, f"P_{tags}" + f"_{i + 1}" * (len(found) > 1))

    def _from_start(self, name: str, state: int, rows: str, gradient: Sym) -> None:
        """To a direction and to the links from the chunk's start, from the gradient of its rows side by side."""
        for c in range(self.b.count):
            column = self.b.start(state, c, rows)
            if column is not None:
                block = Block(gradient, c, self.b.count)
                self.add(name, Scaled(column, block))
                self._into(state, c, RowSum(Hadamard(Sym(name), block)), rows, "start")

    def _score(self, left: str, r: CoupledStreamNames, state: int, rows: str, raw: Sym, name: str) -> None:
        """To both sides of a score and to its links, from the gradient `raw` of its value."""
        share = self.b.share(state, r, rows)
        assert share is not None
        linked = self.step(name, Hadamard(raw, share), "dA * Γ", "gradient of the products of rows")
        if left == r.write:
            self.add(left, MatMul(Symmetric(linked), Sym(left)))
        else:
            self.add(left, MatMul(linked, Sym(r.write)))
            self.add(r.write, MatMul(linked, Sym(left), turn_left=True))
        gradient = self.step(f"N{name[1:]}", Hadamard(raw, self.b.product(left, r.write)), "dΓ", "gradient of the links")
        self._shared(state, r, gradient, rows)

    def _shared(self, state: int, r: CoupledStreamNames, gradient: Node, rows: str) -> None:
        """To the links by which a state holds a stream's writes, and to the numbers by which others take them."""
        for b, number in r.into:
            if (state, b) not in self.b.linked:
                continue
            cut = Cut(self.b.linked[state, b], rows, "tokens")
            scaled = gradient
            if number:
                product = Hadamard(gradient, cut)
                self.add(number, product if rows == "end" else ColumnSum(product))
                scaled = Hadamard(Sym(number), gradient) if rows == "end" else ScaledColumns(gradient, Sym(number))
            self._into(state, b, scaled, rows, "tokens")

    def _into(self, target: int, source: int, gradient: Node, rows: str, columns: str) -> None:
        self.links.setdefault((target, source), []).append(Bordered(gradient, rows, columns))

    def _ends(self) -> None:
        """Links to the chunk's end, of the writes and of the incoming states."""
        b = self.b
        for r in b.operands.streams:
            value = MatMul(b.write(r), DS, turn_right=True)
            into_end = self.step(f"dw_end{r.tag}", value, "dw^end", "from the states at the chunk's end, side by side")
            for a in range(b.count):
                share = b.share(a, r, "end")
                if share is not None:
                    block = Block(into_end, a, b.count)
                    self.add(r.write, Scaled(share, block))
                    self._shared(
                        a, r, self.step(f"N_end{r.tag}_{a + 1}", RowSum(Hadamard(Sym(r.write), block)), "dΓ", "the links to the end"), "end"
                    )
        pairs = self.step("passing", Pairings(DS, S, b.count), "dT", "the incoming states and the gradients of the outgoing ones")
        for a, c in b.linked:
            self._into(a, c, Entry(pairs, a, c), "end", "start")

    def _links(self) -> None:
        """Back through the products that the links are, the last state first, to feeds and decays."""
        b = self.b
        for a in reversed(range(b.count)):
            kept: list[Node] = []
            for c in reversed(range(a)):
                if (a, c) not in b.linked:
                    continue
                tags, meaning = f"{a + 1}_{c + 1}", "gradient of the links"
                gradient = self.step(f"dgamma_{tags}", Gathered(tuple(self.links[a, c])), "dΓ", meaning)
                kept.append(MatMul(gradient, Sym(f"fed_{tags}"), turn_right=True))
                fed = MatMul(b.linked[a, a], gradient, turn_left=True)
                self._feeds(a, c, Cut(self.step(f"dfed_{tags}", fed, "dF", "gradient of what feeds the state"), "after", "all"))
            if b.operands.kinds[a] == "scalar":
                own = self.step(f"dgamma_{a + 1}", Gathered((*self.links[a, a], *kept)), "dΓ", "gradient of the links")
                self.add(f"log_decay_{a + 1}", Crossing(Hadamard(b.linked[a, a], own)))

    def _feeds(self, target: int, source: int, rows: Node) -> None:
        """To the numbers of the feeds, and to the links of the states that feed."""
        for f in self.b.operands.feeds:
            if f.target != target or (f.source, source) not in self.b.linked:
                continue
            self.add(f.weight, RowSum(Hadamard(rows, Cut(self.b.linked[f.source, source], ROWS[f.lag], "all"))))
            self._into(f.source, source, Scaled(Sym(f.weight), rows), ROWS[f.lag], "all")
