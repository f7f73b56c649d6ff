"""The stages parse and check: what the spec says, typed."""

from __future__ import annotations

from recgen.explaining.document import Block, Equations, Items, Paragraph, Stage, Table, Verbatim
from recgen.explaining.styles import LATEX, Formula
from recgen.explaining.terms import TermPrinter
from recgen.lang.domains import interval
from recgen.lang.formatter import format_spec
from recgen.lang.recurrence import ArgumentInfo, Interval, OptionInfo, Recurrence
from recgen.lang.terms import reads_state


def explain_parse(recurrence: Recurrence) -> Stage:
    """The canonical text, and what is in it."""
    text = format_spec(recurrence.source).rstrip("\n")
    inputs = sum(a.role == "input" for a in recurrence.declared)
    counts = {
        "inputs": inputs,
        "params": len(recurrence.declared) - inputs,
        "options": len(recurrence.options),
        "states": len(recurrence.states),
        "definitions": len(recurrence.definitions),
        "outputs": len(recurrence.outputs),
    }
    said = ", ".join(f"{n} {name if n != 1 else name[:-1]}" for name, n in counts.items() if n)
    blocks = (Paragraph(f"{recurrence.source.name}: recurrence `{recurrence.name}` with {said}."), Verbatim(text))
    return Stage("parse", "the spec in canonical form", blocks, {"name": recurrence.name, "text": text, "counts": counts})


def explain_check(recurrence: Recurrence) -> Stage:
    """Arguments with layouts and domains, options, definitions with inferred intervals, outputs."""
    printer = TermPrinter(recurrence)
    header = ("argument", "role", "layout", "domain", "values", "needed")
    rows = tuple((a.name, a.role, _layout(a), a.domain or "any", _range(a.interval), _needed(a)) for a in recurrence.declared)
    options = tuple(f"{o.name} = {_default(o, printer)}" for o in recurrence.options)
    free = [d for d in recurrence.definitions if not reads_state(d.value)]
    inferred = {d.name: interval(d.value, recurrence.arguments) for d in free}
    equations = tuple((_named(d.name, printer.formula(d.value, whole=True)), _known(inferred[d.name])) for d in free)
    outputs = {name: ["B", "T", "HV", *(a for a in recurrence.definition(name).shape if a != "1")] for name in recurrence.outputs}
    states = {s.name: ["N", "HV", *s.axes] for s in recurrence.states}
    layouts = [
        f"{kind} {name}: [{', '.join(axes)}]" for kind, all_ in (("output", outputs), ("state", states)) for name, axes in all_.items()
    ]
    listed = [Items(tuple(f"option {o}" for o in options))] * bool(options)
    body: tuple[Block, ...] = (Table(header, rows), *listed, *[Equations(equations)] * bool(equations), Items(tuple(layouts)))
    data = {
        "arguments": [dict(zip(header, row, strict=True)) for row in rows],
        "options": {o.name: o.default if isinstance(o.default, bool) else printer.text(o.default) for o in recurrence.options},
        "definitions": {d.name: printer.formula(d.value, whole=True).text for d in free},
        "intervals": {name: _range(i) for name, i in inferred.items()},
        "outputs": outputs,
        "states": states,
    }
    return Stage("check", "shapes and domains", body, data)


def _named(name: str, value: Formula) -> Formula:
    return Formula(f"{name} = {value.text}", f"{LATEX.symbol(name)} = {value.latex}")


def _default(option: OptionInfo, printer: TermPrinter) -> str:
    return str(option.default).lower() if isinstance(option.default, bool) else printer.text(option.default)


def _known(bounds: Interval) -> str:
    return "" if bounds == Interval() else f"in {_range(bounds)}"


def _layout(a: ArgumentInfo) -> str:
    lead = ("B", "T", "H" if a.grouped else "HV") if a.role == "input" else ("HV",)
    return f"[{', '.join((*lead, *a.axes))}]"


def _range(bounds: Interval) -> str:
    return f"[{bounds.low:g}, {bounds.high:g}]"


def _needed(a: ArgumentInfo) -> str:
    return " or ".join(f"{option}={value}" for option, value in a.needed_if) or "always"
