"""Products of matrices in the order in which one token needs the least: identities go, vectors are multiplied first.

`(I - b * k @ k^T) @ S` as a product of matrices takes a matrix [K, K] and K * K * V multiplications; as `S - b * k @ (k^T @ S)` it takes a
row. The value is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from recgen.analysis.arithmetic import transpose
from recgen.lang.recurrence import Recurrence
from recgen.lang.terms import SCALAR, Apply, Eye, State, Term, rebuild


def one_step(recurrence: Recurrence) -> Recurrence:
    """The recurrence with every micro-state put in where it is read, so that a token has one step."""
    steps: dict[tuple[str, int | None], Term] = {}

    def put_in(term: Term) -> Term:
        return steps[term.name, term.micro] if isinstance(term, State) and term.lag == 0 and term.micro is not None else term

    states = []
    for state in recurrence.states:
        for i, equation in enumerate(state.micro):
            steps[state.name, i] = rebuild(equation, put_in)
        states.append(replace(state, equation=rebuild(state.equation, put_in), micro=()))
    definitions = tuple(replace(d, value=rebuild(d.value, put_in)) for d in recurrence.definitions)
    return replace(recurrence, states=tuple(states), definitions=definitions) if steps else recurrence


def applied(term: Term) -> Term:
    """The term with products of matrices taken apart where a factor is made of identities and outer products of vectors."""
    return rebuild(term, _simpler)


def _simpler(x: Term) -> Term:
    if isinstance(x, Apply) and x.op == "transpose" and _made_of_vectors(x.args[0]):
        return _turned(x.args[0])
    return _product(x.args[0], x.args[1], x) if isinstance(x, Apply) and x.op == "matmul" else x


def _made_of_vectors(m: Term) -> bool:
    """Whether a matrix is a sum of multiples of identities and outer products, or has one as a summand."""
    if isinstance(m, Eye):
        return True
    if not isinstance(m, Apply) or "1" in m.shape:
        return False
    if m.op == "matmul":
        return m.args[0].shape[1] == "1"
    whole = all(a.shape == m.shape for a in m.args)
    return (m.op == "mul" or (m.op in ("neg", "add", "sub") and whole)) and any(map(_made_of_vectors, m.args))


def _turned(m: Term) -> Term:
    """The transposed matrix, each of its parts transposed."""
    match m:
        case Eye():
            return m
        case Apply("matmul", (u, row)):
            return _apply("matmul", (transpose(row), transpose(u)), m)
        case Apply(op, args) if _made_of_vectors(m):
            return _apply(op, tuple(_turned(a) for a in args), m)
    return transpose(m)


def _apply(op: str, args: tuple[Term, ...], like: Term) -> Term:
    """An operation on matrices and vectors; its shape is what its arguments give."""
    rows, columns = (args[0].shape[0], args[-1].shape[1]) if op == "matmul" else (_widest(args, 0), _widest(args, 1))
    return Apply(op, args, (rows, columns), "", like.span)


def _widest(args: tuple[Term, ...], side: int) -> str:
    return next((a.shape[side] for a in args if a.shape[side] != "1"), "1")


def _product(left: Term, right: Term, x: Term) -> Term:
    """left @ right, taken apart."""
    if isinstance(left, Eye):
        return right
    if isinstance(right, Eye):
        return left
    if left.shape[1] == "1":  # an outer product: what follows in `x` decides
        return _apply("matmul", (left, right), x)
    if _made_of_vectors(left):
        return _from_left(left, lambda a, b: _product(a, b, x), right, x)
    if _made_of_vectors(right):
        return _from_right(right, lambda a, b: _product(a, b, x), left, x)
    return _apply("matmul", (left, right), x)


Product = Callable[[Term, Term], Term]


def _from_left(m: Term, product: Product, right: Term, x: Term) -> Term:
    """m @ right for a left factor that is made of vectors."""
    assert isinstance(m, Apply)
    match m:
        case Apply("matmul", (u, row)):
            return product(u, product(row, right))
        case Apply("mul", (a, b)):
            scale, matrix = (a, b) if a.shape != m.shape else (b, a)
            if scale.shape == m.shape:
                return _apply("matmul", (m, right), x)
            if scale.shape == SCALAR or scale.shape[1] == "1":
                return _apply("mul", (scale, product(matrix, right)), x)
            return product(matrix, _apply("mul", (transpose(scale), right), x))
    return _apply(m.op, tuple(product(a, right) for a in m.args), x)


def _from_right(m: Term, product: Product, left: Term, x: Term) -> Term:
    """left @ m for a right factor that is made of vectors."""
    assert isinstance(m, Apply)
    match m:
        case Apply("matmul", (u, row)):
            return product(product(left, u), row)
        case Apply("mul", (a, b)):
            scale, matrix = (a, b) if a.shape != m.shape else (b, a)
            if scale.shape == m.shape:
                return _apply("matmul", (left, m), x)
            if scale.shape == SCALAR or scale.shape[0] == "1":
                return _apply("mul", (product(left, matrix), scale), x)
            return product(_apply("mul", (left, transpose(scale)), x), matrix)
    return _apply(m.op, tuple(product(left, a) for a in m.args), x)
