"""The stages analyze, derive and plan of a recurrence of the scan class."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict

from recgen.analysis.scan_form import ScanForm, ScanState
from recgen.codegen.emit import GeneratedModule
from recgen.derive.program import Program, Value
from recgen.derive.proof import Proof
from recgen.derive.scan import TRANSCENDENTAL, argument_values, scan_programs, state_shape, straight
from recgen.explaining.document import Block, Equations, Items, Paragraph, Stage, Table
from recgen.explaining.plan import forms
from recgen.explaining.styles import Formula
from recgen.explaining.terms import TermPrinter
from recgen.explaining.tokens import equal, located, plain, state_after
from recgen.lang.terms import Apply, Constant, State, Term
from recgen.plan import ScanPlan

SEGMENT = 64
"""Tokens between two states that the kernels keep."""

_FREE = ("spread", "tokens", "heads", "copy", "zeros", "before", "later", "at_first", "sum_heads")
"""Operations that move numbers and compute none."""


def explain_scan(stage: str, form: ScanForm, proof: Proof, plan: ScanPlan, module: GeneratedModule) -> Stage:
    """One of the stages "analyze", "derive" and "plan"."""
    match stage:
        case "analyze":
            return _analyze(form)
        case "derive":
            return _derive(form, proof)
    return _plan(form, plan, module)


def describe(form: ScanForm) -> str:
    """The class in one sentence."""
    kinds = {0: "number", 1: "vector", 2: "matrix"}
    states = ", ".join(f"{kinds[len(s.info.axes)]} {s.info.name} [{', '.join(s.info.axes)}]" for s in form.states)
    return f"scan: every entry of the state decays and is written on its own ({states})"


def _analyze(form: ScanForm) -> Stage:
    """Class, multipliers and writes, and why there is no form by products of matrices."""
    recurrence, printer = form.recurrence, TermPrinter(form.recurrence)
    lines = tuple(scan_line(s, printer) for s in form.states)
    rows = [(line, "state") for line in lines]
    rows += [(equal(plain(name), printer.formula(recurrence.definition(name), whole=True)), "returned") for name in recurrence.outputs]
    reasons = tuple(located(recurrence, r.text, r.span.line if r.span else 0) for r in form.token.reasons)
    blocks: tuple[Block, ...] = (
        Paragraph(f"Class: {describe(form)}."),
        Paragraph("At every token:"),
        Equations(tuple(rows)),
        Paragraph("No form by products of matrices:"),
        Items(reasons or ("none is looked for: the spec says `plan scan`, though it has one",)),
        Items((*form.notes, f"axes in memory: {', '.join(form.axes)}")),
    )
    data = {
        "class": describe(form),
        "kind": form.token.kind,
        "scan_form": [asdict(line) for line in lines],
        "decays": {s.info.name: printer.formula(s.decay, whole=True).text for s in form.states},
        "writes": {s.info.name: printer.formula(s.write, whole=True).text for s in form.states if s.write is not None},
        "outputs": {name: printer.formula(recurrence.definition(name), whole=True).text for name in recurrence.outputs},
        "reasons": [r.text for r in form.token.reasons],
        "axes": list(form.axes),
    }
    return Stage("analyze", "structure", blocks, data)


def scan_line(state: ScanState, printer: TermPrinter) -> Formula:
    """One state's multiplier and write as one equation."""
    before: Term = State(state.info.name, 1, state_shape(state.info.axes))
    product = before if state.decay == Constant(1.0) else Apply("mul", (state.decay, before), before.shape)
    first = printer.formula(product)
    if state.write is None:
        return equal(state_after(state.info.name), first)
    write = printer.formula(state.write, whole=True)
    return equal(state_after(state.info.name), Formula(f"{first.text} + {write.text}", f"{first.latex} + {write.latex}"))


