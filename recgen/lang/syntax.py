"""The syntax tree of a spec: what the user wrote, with spans, before any checking."""

from __future__ import annotations

from dataclasses import dataclass, field

from recgen.lang.source import Source, Span


@dataclass(frozen=True)
class Number:
    """A literal, `text` as written."""

    value: float
    text: str
    span: Span = field(compare=False)


@dataclass(frozen=True)
class Name:
    """An input, param, const, option, axis or definition."""

    name: str
    span: Span = field(compare=False)


@dataclass(frozen=True)
class Identity:
    """The identity matrix `I`; its size comes from its neighbour."""

    span: Span = field(compare=False)


@dataclass(frozen=True)
class StateRef:
    """A state at a time: `S[t]` (lag 0) or `S[t-1]` (lag 1), `S[t, j]` with a micro-step index."""

    name: str
    lag: int
    micro: Micro | None
    span: Span = field(compare=False)


@dataclass(frozen=True)
class Micro:
    """A micro-step index: a number (`S[t, 0]`), `j`, or `j-1` (offset 1)."""

    variable: str | None
    value: int
    span: Span = field(compare=False)


@dataclass(frozen=True)
class Index:
    """`k[j]`: the micro-step's slice of an input declared with a leading const axis."""

    name: str
    micro: Micro
    span: Span = field(compare=False)


@dataclass(frozen=True)
class Negate:
    """`-operand`."""

    operand: Expr
    span: Span = field(compare=False)


@dataclass(frozen=True)
class Transpose:
    """`operand^T`."""

    operand: Expr
    span: Span = field(compare=False)


@dataclass(frozen=True)
class Binary:
    """`left op right` with op one of + - * / @ ^."""

    op: str
    left: Expr
    right: Expr
    op_span: Span = field(compare=False)
    span: Span = field(compare=False)


@dataclass(frozen=True)
class Conditional:
    """`then if test else otherwise`; the test is a boolean option, possibly negated."""

    then: Expr
    test: Expr
    otherwise: Expr
    negated: bool
    span: Span = field(compare=False)


@dataclass(frozen=True)
class Compare:
    """`left op right` with op one of < > <= >=, only as the first argument of `where`."""

    op: str
    left: Expr
    right: Expr
    span: Span = field(compare=False)


@dataclass(frozen=True)
class Call:
    """`function(arguments)`."""

    function: str
    arguments: tuple[Expr, ...]
    function_span: Span = field(compare=False)
    span: Span = field(compare=False)


Expr = Number | Name | Identity | StateRef | Index | Negate | Transpose | Binary | Conditional | Compare | Call


@dataclass(frozen=True)
class DomainSyntax:
    """A declared domain: `log_decay`, `in(0, 1)`, `floor(-5)`, ...

    `floor` is the lower bound that `floor(x)` adds to another domain, as in `log_decay floor(-5)`.
    """

    name: str
    bounds: tuple[float, ...]
    span: Span = field(compare=False)
    floor: float | None = None


@dataclass(frozen=True)
class AxisRef:
    """One axis in a shape."""

    name: str
    span: Span = field(compare=False)


@dataclass(frozen=True)
class ArgumentDecl:
    """`input name : [axes] domain grouped` or `param ...` (role "input" or "param")."""

    role: str
    name: Name
    axes: tuple[AxisRef, ...]
    domain: DomainSyntax | None
    grouped: bool
    span: Span = field(compare=False)


@dataclass(frozen=True)
class ConstDecl:
    """`const n = 2`: a compile-time integer that is not an axis size."""

    name: Name
    value: int
    span: Span = field(compare=False)


@dataclass(frozen=True)
class OptionDecl:
    """`option name = default`; the default is an expression or `true`/`false`."""

    name: Name
    default: Expr | bool
    span: Span = field(compare=False)


@dataclass(frozen=True)
class StateDecl:
    """`state name : [axes]`."""

    name: Name
    axes: tuple[AxisRef, ...]
    span: Span = field(compare=False)


@dataclass(frozen=True)
class Loop:
    """`for j in 1..n` after an equation."""

    variable: str
    first: int
    last: str | int
    span: Span = field(compare=False)


@dataclass(frozen=True)
class Equation:
    """`target = value`: a definition (target is a Name, for one micro-step an Index) or a state's equation (a StateRef)."""

    target: Name | StateRef | Index
    value: Expr
    loop: Loop | None
    span: Span = field(compare=False)


@dataclass(frozen=True)
class OutputDecl:
    """`output a, b`."""

    names: tuple[Name, ...]
    span: Span = field(compare=False)


@dataclass(frozen=True)
class Directive:
    """`plan scan`, `plan recurrent` or `stabilize log`: the two words."""

    keyword: str
    value: str
    span: Span = field(compare=False)


Statement = ArgumentDecl | ConstDecl | OptionDecl | StateDecl | Equation | OutputDecl | Directive


@dataclass(frozen=True)
class Spec:
    """A whole file: `language 1`, `recurrence name`, an optional docstring, statements in order."""

    source: Source = field(compare=False)
    language: int
    name: Name
    doc: str
    statements: tuple[Statement, ...]
