"""Sums, products and transpositions as terms, without operations that do nothing."""

from __future__ import annotations

from recgen.lang.terms import SCALAR, Apply, Constant, Term


def transpose(term: Term) -> Term:
    """The transposed term, without a double transposition."""
    if term.shape == SCALAR:
        return term
    if isinstance(term, Apply) and term.op == "transpose":
        return term.args[0]
    return Apply("transpose", (term,), (term.shape[1], term.shape[0]), "", term.span)


def column(term: Term) -> Term:
    """A vector term as a column, elementwise operations on rows turned over."""
    if term.shape[0] != "1" or term.shape == SCALAR:
        return term
    if isinstance(term, Apply) and term.op not in ("matmul", "transpose"):
        return Apply(term.op, tuple(column(a) for a in term.args), (term.shape[1], "1"), term.option, term.span)
    return transpose(term)


def times(left: Term, right: Term) -> Term:
    """The elementwise product as a term, without factors of one."""
    if left == Constant(1.0):
        return right
    if right == Constant(1.0):
        return left
    shape = left.shape if left.shape != SCALAR else right.shape
    return Apply("mul", (left, right), shape, "", left.span or right.span)


def plus(left: Term, right: Term) -> Term:
    """The sum as a term."""
    shape = left.shape if left.shape != SCALAR else right.shape
    return Apply("add", (left, right), shape, "", left.span or right.span)


def scalar_term(coefficient: float, scalars: tuple[Term, ...]) -> Term:
    """coefficient * product of scalars, as a term; -1 becomes a negation."""
    term: Term = Constant(1.0)
    for s in scalars:
        term = times(term, s)
    if coefficient == 1.0:
        return term
    if coefficient == -1.0 and scalars:
        return Apply("neg", (term,), SCALAR, "", term.span)
    return times(Constant(coefficient), term)
