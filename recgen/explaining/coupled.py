"""The stages analyze and plan of matrix states that are compiled together."""

from __future__ import annotations

from dataclasses import asdict

from recgen.analysis.coupled_form import CoupledForm, CoupledStream
from recgen.codegen.emit import GeneratedModule
from recgen.derive.chunk_ir import ChunkForm
from recgen.derive.coupled_operands import CoupledOperands
from recgen.explaining.analysis import definitions, equal, numbered, pair
from recgen.explaining.cost import backward_flops, forward_flops, recomputed
from recgen.explaining.document import Block, Equations, Items, Paragraph, Stage, Table
from recgen.explaining.plan import CHUNKS, COST_CHUNK, COST_SIZE, PHASED, chunk_sizes, costs_data, forms, refusals, tile_table
from recgen.explaining.styles import LATEX, TEXT, Formula, Style, formula
from recgen.explaining.terms import TermPrinter
from recgen.lang.terms import Constant, Term
from recgen.plan import MOST_TOKENS, CoupledPlan


def explain_coupled_analyze(form: CoupledForm, operands: CoupledOperands) -> Stage:
    """Class, equations of all states, operands, notes."""
    printer = TermPrinter(form.recurrence, len(form.reads))
    lines = _lines(form)
    where = definitions(form, operands, printer)
    named = (Paragraph("where"), Equations(where)) if where else ()
    outputs = tuple(equal(o.name, printer.formula(o.value)) for o in form.outputs)
    blocks: tuple[Block, ...] = (
        Paragraph(f"Class: {describe(form)}."),
        Equations(tuple((f, "") for f in lines)),
        Paragraph("With, at every token:"),
        Equations(tuple(_bindings(form, printer))),
        *named,
        Equations(tuple((f, "returned") for f in outputs)),
        Paragraph("Recognised:"),
        Items(form.notes),
    )
    data = {
        "class": describe(form),
        "kind": form.token.kind,
        "states": list(form.names),
        "decays": {name: d.kind for name, d in zip(form.names, form.decays, strict=True)},
        "key_axis": form.key_axis,
        "value_axis": form.value_axis,
        "declared_value_first": form.transposed,
        "coupled_form": [pair(f) for f in lines],
        "operands": {name: pair(printer.formula(term)) for name, term in operands.terms},
        "outputs": {o.name: pair(printer.formula(o.value)) for o in form.outputs},
        "recognised": list(form.notes),
    }
    return Stage("analyze", "structure", blocks, data)


def describe(form: CoupledForm) -> str:
    """The class in one sentence."""
    fed = dict.fromkeys((f.source, f.target) for f in form.feeds)
    feeds = ", ".join(f"{form.names[source]} feeds {form.names[target]}" for source, target in fed) or "none feeds another"
    corrections = sum(bool(s.corrections) for s in form.streams)
    low_rank = f" plus rank {'one' if corrections == 1 else corrections}" if corrections else ""
    writes = f"{len(form.streams)} rank-one write{'s' * (len(form.streams) != 1)} a token"
    return (
        f"coupled: matrix states {', '.join(form.names)} over key axis {form.key_axis} and value axis {form.value_axis} ({feeds}), "
        f"a transition by numbers{low_rank}, {writes}; chunkwise form"
    )


def _lines(form: CoupledForm) -> tuple[Formula, ...]:
    """The equations in letters."""
    found = [formula(lambda s, a=a: _state_line(form, a, s)) for a in range(len(form.states))]  # type: ignore[misc]
    found += [formula(lambda s, i=i, x=x: _write_line(form, i, x, s)) for i, x in enumerate(form.streams)]  # type: ignore[misc]
    for i, read in enumerate(form.reads):
        found.append(
            formula(
                lambda s, i=i, read=read: (  # type: ignore[misc]
                    f"{numbered('r', i, form.reads, s)} = "
                    f"{s.transposed(_state(read.state, read.lag, s))}{s.times}{numbered('q', i, form.reads, s)}"
                )
            )
        )
    return tuple(found)


def _state(name: str, lag: int, s: Style) -> str:
    return s.symbol(name, sub="t-1" if lag else "t")


def _state_line(form: CoupledForm, a: int, s: Style) -> str:
    name, decay = form.names[a], form.decays[a]
    log, multiplier = (s.symbol(letter, sub=str(a + 1)) for letter in "gα")
    factor = (s.exp(log) if decay.signed is None else multiplier) + s.times
    parts = [] if decay.kind == "nothing" else [factor * (decay.kind == "scalar") + _state(name, 1, s)]
    for i, f in enumerate(form.feeds):
        if f.target == a:
            weight = "" if f.weight == Constant(1.0) else numbered("f", i, form.feeds, s) + s.times
            parts.append(weight + _state(form.names[f.source], f.lag, s))
    for i, x in enumerate(form.streams):
        if x.into[a] is not None:
            share = "" if x.into[a] == Constant(1.0) else s.symbol("z", sub=_share(form, i, a)) + s.times
            write = f"{numbered('w', i, form.streams, s)}{s.times}{s.transposed(numbered('E', i, form.streams, s))}"
            parts.append(share + write)
    return f"{_state(name, 0, s)} = {' + '.join(parts)}"


