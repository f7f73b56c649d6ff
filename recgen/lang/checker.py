"""Stage 2: syntax tree -> checked recurrence. Each pass is one concern; all run, so that one run finds independent errors."""

from __future__ import annotations

from dataclasses import dataclass

from recgen.lang import syntax
from recgen.lang.declared import arguments, options, report_empty_domains, report_grouped
from recgen.lang.diagnostics import Abandon, Diagnostic, Label, Reporter
from recgen.lang.finite import report_not_finite
from recgen.lang.micro import Unrolled, unroll
from recgen.lang.names import resolve
from recgen.lang.order import Key, equations, in_order, micro_key
from recgen.lang.recurrence import Definition, OptionInfo, PackedInfo, Recurrence, StateInfo
from recgen.lang.scope import Scope, Symbol, collect
from recgen.lang.shapes import UNSIZED, describe, give_size, transposed
from recgen.lang.size import check_size
from recgen.lang.terms import Term
from recgen.lang.traverse import walk
from recgen.lang.typer import Typer
from recgen.lang.usage import guards, joined, outputs, report_unused


@dataclass(frozen=True)
class CheckResult:
    """A recurrence that passed every check, and the warnings about it."""

    recurrence: Recurrence
    warnings: tuple[Diagnostic, ...]


def check_spec(spec: syntax.Spec, reporter: Reporter) -> Recurrence | None:
    """The recurrence of a spec; None if an error was reported."""
    unrolled = unroll(spec, reporter)
    if unrolled is None:
        return None
    written, spec = spec, unrolled.spec
    scope = collect(spec, reporter)
    report_empty_domains(written, reporter)
    report_grouped(written, reporter)
    returned = outputs(spec, scope, reporter, unrolled.shown)
    _report_states(spec, scope, reporter)
    plan, stabilize = _directives(spec, reporter)
    typer = Typer(scope, reporter)
    defaults = options(spec, scope, typer, reporter)
    terms = _terms(scope, typer, reporter)
    _report_output_shapes(returned, scope, terms, reporter)
    numbers = [o.default for o in defaults if not isinstance(o.default, bool)]
    report_not_finite([*numbers, *terms.values()], reporter)
    if not reporter.failed():
        # Only then: a name that is read where an error is may look unused.
        report_unused(written, scope, returned, reporter, unrolled.shown)
    if reporter.failed():
        return None
    recurrence = _recurrence(written, unrolled, scope, terms, returned, defaults, (plan, stabilize))
    _report_inputs_that_come_and_go(recurrence, written, reporter)
    return None if reporter.failed() else recurrence


def _terms(scope: Scope, typer: Typer, reporter: Reporter) -> dict[Key, Term]:
    """The term of every sound equation, in dependency order."""
    lines = equations(scope)
    sound = {key for key, equation in lines.items() if resolve(equation.value, scope, reporter)}
    found: dict[Key, Term] = {}
    sizes: dict[int, tuple[int, int]] = {}
    for key in in_order(scope, reporter):
        if key not in sound:
            continue
        kind, name = key
        try:
            term = typer.value(lines[key].value) if kind == "definition" else _state_term(lines[key], typer, reporter)
            check_size(term, name, lines[key].target.span, sizes, reporter)
        except Abandon:
            continue
        found[key] = term
        if kind == "definition":
            typer.values[name] = term
    return found


def _state_term(equation: syntax.Equation, typer: Typer, reporter: Reporter) -> Term:
    """The term of a state's equation, of the declared shape."""
    name = equation.target.name
    symbol = typer.scope.symbols[name]
    term = typer.term(equation.value)
    if term.shape == UNSIZED and symbol.shape[0] == symbol.shape[1]:
        term = give_size(term, symbol.shape[0])
    if term.shape == UNSIZED:
        typer.unsized(next(x.span for x in walk(equation.value) if isinstance(x, syntax.Identity)))
    if term.shape != symbol.shape and len(symbol.axes) <= 2:
        label = Label(symbol.span, f"it is declared {describe(symbol.shape)} here")
        advice = None
        if (term.shape[1], term.shape[0]) == symbol.shape:
            advice = f"transpose the right-hand side, or declare `state {name} : {describe(term.shape)}`"
        found, declared = describe(term.shape), describe(symbol.shape)
        span = equation.value.span
        raise reporter.abandon("E309", span, secondary=label, help=advice, name=name, found=found, declared=declared)
    return term


