"""Products that carry a state on, taken apart: which side is corrected, what scales the state, what corrects it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from recgen.analysis.algebra import expand
from recgen.analysis.arithmetic import times
from recgen.analysis.decay import Multiplier
from recgen.analysis.products import Column, Dense, Diagonal, Factor, Product, Row, StateFactor, flip
from recgen.analysis.refusal import Refusal
from recgen.analysis.streams import Link
from recgen.lang.recurrence import StateInfo
from recgen.lang.terms import SCALAR, Apply, Argument, Term, walk


def key_side_is_right(products: tuple[Product, ...], outputs: list[Term], state: StateInfo) -> bool:
    """Whether the key axis is the state's second: corrections decide, else vector decay, else the first read."""
    for what, rank in (("is corrected", _has_row_pair), ("decays by channel", _has_diagonal)):
        votes: list[tuple[bool, Product]] = []
        for product in products:
            if product.state is not None:
                left, right = _around(product)
                votes += [(False, product)] * rank(left) + [(True, product)] * rank(right)
        other = next((p for right, p in votes if right != votes[0][0]), None)
        if other is not None:
            raise Refusal(f"the state {what} on both sides, over {state.axes[0]} and over {state.axes[1]}", other.span or state.span)
        if votes:
            return votes[0][0]
    return next((right for term in outputs for right in _contracted(term)), False)


def _contracted(term: Term) -> list[bool]:
    """For every product of the state with a vector in an output: whether the vector runs over the state's second axis."""
    found = []
    for node in walk(term):
        if not isinstance(node, Apply) or node.op != "matmul" or "1" not in node.shape:
            continue
        try:
            products = expand(node)
        except Refusal:
            continue
        for p in products:
            # A number has a vector on either side of the state: it can be read from both.
            if p.state is None or p.shape == SCALAR:
                continue
            at = next(i for i, f in enumerate(p.chain) if isinstance(f, StateFactor))
            factor = p.chain[at]
            assert isinstance(factor, StateFactor)
            vector_right = len(p.chain) > at + 1 and isinstance(p.chain[-1], Column)
            found.append(vector_right != factor.transposed)
    return found


def turned_over(product: Product) -> Product:
    """The transposed equation in the transposed state: what stood right of S stands left of it."""
    turned = flip(product)
    chain = tuple(StateFactor(f.state, not f.transposed) if isinstance(f, StateFactor) else f for f in turned.chain)
    return replace(turned, chain=chain)


def _around(product: Product) -> tuple[tuple[Factor, ...], tuple[Factor, ...]]:
    """What stands left and right of the state."""
    at = next(i for i, f in enumerate(product.chain) if isinstance(f, StateFactor))
    return product.chain[:at], product.chain[at + 1 :]


def _has_row_pair(factors: tuple[Factor, ...]) -> bool:
    return any(isinstance(f, Row | Column) for f in factors)


def _has_diagonal(factors: tuple[Factor, ...]) -> bool:
    return any(isinstance(f, Diagonal) for f in factors)


def link(product: Product) -> Link:
    """A product that carries a state on, taken apart; the key axis is the state's first."""
    (factor,), (left, right) = [f for f in product.chain if isinstance(f, StateFactor)], _around(product)
    for f in (*left, *right):
        if isinstance(f, Dense):
            raise Refusal(
                "a full matrix transforms the state: the transition is dense, not diagonal plus low rank", f.term.span or product.span
            )
    if factor.transposed:
        raise Refusal("the equation mixes the state with its transpose", factor.state.span)
    write, correct, diagonal, values = None, None, None, None
    match right:
        case ():
            pass
        case (Diagonal(d),):
            values = d
        case _:
            raise Refusal("the state is transformed on both sides", product.span)
    match left:
        case ():
            pass
        case (Diagonal(d),):
            diagonal = d
        case _:
            write, correct = _rank_one(left, product)
    return Link(Multiplier(product.coefficient, product.scalars, diagonal, values), write, correct, product)


def _rank_one(left: tuple[object, ...], product: Product) -> tuple[Term, Term]:
    """diag(d) u a^T diag(e), as the write direction d*u and the correction's direction a*e (rows are already folded)."""
    parts = [f for f in left if not isinstance(f, Diagonal)]
    if len(parts) != 2 or not isinstance(parts[0], Column) or not isinstance(parts[1], Row):
        raise Refusal("a transition of this form is not diagonal plus rank one", product.span)
    write, correct = parts[0].term, parts[1].term
    first = left[0]
    if isinstance(first, Diagonal):
        write = times(first.term, write)
    return write, correct


def refuse_matrices(terms: Iterable[Term]) -> None:
    """The operands and outputs are made of numbers and vectors."""
    for node in (x for term in terms for x in walk(term)):
        if isinstance(node, Argument) and "1" not in node.shape:
            raise Refusal(f"`{node.name}` is a full matrix, and operands are numbers and vectors: make what it gives an input", node.span)
        if not isinstance(node, Argument) and "1" not in node.shape:
            advice = "multiply out what is in brackets, as in `k - a * (a^T @ k)` for `(I - a @ a^T) @ k`"
            raise Refusal(f"a matrix stands inside a number or a function of vectors: {advice}", node.span)
