"""The stages analyze, derive and plan of a recurrence that is compiled token by token."""

from __future__ import annotations

from dataclasses import asdict

from recgen.analysis.token_form import TokenForm
from recgen.codegen.emit import GeneratedModule
from recgen.explaining.document import Block, Equations, Items, Paragraph, Stage, Table
from recgen.explaining.plan import forms
from recgen.explaining.styles import LATEX, Formula
from recgen.explaining.terms import TermPrinter
from recgen.lang.recurrence import Recurrence
from recgen.lang.terms import Apply, State, Term, reads_state, walk
from recgen.plan import TokenPlan

SEGMENT = 64
"""Tokens between two saved states."""


def explain_tokens(stage: str, form: TokenForm, plan: TokenPlan, module: GeneratedModule) -> Stage:
    """One of the stages "analyze", "derive" and "plan"."""
    match stage:
        case "analyze":
            return _analyze(form)
        case "derive":
            return _derive(form)
    return _plan(form, plan, module)


def describe(form: TokenForm) -> str:
    """The class in one sentence."""
    kinds = {0: "number", 1: "vector", 2: "matrix"}
    states = ", ".join(f"{kinds[len(s.axes)]} {s.name}{f' [{_listed(s.axes)}]' if s.axes else ''}" for s in form.states)
    return f"{form.kind}: one token after another, {len(form.states)} state{'s' * (len(form.states) != 1)} ({states}); no chunkwise form"


def _listed(axes: tuple[str, ...]) -> str:
    return ", ".join(axes)


def _analyze(form: TokenForm) -> Stage:
    """Class, equations, and why there is no chunkwise form."""
    recurrence, printer = form.recurrence, TermPrinter(form.recurrence)
    defined = [d for d in recurrence.definitions if reads_state(d.value) and d.name not in recurrence.outputs]
    printer.names |= {d.value: d.name for d in defined if isinstance(d.value, Apply)}
    rows = [(equal(plain(d.name), printer.formula(d.value, whole=True)), "") for d in defined]
    for s in recurrence.states:
        rows += [(equal(state_after(s.name, i), printer.formula(m, whole=True)), "") for i, m in enumerate(s.micro)]
        rows.append((equal(state_after(s.name), printer.formula(s.equation, whole=True)), "state"))
    rows += [(equal(plain(name), printer.formula(recurrence.definition(name), whole=True)), "returned") for name in recurrence.outputs]
    reasons = tuple(located(recurrence, r.text, r.span.line if r.span else 0) for r in form.reasons)
    fed = _feeds(form)
    split = f"programs share the work over {form.split}, over which nothing sums" if form.split else "every axis is summed over somewhere"
    blocks: tuple[Block, ...] = (
        Paragraph(f"Class: {describe(form)}."),
        Paragraph("At every token:"),
        Equations(tuple(rows)),
        Paragraph("No chunkwise form:"),
        Items(reasons or ("none is looked for: the spec says `plan recurrent`, though it has one",)),
        Paragraph("Besides:"),
        Items((*fed, split)),
    )
    data = {
        "class": describe(form),
        "kind": form.kind,
        "equations": {f"{s.name}[t]": printer.formula(s.equation, whole=True).text for s in recurrence.states},
        "outputs": {name: printer.formula(recurrence.definition(name), whole=True).text for name in recurrence.outputs},
        "reasons": [r.text for r in form.reasons],
        "split": form.split,
    }
    return Stage("analyze", "structure", blocks, data)


def located(recurrence: Recurrence, text: str, line: int) -> str:
    """A reason with the line of the spec that it is about."""
    return f"{text} (line {line}: {recurrence.source.line(line).split('#')[0].strip()})" if line else text


def _feeds(form: TokenForm) -> tuple[str, ...]:
    """Which states are read in another's equation."""
    found = []
    for s in form.states:
        others = dict.fromkeys(x.name for step in s.steps for x in walk(step) if isinstance(x, State) and x.name != s.name)
        found += [f"{s.name} reads {', '.join(others)}"] * bool(others)
    return tuple(found)


def _derive(form: TokenForm) -> Stage:
    """What stands for a derivation: the adjoint of one token's program."""
    facts = (
        "the gradient of one token, by the chain rule over its operations in reverse",
        f"from the last token to the first: the states before the tokens of a segment of {SEGMENT} are computed again from its first",
        "compared with automatic differentiation of the recurrence in float64 when a module is built",
    )
    blocks = (Paragraph("Nothing but the equations themselves; they are differentiated as they stand."), Items(facts))
    return Stage("derive", "the adjoint", blocks, {"adjoint": list(facts), "operations": _operations(form)})


def _operations(form: TokenForm) -> int:
    """Operations of one token as the terms have them, each counted once."""
    terms: set[Term] = {x for term in form.terms for x in walk(term) if isinstance(x, Apply)}
    return len(terms)


def _plan(form: TokenForm, plan: TokenPlan, module: GeneratedModule) -> Stage:
    """Forms by device, memory."""
    rows = tuple(row for row in forms(module) if row[0] != "chunk")
    entries = " + ".join(" ".join(s.axes) or "1" for s in form.states)
    saved = f"the states before every {SEGMENT}th token, 4 ({entries}) bytes in float32, when a gradient is wanted; nothing else"
    r = plan.recurrent
    facts = (
        f"saved for the backward: {saved}",
        "computed again in the backward: every token, once for the states of its segment and once beside its adjoint",
        f"kernels: about {r.forward} entries of a state a program forward, {r.backward} backward, {r.step} in a step",
        "one token waits for the one before: the time of a sequence grows with its tokens, whatever the GPU",
    )
    blocks = (Table(("form", "on a GPU", "elsewhere"), rows), Items(facts))
    data = {
        "forms": [{"form": n, "gpu": gpu, "elsewhere": other} for n, gpu, other in rows],
        "kernels": asdict(plan),
        "saved": saved,
    }
    return Stage("plan", "where it runs and what it costs", blocks, data)


def plain(name: str) -> Formula:
    """A name."""
    return Formula(name, LATEX.symbol(name))


def state_after(name: str, micro: int | None = None) -> Formula:
    """A state after the token, or after one of its micro-steps."""
    at = "t" if micro is None else f"t, {micro}"
    return Formula(f"{name}[{at}]", LATEX.symbol(name, sub=at))


def equal(name: Formula, value: Formula) -> Formula:
    """An equation."""
    return Formula(f"{name.text} = {value.text}", f"{name.latex} = {value.latex}")
