"""Outputs: the parts that read the state linearly become reads, what remains is a function of reads and inputs."""

from __future__ import annotations

from recgen.analysis.algebra import expand
from recgen.analysis.arithmetic import plus, scalar_term, times, transpose
from recgen.analysis.normal_form import ReadOut
from recgen.analysis.products import Column, Diagonal, Product, Row, StateFactor, flip
from recgen.analysis.refusal import Refusal
from recgen.lang.recurrence import StateInfo
from recgen.lang.terms import SCALAR, Apply, Constant, Read, State, Term, reads_state


def _reads_a_matrix(term: Term) -> bool:
    """Whether the term is a product with a matrix that depends on the state: nothing inside it can be read by itself."""
    return isinstance(term, Apply) and term.op == "matmul" and any(reads_state(a) and "1" not in a.shape for a in term.args)


class Reads:
    """Collects the reads of the outputs of one recurrence, equal ones once."""

    def __init__(
        self, state: StateInfo, transposed: bool, first: int, columns: tuple[str, ...] = (), scale: str = "", *, several: bool = False
    ) -> None:
        """`first`: the first micro-step that changes the state; before it, a micro-state is the state before the token.

        `columns`: vector states that are further columns; `scale`: the running maximum, "" without one; `several`: other matrix states are
        read beside `state`, so that a read names its own.
        """
        self.found: list[ReadOut] = []
        self._state = state.name
        self._last = len(state.micro)
        self._transposed = transposed
        self._first = first
        self._columns = columns
        self._scale = scale
        self._several = several

    def extract(self, term: Term) -> Term:
        """The output with every linear read of the state replaced by a `Read`; raises Refusal where the state enters otherwise."""
        if not reads_state(term):
            return term
        if "1" in term.shape:
            try:
                products = expand(term)
            except Refusal:
                if _reads_a_matrix(term):
                    raise
                products = None
            if products is not None:
                return self._sum(products, term)
        if not isinstance(term, Apply) or "1" not in term.shape:
            raise Refusal("an output reads the state otherwise than through a product with a vector", term.span)
        return Apply(term.op, tuple(self.extract(a) for a in term.args), term.shape, term.option, term.span)

    def _sum(self, products: tuple[Product, ...], term: Term) -> Term:
        total: Term | None = None
        as_row = term.shape[0] == "1" and term.shape != SCALAR
        for p in products:
            part = self._product(flip(p) if as_row else p)
            total = part if total is None else plus(total, part)
        assert total is not None
        return transpose(total) if as_row else total

    def _product(self, p: Product) -> Term:
        """(prefix) S^T query, or S query, as prefix * read, in column orientation."""
        if p.state is None:
            return self._free(p)
        if p.state.name == self._scale:
            return self._scaled(p, p.state)
        if p.state.name in self._columns:
            return self._number(p)
        at = next(i for i, f in enumerate(p.chain) if isinstance(f, StateFactor))
        factor, before, after = p.chain[at], p.chain[:at], p.chain[at + 1 :]
        assert isinstance(factor, StateFactor)
        if p.shape == SCALAR and factor.transposed == self._transposed:  # u^T S q read from the other end
            return self._product(flip(p))
        if len(after) != 1 or not isinstance(after[0], Column):
            raise Refusal("an output reads the state otherwise than through a product with a vector", p.span)
        scalar, query = scalar_term(p.coefficient, p.scalars), after[0].term
        axis = factor.state.shape[1 if factor.transposed else 0]
        across = factor.transposed == self._transposed
        if self._several and across:
            name, (rows, columns) = factor.state.name, factor.state.shape
            value = rows if self._transposed else columns
            advice = "states that are compiled together are read over their key axis"
            raise Refusal(f"an output reads `{name}` over its value axis {value}; {advice}", p.span)
        if self._columns and across:
            raise Refusal(f"an output reads `{self._state}` over its value axis, which `{self._columns[0]}` is one more column of", p.span)
        if self._columns:  # numbers scale what was read, so that one query reads all columns
            index = self._index(query, factor.state, across)
            return times(scalar, self._prefixed(before, Read(index, (axis, "1"), span=query.span), p))
        index = self._index(times(scalar, query), factor.state, across)
        return self._prefixed(before, Read(index, (axis, "1"), span=query.span), p)

    def _index(self, query: Term, state: State, across: bool) -> int:
        slot = self._last if state.micro is None else state.micro
        before = state.lag == 1 or slot < self._first
        if self._scale and (before or across):
            raise Refusal("with `stabilize log` an output reads the states at t, over their key axis", query.span)
        read = ReadOut(query, int(before), 0 if before else slot, across, state.name if self._several else "")
        if read not in self.found:
            self.found.append(read)
        return self.found.index(read)

    def _number(self, p: Product) -> Term:
        """What a query reads of a vector state, as a number: z^T q, also as q^T z, times a vector or not."""
        at = next(i for i, f in enumerate(p.chain) if isinstance(f, StateFactor))
        factor, before, after = p.chain[at], p.chain[:at], p.chain[at + 1 :]
        assert isinstance(factor, StateFactor)
        name = factor.state.name
        match (before, after) if factor.transposed else (before[:-1], before[-1:] + after):
            case ((), (Column(query) | Row(query),)):
                vector: Term = Constant(1.0)
            case ((Column(vector),), (Column(query) | Row(query),)):
                pass
            case _:
                raise Refusal(f"an output reads `{name}` otherwise than through its product with a vector", p.span)
        read = Read(self._index(query, factor.state, False), SCALAR, name, query.span)
        return times(times(scalar_term(p.coefficient, p.scalars), read), vector)

    def _scaled(self, p: Product, state: State) -> Term:
        """The running maximum itself."""
        if state.lag or len(p.chain) > 1:
            raise Refusal(f"an output reads `{state.name}` otherwise than as the number {state.name}[t]", p.span)
        return times(scalar_term(p.coefficient, p.scalars), Read(0, SCALAR, state.name, p.span))

    @staticmethod
    def _prefixed(before: tuple[object, ...], read: Term, p: Product) -> Term:
        match before:
            case ():
                return read
            case (Diagonal(gate),):
                return times(gate, read)
            case (Row(u),):
                return Apply("matmul", (transpose(u), read), SCALAR, "", p.span)
            case (Column(w), Row(u)):
                return times(Apply("matmul", (transpose(u), read), SCALAR, "", p.span), w)
        raise Refusal("an output transforms what it reads by a full matrix", p.span)

    @staticmethod
    def _free(p: Product) -> Term:
        scalar = scalar_term(p.coefficient, p.scalars)
        if not p.chain:
            return scalar
        if len(p.chain) == 1 and isinstance(p.chain[0], Column):
            return times(scalar, p.chain[0].term)
        raise Refusal("an output multiplies a vector by a full matrix", p.span)
