"""Check: what every name of a spec stands for. Duplicates, reserved names, axes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from recgen.lang import syntax
from recgen.lang.diagnostics import Label, Reporter
from recgen.lang.functions import LEADING_AXES, argument_reason, recurrence_reason, reserved_reason
from recgen.lang.source import Span
from recgen.lang.terms import SCALAR, Shape

ROLES = {
    "input": "an input", "param": "a param", "const": "a const", "option": "an option", "state": "a state", "definition": "a definition",
    "axis": "an axis",
}  # fmt: skip
"""Role -> the same with its article, for messages."""
LONGEST_NAME = 100
"""Characters of a recurrence's name. File systems take 255 of a file's, which has a prefix and a digest besides."""


@dataclass(frozen=True)
class Symbol:
    """What a name stands for: `role` is a key of `ROLES`; `boolean` marks true/false options."""

    name: str
    role: str
    span: Span
    axes: tuple[str, ...] = ()
    boolean: bool = False
    value: int = 0

    @property
    def shape(self) -> Shape:
        """The declared axes as rows and columns."""
        if not self.axes:
            return SCALAR
        return (self.axes[0], self.axes[1] if len(self.axes) > 1 else "1")


@dataclass
class Scope:
    """Every name of a spec, and its equations: definitions by name, states by name, and a state's micro-steps before its last.

    `unknown` are the names already reported.
    """

    symbols: dict[str, Symbol] = field(default_factory=dict)
    definitions: dict[str, syntax.Equation] = field(default_factory=dict)
    states: dict[str, syntax.Equation] = field(default_factory=dict)
    micro: dict[str, dict[int, syntax.Equation]] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)

    def role(self, name: str) -> str | None:
        """The role of a name, None if it is unknown."""
        return self.symbols[name].role if name in self.symbols else None

    def named(self, *roles: str) -> Iterator[Symbol]:
        """The symbols of these roles, in the order of the text."""
        return (s for s in self.symbols.values() if s.role in roles)


def collect(spec: syntax.Spec, reporter: Reporter) -> Scope:
    """The scope of a spec; every name is usable even if its declaration is at fault, so that one error does not cause others."""
    scope = Scope()
    _check_reserved(spec.name, reporter, recurrence_reason)
    _check_length(spec.name, reporter)
    for statement in spec.statements:
        _declare(statement, scope, reporter)
    _check_states_names(scope, reporter)
    for statement in spec.statements:
        if isinstance(statement, syntax.ArgumentDecl | syntax.StateDecl):
            _axes(statement, scope, reporter)
    for statement in spec.statements:
        if isinstance(statement, syntax.Equation):
            _equation(statement, scope, reporter)
    return scope


def _declare(statement: syntax.Statement, scope: Scope, reporter: Reporter) -> None:
    match statement:
        case syntax.ArgumentDecl(role=role, name=name, axes=axes):
            _add(scope, Symbol(name.name, role, name.span, tuple(a.name for a in axes)), name, reporter)
        case syntax.StateDecl(name=name, axes=axes):
            _add(scope, Symbol(name.name, "state", name.span, tuple(a.name for a in axes)), name, reporter)
        case syntax.ConstDecl(name=name, value=value):
            _add(scope, Symbol(name.name, "const", name.span, value=value), name, reporter)
        case syntax.OptionDecl(name=name, default=default):
            _add(scope, Symbol(name.name, "option", name.span, boolean=isinstance(default, bool)), name, reporter)


def _add(scope: Scope, symbol: Symbol, name: syntax.Name, reporter: Reporter) -> bool:
    """Enter a symbol unless its name is taken."""
    _check_reserved(name, reporter, argument_reason if symbol.role in ("input", "param", "option") else None)
    if symbol.name in scope.symbols:
        first = scope.symbols[symbol.name]
        label = Label(first.span, f"the first one is here, {ROLES[first.role]}")
        reporter.report("E202", symbol.span, secondary=label, help="give one of them another name", name=symbol.name)
        return False
    scope.symbols[symbol.name] = symbol
    return True


def _check_reserved(name: syntax.Name, reporter: Reporter, further: Callable[[str], str | None] | None = None) -> None:
    """Report a name that nothing may have, or that `further` gives a reason against."""
    reason = reserved_reason(name.name) or (further(name.name) if further is not None else None)
    if reason is not None:
        other = "lam" if name.name == "lambda" else f"{name.name.lstrip('_')}_"
        reporter.report("E203", name.span, help=f"choose another name, such as `{other}`", name=name.name, reason=reason)


def _check_states_names(scope: Scope, reporter: Reporter) -> None:
    """No argument is called what generated functions call a state before the first token or after the last."""
    for state in scope.named("state"):
        for name in (f"initial_{state.name}", f"final_{state.name}"):
            taken = scope.symbols.get(name)
            if taken is not None and taken.role in ("input", "param", "option"):
                reason = f"generated functions use it for the state `{state.name}`"
                reporter.report("E203", taken.span, help=f"choose another name, such as `{name}_`", name=name, reason=reason)


def _check_length(name: syntax.Name, reporter: Reporter) -> None:
    """A recurrence's name is part of the names of files."""
    if len(name.name) > LONGEST_NAME:
        reporter.report("E232", name.span, help="files carry it in their names", limit=LONGEST_NAME, count=len(name.name))


