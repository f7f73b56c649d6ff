"""Typed terms as sums of products of simple matrix factors: the algebra in which the state's equation is linear.

Scalars are pulled out of state-free vectors, outer products stay factored, and a row that meets a column is a scalar again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from recgen.analysis.arithmetic import column, plus, scalar_term, times
from recgen.analysis.products import Column, Dense, Diagonal, Factor, Product, Row, StateFactor, flip, multiplied, reduced
from recgen.analysis.refusal import Refusal
from recgen.lang.terms import SCALAR, Apply, Constant, Eye, State, Term, reads_state


def expand(term: Term) -> tuple[Product, ...]:
    """The term as a sum of products; raises Refusal where a state enters nonlinearly."""
    if not reads_state(term) and term.shape == SCALAR:
        return _scalar(term)
    if isinstance(term, State):
        return (Product(1.0, (), (StateFactor(term, False),), term.shape, term.span),)
    if isinstance(term, Eye):
        return (Product(1.0, (), (), term.shape, term.span),)
    if isinstance(term, Apply) and term.op in _RULES:
        return _RULES[term.op](term)
    if reads_state(term) and isinstance(term, Apply) and term.op == "select":
        raise Refusal(f"option `{term.option}` chooses between terms that read the state: let it choose what multiplies them", term.span)
    if reads_state(term):
        op = term.op if isinstance(term, Apply) else str(term)
        raise Refusal(f"the state enters `{_WRITTEN.get(op, op)}` which is not linear", term.span)
    return (Product(1.0, (), (_vector(term),), term.shape, term.span),)


def _vector(term: Term) -> Factor:
    if term.shape[1] == "1":
        return Column(term)
    if term.shape[0] == "1":
        return Row(column(term))
    return Dense(term)


def _scalar(term: Term) -> tuple[Product, ...]:
    """A state-free scalar: factors of a product apart, a sum in one piece."""
    if isinstance(term, Constant):
        return (Product(term.value, (), (), SCALAR, term.span),)
    if isinstance(term, Apply) and term.op == "neg":
        return tuple(replace(p, coefficient=-p.coefficient) for p in _scalar(term.args[0]))
    if isinstance(term, Apply) and term.op == "mul":
        (left,), (right,) = _scalar(term.args[0]), _scalar(term.args[1])
        return (Product(*multiplied(left, right), (), SCALAR, term.span),)
    if isinstance(term, Apply) and term.op == "div":
        return (_divide(_scalar(term.args[0])[0], term.args[1]),)
    return (Product(1.0, (term,), (), SCALAR, term.span),)


def _divide(product: Product, divisor: Term) -> Product:
    inverse = Apply("div", (Constant(1.0), divisor), SCALAR, "", divisor.span)
    return replace(product, scalars=(*product.scalars, inverse))


def _neg(term: Apply) -> tuple[Product, ...]:
    return tuple(replace(p, coefficient=-p.coefficient) for p in expand(term.args[0]))


def _sum(term: Apply) -> tuple[Product, ...]:
    left, right = term.args
    if not reads_state(term) and "1" in term.shape:
        return (Product(1.0, (), (_vector(term),), term.shape, term.span),)
    if left.shape != right.shape and reads_state(term):
        raise Refusal("a vector or scalar is added to every entry of a matrix that depends on the state", term.span)
    if left.shape != right.shape:
        return (Product(1.0, (), (Dense(term),), term.shape, term.span),)
    second = expand(right)
    if term.op == "sub":
        second = tuple(replace(p, coefficient=-p.coefficient) for p in second)
    return expand(left) + second


def _div(term: Apply) -> tuple[Product, ...]:
    numerator, divisor = term.args
    if reads_state(divisor):
        raise Refusal("the state stands in a divisor", divisor.span)
    if divisor.shape == SCALAR:
        return tuple(_divide(p, divisor) for p in expand(numerator))
    if not reads_state(numerator) and divisor.shape == term.shape:
        return (Product(1.0, (), (_vector(term),), term.shape, term.span),)
    ones = Apply("div", (Constant(1.0), divisor), divisor.shape, "", divisor.span)
    return _mul(Apply("mul", (ones, numerator), term.shape, "", term.span))


def _mul(term: Apply) -> tuple[Product, ...]:
    left, right = term.args
    if reads_state(left) and reads_state(right):
        raise Refusal("two factors of this product both depend on the state", term.span)
    # A state-free matrix is scaled by a vector on either side of it.
    matrix_first = reads_state(left) or (not reads_state(right) and "1" not in left.shape and "1" in right.shape)
    state_side, free = (left, right) if matrix_first else (right, left)
    if free.shape == SCALAR or state_side.shape == SCALAR:
        return tuple(_join(a, b, term) for a in expand(free) for b in expand(state_side))
    if free.shape[1] == "1" and state_side.shape[1] != "1" and free.shape[0] == state_side.shape[0]:
        return _scale(free, state_side, left=True, term=term)
    if free.shape[0] == "1" and state_side.shape[0] != "1" and free.shape[1] == state_side.shape[1]:
        return _scale(free, state_side, left=False, term=term)
    return _hadamard(free, state_side, term)


def _scale(vector: Term, matrix: Term, *, left: bool, term: Apply) -> tuple[Product, ...]:
    """A column scales the rows of a matrix, a row its columns."""
    out = []
    for v in expand(vector):
        diagonal = Diagonal(_as_column(v))
        for m in expand(matrix):
            chain = (diagonal, *m.chain) if left else (*m.chain, diagonal)
            out.append(reduced(Product(*multiplied(v, m), chain, term.shape, term.span)))
    return tuple(out)


def _as_column(product: Product) -> Term:
    """The vector of a state-free product of one vector factor."""
    if len(product.chain) == 1 and isinstance(product.chain[0], Column | Row):
        return product.chain[0].term
    raise Refusal("a vector is expected here", product.span)


def _hadamard(free: Term, other: Term, term: Apply) -> tuple[Product, ...]:
    """Elementwise product of equal shapes: (u v^T) * M = diag(u) M diag(v)."""
    if not reads_state(other) and "1" in term.shape:
        if free.shape == other.shape:
            return _vector_product(free, other, term)
        raise Refusal("a column times a row", term.span)
    out = []
    for f in expand(free):
        for m in expand(other):
            diagonals = _outer(f)
            if "1" in term.shape:
                diagonals = (Diagonal(_as_column(f)), None) if term.shape[1] == "1" else (None, Diagonal(_as_column(f)))
            first, last = diagonals
            chain = (*((first,) if first else ()), *m.chain, *((last,) if last else ()))
            out.append(reduced(Product(*multiplied(f, m), chain, term.shape, term.span)))
    return tuple(out)


def _vector_product(left: Term, right: Term, term: Apply) -> tuple[Product, ...]:
    a, b = _in_one(left), _in_one(right)
    vector = times(_as_column(a), _as_column(b))
    factor: Factor = Column(vector) if term.shape[1] == "1" else Row(vector)
    return (Product(*multiplied(a, b), (factor,), term.shape, term.span),)


def _in_one(term: Term) -> Product:
    """A state-free vector as one product; what comes out as a sum is one vector factor."""
    products = expand(term)
    if len(products) == 1:
        return products[0]
    total: Term | None = None
    for p in products:
        part = times(scalar_term(p.coefficient, p.scalars), _as_column(p))
        total = part if total is None else plus(total, part)
    assert total is not None
    return Product(1.0, (), (Column(total) if term.shape[1] == "1" else Row(total),), term.shape, term.span)


def _outer(product: Product) -> tuple[Diagonal | None, Diagonal | None]:
    if len(product.chain) == 1 and isinstance(product.chain[0], Column | Row):
        return None, None
    if len(product.chain) == 2 and isinstance(product.chain[0], Column) and isinstance(product.chain[1], Row):
        return Diagonal(product.chain[0].term), Diagonal(product.chain[1].term)
    raise Refusal("a full matrix multiplies the state entry by entry: elementwise decay, the scan class", product.span)


def _matmul(term: Apply) -> tuple[Product, ...]:
    left, right = term.args
    if reads_state(left) and reads_state(right):
        raise Refusal("two factors of this product both depend on the state", term.span)
    return tuple(_join(a, b, term) for a in expand(left) for b in expand(right))


def _join(left: Product, right: Product, term: Apply) -> Product:
    if left.shape == SCALAR and right.shape != SCALAR and left.chain:
        chain = right.chain + left.chain  # a scalar that reads the state: u * (q^T S v) = u q^T S v, for a column u
        if right.shape[1] != "1":
            raise Refusal("a number read from the state multiplies a matrix or a row", term.span)
    else:
        chain = left.chain + right.chain
    return reduced(Product(*multiplied(left, right), chain, term.shape, term.span))


def _transposed(term: Apply) -> tuple[Product, ...]:
    return tuple(flip(p) for p in expand(term.args[0]))


_WRITTEN = {"where<": "where", "where<=": "where", "pow": "^"}
"""What a spec calls operations that have another name here."""

_RULES: dict[str, Callable[[Apply], tuple[Product, ...]]] = {
    "neg": _neg,
    "add": _sum,
    "sub": _sum,
    "mul": _mul,
    "div": _div,
    "matmul": _matmul,
    "transpose": _transposed,
}