def _share(form: CoupledForm, stream: int, state: int) -> str:
    return f"{state + 1}" if len(form.streams) == 1 else f"{state + 1},{stream + 1}"


def _write_line(form: CoupledForm, i: int, stream: CoupledStream, s: Style) -> str:
    parts = [numbered("X", i, form.streams, s)] if stream.value is not None else []
    for j, c in enumerate(stream.corrections):
        parts.append(f"{s.transposed(_state(form.names[c.state], c.lag, s))}{s.times}{s.symbol('a', sub=_direction(form, i, j))}")
    return f"{numbered('E', i, form.streams, s)} = {' + '.join(parts)}"


def _direction(form: CoupledForm, stream: int, correction: int) -> str:
    """The index of a correction's direction, none where there is one of them."""
    every = [(i, j) for i, x in enumerate(form.streams) for j in range(len(x.corrections))]
    return str(every.index((stream, correction)) + 1) if len(every) > 1 else ""


def _bindings(form: CoupledForm, printer: TermPrinter) -> list[tuple[Formula, str]]:
    """What the letters stand for."""
    found: list[tuple[Formula, str]] = []

    def add(letter: str, sub: str, term: Term | None, meaning: str) -> None:
        if term is not None and term != Constant(1.0):
            value = printer.formula(term)
            names = [style.symbol(letter, sub=sub) for style in (TEXT, LATEX)]
            found.append((Formula(f"{names[0]} = {value.text}", f"{names[1]} = {value.latex}"), meaning))

    def index(i: int, among: tuple[object, ...]) -> str:
        return str(i + 1) if len(among) > 1 else ""

    for a, (name, d) in enumerate(zip(form.names, form.decays, strict=True)):
        if d.signed is not None:
            add("α", str(a + 1), d.signed, f"what multiplies {name}; of either sign")
        else:
            add("g", str(a + 1), d.log, f"log decay of {name}" + ", constant in time" * d.constant)
    for i, f in enumerate(form.feeds):
        add("f", index(i, form.feeds), f.weight, f"what {form.names[f.target]} takes of {form.names[f.source]}")
    for i, x in enumerate(form.streams):
        add("w", index(i, form.streams), x.write, "write direction")
        add("X", index(i, form.streams), x.value, "value written")
        for j, c in enumerate(x.corrections):
            add("a", _direction(form, i, j), c.correct, f"correction by {form.names[c.state]}")
        for a, share in enumerate(x.into):
            add("z", _share(form, i, a), share, f"what {form.names[a]} takes of it")
    for i, r in enumerate(form.reads):
        add("q", index(i, form.reads), r.query, f"query of {r.state}" + ", before the token" * bool(r.lag))
    return found


def explain_coupled_plan(form: CoupledForm, chunk: ChunkForm, plan: CoupledPlan, module: GeneratedModule) -> Stage:
    """Forms by device, memory, costs."""
    offered = forms(module)
    again = tuple(dict.fromkeys(s.symbol for s in recomputed(chunk)))
    entries = f"{len(form.states)} {form.key_axis} {form.value_axis}"
    saved = f"the states before each chunk, 4 ({entries}) bytes in float32, when a gradient is wanted"
    r = plan.recurrent
    facts = (
        f"{chunk_sizes()}{f'; {plan.tokens} at most, since an inverse of more loses digits' * (plan.tokens < MOST_TOKENS)}",
        PHASED,
        f"saved for the backward: {saved}",
        f"computed again in the backward: {', '.join(again)}",
        f"recurrent kernels: about {r.forward} entries of the states a program forward, {r.backward} backward, {r.step} in a step",
    )
    costs = (("chunk, forward: FLOPs", forward_flops(chunk).per_token()), ("chunk, backward: FLOPs", backward_flops(chunk).per_token()))
    rows = tuple((name, p.text(form.key_axis, form.value_axis), f"{p.at(COST_CHUNK, COST_SIZE, COST_SIZE):,.0f}") for name, p in costs)
    sizes = f"{form.key_axis} = {form.value_axis} = {COST_SIZE}, C = {COST_CHUNK}"
    blocks = (
        Table(("form", "float32, bfloat16, float16 on a GPU", "elsewhere, and float64"), offered),
        Items((*facts, *refusals(plan.faults))),
        tile_table(plan.chunk),
        Paragraph(f"Per token and value head, FLOPs of products and solves; the last column for {sizes}:"),
        Table(("cost", "formula", "value"), rows),
    )
    data = {
        "forms": [{"form": n, "gpu": gpu, "elsewhere": other} for n, gpu, other in offered],
        "chunk_sizes": list(CHUNKS),
        "kernels": asdict(plan),
        "saved": saved,
        "recomputed": list(again),
        "costs": costs_data(form.key_axis, form.value_axis, costs),
        "costs_for": {form.key_axis: COST_SIZE, form.value_axis: COST_SIZE, "C": COST_CHUNK},
    }
    return Stage("plan", "where it runs and what it costs", blocks, data)
