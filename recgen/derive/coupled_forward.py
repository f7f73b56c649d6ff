"""The forward chunk form of coupled states.

The links between states are products of triangular matrices: what state a holds of what came into state b is what a holds of itself
times what feeds a, which is made of what the states before it hold of b. What a query or a correction takes of a write is the product of
their rows times a link, as with one state; and all states are carried side by side, so that one product of matrices serves them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from recgen.derive.bordered_nodes import Bordered, Cut, Empty, Joined, Kept, Mixed, Square
from recgen.derive.chunk_ir import Step
from recgen.derive.chunk_nodes import Hadamard, Inverse, MatMul, Node, Scaled, ScaledColumns, Sym
from recgen.derive.coupled_operands import CoupledOperands, CoupledStreamNames
from recgen.derive.forward import S, total
from recgen.derive.operands import ReadNames

ROWS = ("after", "before")
"""The rows of links that a lag reads."""


@dataclass
class CoupledBuilder:
    """Collects the steps of a chunk form of coupled states, phase by phase."""

    operands: CoupledOperands
    prepare: list[Step] = field(default_factory=list)
    scan: list[Step] = field(default_factory=list)
    finish: list[Step] = field(default_factory=list)
    adjoint_prepare: list[Step] = field(default_factory=list)
    adjoint_scan: list[Step] = field(default_factory=list)
    adjoint_finish: list[Step] = field(default_factory=list)
    linked: dict[tuple[int, int], Sym] = field(default_factory=dict)
    _shares: dict[tuple[int, str, str], Node | None] = field(default_factory=dict)
    _products: dict[tuple[str, str], Sym] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many states there are."""
        return self.operands.count

    @property
    def feedback(self) -> list[CoupledStreamNames]:
        """Streams that correct."""
        return [s for s in self.operands.streams if s.corrections]

    def _prepared(self, name: str, value: Node, symbol: str, meaning: str) -> Sym:
        self.prepare.append(Step(name, value, symbol, meaning))
        return Sym(name)

    # ------------------------------------------------------------------ links

    def links(self) -> None:
        """What every state holds of itself, and of every state that feeds it."""
        for a, kind in enumerate(self.operands.kinds):
            meaning = "what the state holds after token i of what came into it after token j"
            self.linked[a, a] = self._prepared(f"gamma_{a + 1}", Kept(f"_{a + 1}", kind), "Γ", meaning)
            for b in range(a):
                feeds = [f for f in self.operands.feeds if f.target == a and (f.source, b) in self.linked]
                if feeds:
                    fed = total([self.fed(f.weight, Cut(self.linked[f.source, b], ROWS[f.lag], "all")) for f in feeds])
                    name = f"fed_{a + 1}_{b + 1}"
                    self._prepared(name, fed, "F", "what feeds the state after token i, of what came into another after token j")
                    product = MatMul(Sym(f"gamma_{a + 1}"), Sym(name))
                    meaning = "what the state holds of that: a product of triangular matrices"
                    self.linked[a, b] = self._prepared(f"gamma_{a + 1}_{b + 1}", product, "Γ", meaning)

    @staticmethod
    def fed(weight: str, rows: Node) -> Node:
        """What comes in after every token, with the border's row of zeros."""
        return Bordered(Scaled(Sym(weight), rows), "after", "all")

    def start(self, target: int, source: int, rows: str) -> Node | None:
        """What a state holds of an incoming one, [C, 1] (at the end [1, 1])."""
        return Cut(self.linked[target, source], rows, "start") if (target, source) in self.linked else None

    def share(self, state: int, stream: CoupledStreamNames, rows: str) -> Node | None:
        """What a state holds of every token's write, [C, C] (at the end [C, 1]); None where it never comes there."""
        key = (state, stream.tag, rows)
        if key not in self._shares:
            parts: list[Node] = []
            for b, number in stream.into:
                if (state, b) in self.linked:
                    cut = Cut(self.linked[state, b], rows, "tokens")
                    parts.append(cut if not number else Hadamard(Sym(number), cut) if rows == "end" else ScaledColumns(cut, Sym(number)))
            found = total(parts) if parts else None
            if found is not None and not isinstance(found, Cut):
                name = f"{rows}_{state + 1}{stream.tag}"
                found = self._prepared(name, found, "Γ^", "what the state holds of each write, by all the states that take it")
            self._shares[key] = found
        return self._shares[key]

    def product(self, left: str, right: str) -> Sym:
        """The products of the rows of two operands, once."""
        if (left, right) not in self._products:
            name = f"products_{len(self._products) + 1}"
            value = MatMul(Sym(left), Sym(right), turn_right=True)
            self._products[left, right] = self._prepared(name, value, "P", "products of rows")
        return self._products[left, right]

    # ---------------------------------------------------------------- forward

    def forward(self) -> None:
        """Prepare, scan, finish."""
        self.links()
        for read in self.operands.reads:
            self._read(read)
        if self.feedback:
            self._corrections()
        for r in self.operands.streams:
            ends = [self.share(a, r, "end") for a in range(self.count)]
            rows = Joined(tuple(None if e is None else Scaled(e, Sym(r.write)) for e in ends))
            self._prepared(f"k_end{r.tag}", rows, "K^end", "write directions as the states hold them at the chunk's end, side by side")
        through = Square(tuple(tuple(self.start(a, c, "end") for c in range(self.count)) for a in range(self.count)))
        self._prepared("through", through, "T", "what the states hold at the chunk's end of those at its start")
        for s in self.feedback:
            self.scan.append(Step(f"E{s.tag}", self._resolved(s), "E", "resolved writes: U + W S"))
        carried = [MatMul(Sym(f"k_end{r.tag}"), self.write(r), turn_left=True) for r in self.operands.streams]
        self.scan.append(Step("S", total([Mixed(Sym("through"), S, False), *carried]), "S", "the states at the chunk's end, side by side"))
        for read in self.operands.reads:
            found: list[Node] = [MatMul(Sym(f"q_in{read.tag}"), S)]
            found += [MatMul(Sym(f"A_qk{read.tag}{r.tag}"), self.write(r)) for r in self.seen(read)]
            self.finish.append(Step(f"read{read.tag}", total(found), "O", "what the queries read"))

    def seen(self, read: ReadNames) -> list[CoupledStreamNames]:
        """The streams whose writes come to what a read sees."""
        return [r for r in self.operands.streams if self.share(read.state, r, ROWS[read.lag]) is not None]

    def _read(self, read: ReadNames) -> None:
        for r in self.seen(read):
            share = self.share(read.state, r, ROWS[read.lag])
            assert share is not None
            score = Hadamard(self.product(read.query, r.write), share)
            self._prepared(f"A_qk{read.tag}{r.tag}", score, "A^qk", "what each read takes of each write of the chunk")
        inward = self.inward([(read.query, read.state, read.lag)])
        self._prepared(f"q_in{read.tag}", inward, "Q^in", "queries as they find the states at the chunk's start, side by side")

    def inward(self, directions: list[tuple[str, int, int]]) -> Node:
        """Rows that meet the incoming states side by side: directions, each with the state that it asks and the lag."""
        parts: list[Node | None] = []
        for c in range(self.count):
            met = [(name, self.start(state, c, ROWS[lag])) for name, state, lag in directions]
            rows: list[Node] = [Scaled(column, Sym(name)) for name, column in met if column is not None]
            parts.append(total(rows) if rows else None)
        return Joined(tuple(parts))

    def _corrections(self) -> None:
        for s in self.feedback:
            for r in self.operands.streams:
                found: list[Node] = []
                for c in s.corrections:
                    share = self.share(c.state, r, ROWS[c.lag])
                    if share is not None:
                        found.append(Hadamard(self.product(c.correct, r.write), share))
                value = total(found) if found else Empty(Cut(self.linked[0, 0], "after", "tokens"))
                self._prepared(f"R{s.tag}{r.tag}", value, "A^kk", "what each correction finds of each earlier write of the chunk")
        blocks = tuple(tuple(Sym(f"R{s.tag}{r.tag}") for r in self.feedback) for s in self.feedback)
        names = ", ".join(f"A_kk{s.tag}{r.tag}" for s in self.feedback for r in self.feedback)
        self._prepared(names, Inverse(blocks), "(I - L)^-1", "the causal triangular inverse")
        for s in self.feedback:
            plain: list[Node] = [MatMul(Sym(f"R{s.tag}{r.tag}"), self.write(r)) for r in self.operands.streams if not r.corrections]
            if plain:
                own: list[Node] = [Sym(s.value)] if s.value else []
                self._prepared(f"X{s.tag}", total([*own, *plain]), "X", "what is written before the chunk's own corrections")
            inward = self.inward([(c.correct, c.state, c.lag) for c in s.corrections])
            self._prepared(f"a_in{s.tag}", inward, "A^in", "corrections as they find the states at the chunk's start, side by side")
        for s in self.feedback:
            inverse = [Sym(f"A_kk{s.tag}{r.tag}") for r in self.feedback]
            known = [MatMul(a, x) for a, r in zip(inverse, self.feedback, strict=True) if (x := self.known(r)) is not None]
            reach: list[Node] = [MatMul(a, Sym(f"a_in{r.tag}")) for a, r in zip(inverse, self.feedback, strict=True)]
            if known:
                self._prepared(f"U{s.tag}", total([*known]), "U", "the writes if the chunk began with empty states")
            self._prepared(f"W{s.tag}", total(reach), "W", "how the writes answer to the incoming states")

    def _resolved(self, s: CoupledStreamNames) -> Node:
        reach = MatMul(Sym(f"W{s.tag}"), S)
        known = any(self.known(r) is not None for r in self.feedback)
        return total([Sym(f"U{s.tag}"), reach]) if known else reach

    def write(self, stream: CoupledStreamNames) -> Node:
        """The resolved writes of a stream: E where it corrects, else its values."""
        return Sym(f"E{stream.tag}" if stream.corrections else stream.value)

    def known(self, stream: CoupledStreamNames) -> Node | None:
        """The known part of a correcting stream's right-hand side: its values and what it finds of the plain writes."""
        if any(not r.corrections for r in self.operands.streams):
            return Sym(f"X{stream.tag}")
        return Sym(stream.value) if stream.value else None
