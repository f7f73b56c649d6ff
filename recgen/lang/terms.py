"""Typed expressions: what every stage after checking works on.

A term's shape is (rows, columns) in axis names, "1" for a unit size: a scalar is ("1", "1"), a column over K is ("K", "1"), its transpose
("1", "K"), a matrix ("K", "V"). Definitions are inlined; two terms are equal when they are written the same, whatever their spans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from recgen.lang.source import Span

Shape = tuple[str, str]
SCALAR: Shape = ("1", "1")

ELEMENTWISE = (
    "exp", "log", "log1p", "expm1", "sqrt", "rsqrt", "sigmoid", "logsigmoid", "softplus", "silu", "relu", "tanh",
    "sin", "cos", "abs", "sign",
)  # fmt: skip
"""Functions of one argument, elementwise, shape kept."""

ROW_FUNCTIONS = ("l2norm", "rmsnorm", "sum")
"""Functions over the entries of one vector; `sum` gives a scalar, the others keep the shape."""


@dataclass(frozen=True)
class Constant:
    """A number."""

    value: float
    shape: Shape = SCALAR
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True)
class AxisSize:
    """The size of an axis, as a number (`K` in `K^-0.5`)."""

    axis: str
    shape: Shape = SCALAR
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Argument:
    """An input at t or a param; `role` is "input" or "param"."""

    name: str
    role: str
    shape: Shape
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True)
class OptionValue:
    """A numeric option, a run-time number."""

    name: str
    shape: Shape = SCALAR
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True)
class State:
    """A state after token t (lag 0) or before it (lag 1); with `micro` after this micro-step of token t, None for the last."""

    name: str
    lag: int
    shape: Shape
    span: Span | None = field(default=None, compare=False)
    micro: int | None = None


@dataclass(frozen=True)
class Eye:
    """The identity matrix of its axis."""

    shape: Shape
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Read:
    """What was read from the state, made by the analyzer: the value of `NormalForm.reads[index]`, a column, or of `state` a number."""

    index: int
    shape: Shape
    state: str = ""
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Apply:
    """An operation on terms.

    ops: "neg"; "add" "sub" "mul" "div" (elementwise with the language's broadcasting: a scalar, a column or a row against a matrix);
    "pow" (scalar or elementwise, exponent a scalar); "matmul"; "transpose"; every name of ELEMENTWISE and ROW_FUNCTIONS; "min" "max";
    "where<" and "where<=" (left, right, then, otherwise); "select" (then, otherwise) chosen at compile time by the option `option`.
    """

    op: str
    args: tuple[Term, ...]
    shape: Shape
    option: str = ""
    span: Span | None = field(default=None, compare=False)


Term = Constant | AxisSize | Argument | OptionValue | State | Eye | Read | Apply


def walk(term: Term) -> Iterator[Term]:
    """The term and everything below it, parents first."""
    yield term
    if isinstance(term, Apply):
        for arg in term.args:
            yield from walk(arg)


def reads_state(term: Term, lag: int | None = None) -> bool:
    """Whether the term depends on a state (with this lag, if one is given)."""
    return any(isinstance(x, State) and lag in (None, x.lag) for x in walk(term))


def is_number(term: Term) -> bool:
    """Whether the term is made of numbers, options and sizes alone: known before any token is."""
    return all(isinstance(x, Constant | OptionValue | AxisSize | Apply) for x in walk(term))


def rebuild(term: Term, change: Callable[[Term], Term]) -> Term:
    """The term with `change` applied to every node, children first."""
    if isinstance(term, Apply):
        term = Apply(term.op, tuple(rebuild(a, change) for a in term.args), term.shape, term.option, term.span)
    return change(term)
