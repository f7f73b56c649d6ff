"""Check: outputs, what is never used, and which arguments are read only under an option."""

from __future__ import annotations

from recgen.lang import syntax
from recgen.lang.diagnostics import Label, Reporter
from recgen.lang.order import equations
from recgen.lang.scope import Scope
from recgen.lang.suggest import did_you_mean
from recgen.lang.terms import Apply, Argument, Term
from recgen.lang.traverse import names_read

Guard = tuple[str, bool]


def outputs(spec: syntax.Spec, scope: Scope, reporter: Reporter) -> tuple[str, ...]:
    """The names that are returned: declared ones, or else the one definition that no line reads."""
    declared = [s for s in spec.statements if isinstance(s, syntax.OutputDecl)]
    for extra in declared[1:]:
        label = Label(declared[0].span, "the first one is here")
        reporter.report("E104", extra.span, secondary=label, help="name all outputs on one line", keyword="output")
    if declared:
        return _declared(declared[0], scope, reporter)
    read = set().union(*(names_read(e.value) for e in equations(scope).values()))
    unread = [name for name in scope.definitions if name not in read]
    if not unread:
        advice = "add a definition that no other line reads, as in `o = S[t]^T @ q`, or name one with `output o`"
        reporter.report("E403", spec.name.span, help=advice)
    if len(unread) > 1:
        first, second = (scope.definitions[n].target.span for n in unread[:2])
        names = ", ".join(f"`{n}`" for n in unread)
        advice = f"if all are returned add the line `output {', '.join(unread)}`, else remove what is not needed"
        reporter.report("E404", first, secondary=Label(second, "this one too"), help=advice, count=len(unread), names=names)
    return tuple(unread)


def _declared(declaration: syntax.OutputDecl, scope: Scope, reporter: Reporter) -> tuple[str, ...]:
    seen: dict[str, syntax.Name] = {}
    for name in declaration.names:
        if name.name in seen:
            label = Label(seen[name.name].span, "it is already named here")
            reporter.report("E202", name.span, secondary=label, help="name it once", name=name.name)
        elif scope.role(name.name) == "state":
            advice = f"final states are always returned; for the state of every token define `x = {name.name}[t]` of a vector state"
            reporter.report("E405", name.span, help=advice, name=name.name)
        elif name.name not in scope.definitions:
            advice = did_you_mean(name.name, scope.definitions) or f"define it, as in `{name.name} = ...`"
            reporter.report("E405", name.span, help=advice, name=name.name)
        seen.setdefault(name.name, name)
    return tuple(n for n in seen if n in scope.definitions)


def report_unused(spec: syntax.Spec, scope: Scope, returned: tuple[str, ...], reporter: Reporter) -> None:
    """Nothing is ignored silently: a declaration or definition without effect is an error."""
    read: set[str] = set(returned)
    for (kind, name), equation in equations(scope).items():
        found = names_read(equation.value)
        # A state that only carries itself has no effect.
        read |= found - {name} if kind == "state" else found
    for statement in spec.statements:
        if isinstance(statement, syntax.OptionDecl) and not isinstance(statement.default, bool):
            read |= names_read(statement.default)
        if isinstance(statement, syntax.ArgumentDecl | syntax.StateDecl):
            read |= {a.name for a in statement.axes}
    declared = any(isinstance(s, syntax.OutputDecl) for s in spec.statements)
    for symbol in scope.named("input", "param", "const", "option", "state", "definition"):
        # Without an `output` line, definitions that no line reads are outputs.
        if symbol.name not in read and (declared or symbol.role != "definition"):
            advice = f"read it, as in `o = {symbol.name}[t]^T @ q`" if symbol.role == "state" else "use it or remove it"
            reporter.report("E210", symbol.span, help=advice, role=symbol.role, name=symbol.name)


def guards(roots: tuple[Term, ...]) -> dict[str, tuple[Guard, ...]]:
    """For every argument read in these terms: the option values any of which leads to it; () where it is always read."""
    found: dict[str, set[Guard | None]] = {}
    seen: set[tuple[int, Guard | None]] = set()
    stack: list[tuple[Term, Guard | None]] = [(root, None) for root in roots]
    while stack:
        term, guard = stack.pop()
        if (id(term), guard) in seen:
            continue
        seen.add((id(term), guard))
        if isinstance(term, Argument):
            found.setdefault(term.name, set()).add(guard)
        elif isinstance(term, Apply) and term.op == "select":
            # Of nested options the outermost is kept: requiring an argument a little too often is harmless.
            stack += [(branch, guard or (term.option, value)) for branch, value in zip(term.args, (True, False), strict=True)]
        elif isinstance(term, Apply):
            stack += [(arg, guard) for arg in term.args]
    return {name: _simplified(pairs) for name, pairs in found.items()}


def _simplified(pairs: set[Guard | None]) -> tuple[Guard, ...]:
    kept = {p for p in pairs if p is not None}
    always = None in pairs or any((option, not value) in kept for option, value in kept)
    return () if always else tuple(sorted(kept))