def _report_states(spec: syntax.Spec, scope: Scope, reporter: Reporter) -> None:
    """There are an input and a state, each state has an equation, and square ones are pointed out."""
    states = list(scope.named("state"))
    if not any(scope.named("input")):
        advice = "declare one, as in `input v : [V]`: it tells how many tokens there are; a param is the same at every token"
        reporter.report("E409", spec.name.span, help=advice)
    if not states:
        reporter.report("E406", spec.name.span, help="declare one, as in `state S : [K, V]`, and give it an equation `S[t] = ...`")
    for state in states:
        if len(state.axes) == 2 and state.axes[0] == state.axes[1]:
            reporter.report("W501", state.span, help=f"give its axes two names, as in `state {state.name} : [K, V]`", name=state.name)
        if state.name not in scope.states:
            nodes = (x for e in equations(scope).values() for x in walk(e.value))
            reads = [x for x in nodes if isinstance(x, syntax.StateRef) and x.name == state.name]
            label = Label(reads[0].span, "it is read here") if reads else None
            advice = f"add a line `{state.name}[t] = ... {state.name}[t-1] ...`"
            reporter.report("E402", state.span, secondary=label, help=advice, name=state.name)


def _report_inputs_that_come_and_go(recurrence: Recurrence, spec: syntax.Spec, reporter: Reporter) -> None:
    """One input is there whatever the options are: it tells how many tokens there are."""
    inputs = [a for a in recurrence.declared if a.role == "input"]
    if inputs and all(a.needed_if for a in inputs):
        names = ", ".join(f"`{a.name}`" for a in inputs)
        reporter.report(
            "E410", spec.name.span, help="read one of them whatever the options are, or write a spec for each case", names=names
        )


def _report_output_shapes(returned: tuple[str, ...], scope: Scope, terms: dict[Key, Term], reporter: Reporter) -> None:
    for name in returned:
        term = terms.get(("definition", name))
        if term is None or term.shape[1] == "1":
            continue
        equation = scope.definitions[name]
        advice = "read the state with a vector, as in `S[t]^T @ q`"
        if term.shape[0] == "1":
            advice = f"write `{name} = {transposed(equation.value, reporter.source)}`"
        reporter.report("E311", equation.value.span, help=advice, name=name, shape=describe(term.shape))


def _directives(spec: syntax.Spec, reporter: Reporter) -> tuple[str, bool]:
    """The plan ("" if none is asked for) and whether log weights are stabilized."""
    first: dict[str, syntax.Directive] = {}
    for statement in spec.statements:
        if isinstance(statement, syntax.Directive):
            if statement.keyword in first:
                label = Label(first[statement.keyword].span, "the first one is here")
                reporter.report("E104", statement.span, secondary=label, help="keep one of them", keyword=statement.keyword)
            first.setdefault(statement.keyword, statement)
    return first["plan"].value if "plan" in first else "", "stabilize" in first


def _recurrence(
    spec: syntax.Spec,
    unrolled: Unrolled,
    scope: Scope,
    terms: dict[Key, Term],
    returned: tuple[str, ...],
    defaults: tuple[OptionInfo, ...],
    plan: tuple[str, bool],
) -> Recurrence:
    definitions = tuple(Definition(n, term, scope.symbols[n].span) for (kind, n), term in terms.items() if kind == "definition")
    states = tuple(_state(s, scope, terms) for s in scope.named("state"))
    roots = tuple(e for s in states for e in (*s.micro, s.equation)) + tuple(d.value for d in definitions if d.name in returned)
    reading = guards(roots)
    declared = arguments(spec, {**reading, **{n: joined(reading, values) for n, values in unrolled.packed.items()}})
    return Recurrence(
        name=spec.name.name,
        doc=spec.doc,
        arguments=arguments(unrolled.spec, {v: a.needed_if for a in declared for v in unrolled.packed.get(a.name, (a.name,))}),
        packed=tuple(PackedInfo(a, unrolled.packed[a.name]) for a in declared if a.name in unrolled.packed),
        options=defaults,
        consts=tuple((c.name, c.value) for c in scope.named("const")),
        states=states,
        definitions=definitions,
        outputs=returned,
        plan=plan[0],
        stabilize=plan[1],
        source=spec.source,
    )


def _state(symbol: Symbol, scope: Scope, terms: dict[Key, Term]) -> StateInfo:
    """A state with the terms of its micro-steps in order, the last apart."""
    steps = range(len(scope.micro.get(symbol.name, {})))
    micro = tuple(terms[micro_key(symbol.name, i)] for i in steps)
    return StateInfo(symbol.name, symbol.axes, terms["state", symbol.name], symbol.span, micro)