def _derive(form: ScanForm, proof: Proof) -> Stage:
    """The scan, its adjoint, and the proof that multiplier and write are the state's equation."""
    steps = (
        "forward: multipliers α and writes X of a chunk's tokens, then S_t = α_t ∘ S_{t-1} + X_t from its first token to its last",
        "backward, from the last token to the first: G_t = dS_t + α_{t+1} ∘ G_{t+1}, dS_t what the outputs say of S_t",
        "then dX_t = G_t and dα_t = G_t ∘ S_{t-1}, and through the spec's own expressions to the arguments",
        "nothing is divided by α and no decays are multiplied up: a multiplier of 0 is an ordinary token",
    )
    blocks = (Items(steps), Paragraph("Proved:"), Items((str(proof),)))
    return Stage("derive", "the scan and its adjoint", blocks, {"steps": list(steps), "proof": str(proof)})


def _plan(form: ScanForm, plan: ScanPlan, module: GeneratedModule) -> Stage:
    """Forms by device, memory, bytes and operations."""
    rows = forms(module)
    costs = _costs(form)
    entries = " + ".join(" ".join(s.info.axes) or "1" for s in form.states)
    tiles, cut = plan.tiles, plan.segments
    facts = (
        f"saved for the backward: the states before every {SEGMENT}th token, in PyTorch every 16th, 4 ({entries}) bytes each",
        "computed again in the backward: multipliers, writes and states",
        f"kernels: blocks of {form.token.split or 'nothing'}, tiles of at most {tiles.tokens} tokens, about {tiles.forward} entries"
        f" forward, {tiles.backward} backward, {tiles.stages - 1} tiles loaded ahead",
        f"sequences in {cut.least} segments or more, of {cut.chunks * SEGMENT} tokens at least, where programs are fewer than {cut.fill}"
        " for each multiprocessor and no state waits for another's",
        "in PyTorch: chunks of tokens, a call for each token over all channels",
        *(f"{name}: {text}" for name, text in costs),
    )
    blocks = (Table(("form", "on a GPU", "elsewhere"), rows), Items(facts))
    data = {
        "forms": [{"form": n, "gpu": gpu, "elsewhere": other} for n, gpu, other in rows],
        "kernels": asdict(plan),
        "saved": f"4 ({entries}) bytes every {SEGMENT} tokens",
        "costs": dict(costs),
    }
    return Stage("plan", "where it runs and what it costs", blocks, data)


def _costs(form: ScanForm) -> tuple[tuple[str, str], ...]:
    """What one token of one head reads, writes and computes, in the spec's axis names."""
    recurrence = form.recurrence
    read = Counter(_product(a.axes) for a in recurrence.arguments if a.role == "input")
    written = Counter(_product(tuple(x for x in recurrence.definition(o).shape if x != "1")) for o in recurrence.outputs)
    programs = scan_programs(form, argument_values(form), frozenset())
    forward, backward = _operations(programs.forward), _operations(programs.backward)
    return (
        ("numbers read and written for a token and head, forward", f"{_text(read)} and {_text(written)}"),
        ("the same, backward", f"{_text(read + written)} and {_text(read)}"),
        ("floating-point operations, forward", _text(forward[0])),
        ("of them exponentials and the like", _text(forward[1])),
        ("floating-point operations, backward", _text(backward[0])),
    )


def _operations(program: Program) -> tuple[Counter[str], Counter[str]]:
    """Operations by the entries that they work on, and how many of them are transcendental."""
    every: Counter[str] = Counter()
    hard: Counter[str] = Counter()
    for s in straight(program.statements):
        if s.op in _FREE:
            continue
        entries = _product(tuple(sorted({axis for v in (s.target, *(a for a in s.args if isinstance(a, Value))) for axis in v.axes})))
        every[entries] += 2 if s.op in ("dot", "scan", "scan_gradient") else 1
        hard[entries] += s.op in TRANSCENDENTAL
    return every, hard


def _product(axes: tuple[str, ...]) -> str:
    return " ".join(axes) or "1"


def _text(counts: Counter[str]) -> str:
    """A polynomial, the largest products first."""
    terms = sorted(((name, n) for name, n in counts.items() if n), key=lambda pair: (-len(pair[0].split()), pair[0] == "1", pair[0]))
    return " + ".join(str(n) if name == "1" else name if n == 1 else f"{n} {name}" for name, n in terms) or "none"
