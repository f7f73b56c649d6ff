"""Short ways to write specs and to read what becomes of them."""

from __future__ import annotations

from recgen.lang import CheckResult, Recurrence, Source, SpecErrors, check, compile_spec, diagnose, parse
from recgen.lang.diagnostics import Abandon, Reporter
from recgen.lang.names import resolve
from recgen.lang.scope import collect
from recgen.lang.syntax import Equation, Expr
from recgen.lang.terms import Apply, Argument, AxisSize, Constant, Eye, OptionValue, State, Term
from recgen.lang.typer import Typer

DECLARATIONS = """
    input q    : [K]
    input k    : [K]
    input v    : [V]
    input w    : [V]
    input a    : []
    input b    : []  in(0, 1)
    input g    : []  log_decay
    input gk   : [K] log_decay
    param A_log : []
    option x = 2
    option flag = false
    state S    : [K, V]
    state P    : [V, K]
"""


def source(*lines: str, name: str = "spec.rec") -> Source:
    """A spec of these lines."""
    body = "\n".join(f"    {line}" for line in lines)
    return Source(name, f"language 1\n\nrecurrence r\n{body}\n")


def compiled(*lines: str) -> Recurrence:
    return compile_spec(source(*lines))


def checked(*lines: str) -> CheckResult:
    return check(parse(source(*lines)))


def codes(*lines: str) -> list[str]:
    """The codes of all diagnostics of a spec of these lines."""
    return [d.code for d in diagnose(source(*lines))]


def expression(text: str) -> Expr:
    """The syntax tree of an expression."""
    (statement,) = parse(source(f"o = {text}")).statements
    assert isinstance(statement, Equation)
    return statement.value


def term(text: str) -> Term:
    """The term of an expression over `DECLARATIONS`, whatever its shape."""
    spec = parse(Source("spec.rec", f"language 1\nrecurrence r\n{DECLARATIONS}\n    it = {text}\n"))
    reporter = Reporter(spec.source)
    scope = collect(spec, reporter)
    value = scope.definitions["it"].value
    assert resolve(value, scope, reporter), reporter.found[0].render()
    try:
        return Typer(scope, reporter).value(value)
    except Abandon:
        raise SpecErrors(reporter.sorted()) from None


def show(node: Term) -> str:
    """A term in a compact form with every operation in brackets."""
    match node:
        case Constant(value=value):
            return f"{value:g}"
        case AxisSize(axis=axis):
            return f"#{axis}"
        case Argument(name=name) | OptionValue(name=name):
            return name
        case State(name=name, lag=lag):
            return f"{name}{lag}"
        case Eye(shape=shape):
            return f"I{shape[0]}"
        case Apply(op=op, args=args, option=option):
            return f"{op}{f'<{option}>' if option else ''}({', '.join(show(a) for a in args)})"
    raise AssertionError(node)
