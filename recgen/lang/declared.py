"""Check: declarations -> the arguments, options and consts of the recurrence; domains as intervals."""

from __future__ import annotations

from recgen.lang import syntax
from recgen.lang.diagnostics import Abandon, Reporter
from recgen.lang.names import resolve
from recgen.lang.recurrence import INFINITY, ArgumentInfo, Interval, OptionInfo
from recgen.lang.scope import Scope
from recgen.lang.traverse import walk
from recgen.lang.typer import Typer
from recgen.lang.usage import Guard

_INTERVALS = {
    "log_decay": Interval(-INFINITY, 0.0),
    "decay": Interval(0.0, 1.0),
    "positive": Interval(0.0, INFINITY),
    "negative": Interval(-INFINITY, 0.0),
    "nonnegative": Interval(0.0, INFINITY),
}


def domain_interval(domain: syntax.DomainSyntax | None) -> Interval:
    """The bounds of a declared domain; open ends count as closed. Empty domains come out with low > high."""
    if domain is None:
        return Interval()
    if domain.name == "in":
        found = Interval(*domain.bounds)
    elif domain.name == "floor":
        found = Interval(domain.bounds[0], INFINITY)
    else:
        found = _INTERVALS[domain.name]
    return found if domain.floor is None else Interval(max(found.low, domain.floor), found.high)


def arguments(spec: syntax.Spec, reading: dict[str, tuple[Guard, ...]]) -> tuple[ArgumentInfo, ...]:
    """The inputs and params in order; `reading` says under which options each is read."""
    found = []
    for decl in spec.statements:
        if isinstance(decl, syntax.ArgumentDecl):
            domain = decl.domain.name if decl.domain else ""
            axes = tuple(a.name for a in decl.axes)
            needed_if = reading.get(decl.name.name, ())
            interval = domain_interval(decl.domain)
            found.append(ArgumentInfo(decl.name.name, decl.role, axes, decl.grouped, domain, interval, needed_if, decl.name.span))
    return tuple(found)


def report_empty_domains(spec: syntax.Spec, reporter: Reporter) -> None:
    """No value lies in an empty domain, so it is a mistake."""
    for decl in spec.statements:
        if isinstance(decl, syntax.ArgumentDecl) and decl.domain is not None:
            bounds = domain_interval(decl.domain)
            if bounds.low > bounds.high:
                advice = f"the lower bound is {bounds.low:g}, the upper bound {bounds.high:g}"
                if decl.domain.name == "in" and decl.domain.floor is None:
                    advice = f"write `in({bounds.high:g}, {bounds.low:g})`"
                reporter.report("E214", decl.domain.span, help=advice, name=decl.name.name)


def report_grouped(spec: syntax.Spec, reporter: Reporter) -> None:
    """Heads are counted by the inputs: with key heads alone nothing tells how many value heads there are."""
    inputs = [d for d in spec.statements if isinstance(d, syntax.ArgumentDecl) and d.role == "input"]
    if inputs and all(d.grouped for d in inputs):
        help = f"remove `grouped` from one of them, as in `{inputs[-1].name.name}`"
        reporter.report("E230", inputs[-1].span, help=help)


def options(spec: syntax.Spec, scope: Scope, typer: Typer, reporter: Reporter) -> tuple[OptionInfo, ...]:
    """The options with their defaults: booleans, or scalar terms over numbers, axis sizes and consts."""
    found = []
    for decl in spec.statements:
        if isinstance(decl, syntax.OptionDecl):
            try:
                found.append(_option(decl, scope, typer, reporter))
            except Abandon:
                continue
    return tuple(found)


def _option(decl: syntax.OptionDecl, scope: Scope, typer: Typer, reporter: Reporter) -> OptionInfo:
    if isinstance(decl.default, bool):
        return OptionInfo(decl.name.name, decl.default, decl.name.span)
    for node in walk(decl.default):
        foreign = isinstance(node, syntax.Name | syntax.StateRef) and scope.role(node.name) not in ("axis", "const", None)
        if foreign or isinstance(node, syntax.Conditional):
            raise reporter.abandon("E217", node.span, help="write a number, or an expression such as `K^-0.5`")
    if not resolve(decl.default, scope, reporter):
        raise Abandon
    # Numbers and sizes only make scalars; an `I` among them has no size, which is an error of its own.
    return OptionInfo(decl.name.name, typer.value(decl.default), decl.name.span)
