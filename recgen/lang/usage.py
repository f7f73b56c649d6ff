"""Check: outputs, what is never used, and which arguments are read only under an option."""

from __future__ import annotations

from collections.abc import Callable

from recgen.lang import syntax
from recgen.lang.diagnostics import Label, Reporter
from recgen.lang.order import equations
from recgen.lang.scope import Scope
from recgen.lang.suggest import did_you_mean
from recgen.lang.terms import Apply, Argument, Term
from recgen.lang.traverse import names_read

Guard = tuple[str, bool]
Path = tuple[Guard, ...]
"""Values of options that lead to a place, the outermost first."""


def outputs(spec: syntax.Spec, scope: Scope, reporter: Reporter, shown: Callable[[str], str]) -> tuple[str, ...]:
    """The names that are returned: declared ones, or else the one definition that no line reads; `shown` gives a name as it is written."""
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
        names = ", ".join(f"`{shown(n)}`" for n in unread)
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


def report_unused(spec: syntax.Spec, scope: Scope, returned: tuple[str, ...], reporter: Reporter, shown: Callable[[str], str]) -> None:
    """Nothing is ignored silently: a declaration or definition without effect is an error."""
    read: set[str] = set(returned)
    for (kind, _), equation in equations(scope).items():
        found = names_read(equation.value)
        # A state that only carries itself has no effect.
        read |= found if kind == "definition" else found - {equation.target.name}
    for statement in spec.statements:
        if isinstance(statement, syntax.Equation) and statement.loop is not None:
            read |= {str(statement.loop.last)}
        if isinstance(statement, syntax.OptionDecl) and not isinstance(statement.default, bool):
            read |= names_read(statement.default)
        if isinstance(statement, syntax.ArgumentDecl | syntax.StateDecl):
            read |= {a.name for a in statement.axes}
    declared = any(isinstance(s, syntax.OutputDecl) for s in spec.statements)
    for symbol in scope.named("input", "param", "const", "option", "state", "definition"):
        # Without an `output` line, definitions that no line reads are outputs.
        if symbol.name not in read and (declared or symbol.role != "definition"):
            advice = f"read it, as in `o = {symbol.name}[t]^T @ q`" if symbol.role == "state" else "use it or remove it"
            reporter.report("E210", symbol.span, help=advice, role=symbol.role, name=shown(symbol.name))


def guards(roots: tuple[Term, ...]) -> dict[str, tuple[Guard, ...]]:
    """For every argument read in these terms: the option values any of which leads to it; () where it is always read."""
    found: dict[str, set[Path]] = {}
    seen: set[tuple[int, Path]] = set()
    stack: list[tuple[Term, Path]] = [(root, ()) for root in roots]
    while stack:
        term, path = stack.pop()
        if (id(term), path) in seen:
            continue
        seen.add((id(term), path))
        if isinstance(term, Argument):
            found.setdefault(term.name, set()).add(path)
        elif isinstance(term, Apply) and term.op == "select":
            for branch, value in zip(term.args, (True, False), strict=True):
                if (term.option, not value) not in path:
                    stack.append((branch, tuple(dict.fromkeys((*path, (term.option, value))))))
        elif isinstance(term, Apply):
            stack += [(arg, path) for arg in term.args]
    return {name: _simplified(paths) for name, paths in found.items()}


def joined(reading: dict[str, tuple[Guard, ...]], names: tuple[str, ...]) -> tuple[Guard, ...]:
    """The option values any of which leads to one of several arguments; () where one is always read."""
    found = [reading[n] for n in names if n in reading]
    return () if () in found else _simplified({(g,) for guards in found for g in guards})


def _simplified(paths: set[Path]) -> tuple[Guard, ...]:
    """The options that decide; where an argument is read on both sides of one, that one does not."""
    kept = list(paths)
    while (pair := _both_sides(kept)) is not None:
        path, guard = pair
        kept = [p for p in kept if set(p) not in (set(path), {*path} - {guard} | {(guard[0], not guard[1])})]
        kept.append(tuple(g for g in path if g != guard))
    kept = [p for p in kept if not any(set(q) < set(p) for q in kept)]
    # Of nested options the outermost is kept: requiring an argument a little too often is harmless.
    outermost = {p[0] for p in kept if p}
    always = () in kept or any((option, not value) in outermost for option, value in outermost)
    return () if always else tuple(sorted(outermost))


def _both_sides(paths: list[Path]) -> tuple[Path, Guard] | None:
    """A path, and a guard of it whose other side is a path too."""
    sets = [set(p) for p in paths]
    for path in paths:
        for guard in path:
            if {*path} - {guard} | {(guard[0], not guard[1])} in sets:
                return path, guard
    return None