def _axes(statement: syntax.ArgumentDecl | syntax.StateDecl, scope: Scope, reporter: Reporter) -> None:
    """Enter the axes of one shape. A const may count micro-steps there, nothing else may share its name with an axis."""
    own = [a for a in statement.axes if a.name not in LEADING_AXES]
    if len(own) > 2 and all(scope.role(a.name) != "const" for a in own):
        span = statement.axes[0].span.to(statement.axes[-1].span)
        reporter.report("E310", span, help="there are numbers, vectors and matrices", name=statement.name.name, count=len(own))
    for axis in statement.axes:
        other = scope.symbols.get(axis.name)
        if other is None:
            leading = axis.name in LEADING_AXES
            reason = "the axes of tokens and heads have these names" if leading else reserved_reason(axis.name)
            if reason is not None:
                advice = "token and head axes are not written" if leading else "choose another name"
                reporter.report("E203", axis.span, help=advice, name=axis.name, reason=reason)
            scope.symbols[axis.name] = Symbol(axis.name, "axis", axis.span)
        elif other.role not in ("axis", "const"):
            label = Label(other.span, f"`{axis.name}` is {ROLES[other.role]} here")
            reporter.report("E204", axis.span, secondary=label, help="rename one of them", name=axis.name, other=ROLES[other.role])


def _equation(statement: syntax.Equation, scope: Scope, reporter: Reporter) -> None:
    """Enter what an equation defines."""
    target = statement.target
    assert not isinstance(target, syntax.Index), "micro-steps are written out"
    role = scope.role(target.name)
    if isinstance(target, syntax.Name) and role != "state":
        if _add(scope, Symbol(target.name, "definition", target.span), target, reporter):
            scope.definitions[target.name] = statement
    elif isinstance(target, syntax.Name):
        advice = f"write `{target.name}[t] = ... {target.name}[t-1] ...`"
        label = Label(scope.symbols[target.name].span, "it is declared here")
        reporter.report("E205", target.span, secondary=label, help=advice, name=target.name)
        scope.states.setdefault(target.name, statement)
    elif role == "state":
        _state_equation(target, statement, scope, reporter)
    elif role is None:
        advice = f"declare it, as in `state {target.name} : [K, V]`, or write `{target.name} = ...`"
        reporter.report("E201", target.span, help=advice, name=target.name)
        scope.unknown.add(target.name)
    else:
        reporter.report("E206", target.span, help="only states are carried over time", name=target.name, role=ROLES[role])


def _state_equation(target: syntax.StateRef, statement: syntax.Equation, scope: Scope, reporter: Reporter) -> None:
    if target.micro is not None:
        scope.micro.setdefault(target.name, {})[target.micro.value] = statement
        return
    if target.name in scope.states:
        label = Label(scope.states[target.name].target.span, "the first equation is here")
        reporter.report("E202", target.span, secondary=label, help="a state has one equation", name=f"{target.name}[t]")
        return
    scope.states.setdefault(target.name, statement)
