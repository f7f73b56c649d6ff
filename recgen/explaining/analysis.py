"""The stage analyze: the class of the recurrence, its normal form in the spec's own expressions, and what was recognised on the way."""

from __future__ import annotations

from recgen.analysis.coupled_form import CoupledForm
from recgen.analysis.normal_form import NormalForm, ReadOut, Stream
from recgen.derive.operands import NamedOperands, OperandSet
from recgen.explaining.document import Block, Equations, Items, Paragraph, Stage
from recgen.explaining.styles import LATEX, TEXT, Formula, Style, formula
from recgen.explaining.terms import TermPrinter
from recgen.lang.terms import Term, walk


def explain_analyze(form: NormalForm, operands: OperandSet) -> Stage:
    """Class, normal form, operands, notes."""
    printer = TermPrinter(form.recurrence, len(form.reads))
    kind, normal = describe(form), _normal_form(form)
    bindings = _bindings(form, printer)
    where = definitions(form, operands, printer)
    named = (Paragraph("where"), Equations(where)) if where else ()
    outputs = tuple(equal(o.name, printer.formula(o.value)) for o in form.outputs)
    spared = not_needed(form, operands)
    blocks: tuple[Block, ...] = (
        Paragraph(f"Class: {kind}."),
        Equations(tuple((f, "") for f in normal)),
        Paragraph("With, at every token:"),
        Equations(tuple(bindings)),
        *named,
        Equations(tuple((f, "returned") for f in outputs)),
        Paragraph("Recognised:"),
        Items(form.notes),
        Paragraph("Not needed:"),
        Items(spared),
    )
    data = {
        "class": kind,
        "decay": {"kind": form.decay.kind, "constant": form.decay.constant, "signed": form.decay.signed is not None},
        "key_axis": form.key_axis,
        "value_axis": form.value_axis,
        "declared_value_first": form.transposed,
        "normal_form": [pair(f) for f in normal],
        "operands": {name: pair(printer.formula(term)) for name, term in operands.terms},
        **({"value_decay": {"constant": form.value_decay.constant}} if form.value_decay.kind != "none" else {}),
        "streams": [_stream_data(s, printer) for s in form.streams],
        "reads": [{"query": pair(printer.formula(r.query)), "lag": r.lag, "across": r.across} for r in form.reads],
        "outputs": {o.name: pair(printer.formula(o.value)) for o in form.outputs},
        "recognised": list(form.notes),
        "not_needed": list(spared),
    }
    return Stage("analyze", "structure", blocks, data)


def describe(form: NormalForm) -> str:
    """The class in one sentence."""
    decay = {"none": "without decay", "scalar": "one decay for the whole state", "vector": "one decay per key channel"}[form.decay.kind]
    if form.value_decay.kind != "none":
        decay = f"{'' if form.decay.kind == 'none' else f'{decay}, '}one decay per value channel"
    corrections = sum(s.correct is not None for s in form.streams)
    if not corrections:
        transition = "a diagonal transition" if form.decays else "a constant transition"
    else:
        low_rank = f"rank {'one' if corrections == 1 else corrections}"
        transition = f"a diagonal plus {low_rank} transition" if form.decays else f"a transition of the identity plus {low_rank}"
        decay += ", a strength for every value channel" * any(s.strong_by_channel for s in form.streams)
    writes = f"{len(form.streams)} rank-one write{'s' * (len(form.streams) != 1)} a token"
    return f"matrix state over key axis {form.key_axis} and value axis {form.value_axis}, {transition} ({decay}), {writes}; chunkwise form"


def not_needed(form: NormalForm, operands: OperandSet) -> tuple[str, ...]:
    """What the structure spares."""
    found = []
    if not form.feedback:
        found.append("a triangular solve: nothing that is written depends on what the state holds")
    elif not form.by_value and sum(s.correct is not None for s in form.streams) == 1:
        found.append("a solve that couples several writes of a token: one correction, one C × C inverse")
    if form.decay.kind == "none":
        found.append("Γ: " + ("no key decays" if form.value_decay.kind != "none" else "nothing decays") + ", a causal mask does")
    elif form.decay.kind == "scalar":
        found.append("scores of their own for every channel: one Γ [C, C] serves all")
    if form.decays and form.decay.signed is None and form.value_decay.signed is None:
        found.append("a sign beside the decay: it is known not to be negative")
    shared = [s.tag for s in operands.streams if s.correct and s.correct == s.write]
    if shared:
        found.append("an operand of its own for the correction: it looks where it writes")
    return tuple(found)


def _normal_form(form: NormalForm) -> tuple[Formula, ...]:
    lines = [formula(lambda s: _state_line(form, s))]
    for i, stream in enumerate(form.streams):
        lines.append(formula(lambda s, i=i, stream=stream: _write_line(form, i, stream, s)))  # type: ignore[misc]
    for i, read in enumerate(form.reads):
        lines.append(formula(lambda s, i=i, read=read: _read_line(form, i, read, s)))  # type: ignore[misc]
    return tuple(lines)


def _read_line(form: NormalForm, i: int, read: ReadOut, s: Style) -> str:
    state = s.symbol("S", sub="t-1" if read.lag else "t" if read.slot == len(form.state.micro) else f"t,{read.slot}")
    turned = state if read.across else s.transposed(state)
    return f"{numbered('r', i, form.reads, s)} = {turned}{s.times}{numbered('q', i, form.reads, s)}"


def numbered(letter: str, i: int, among: tuple[object, ...], s: Style) -> str:
    """A letter with its number, where there are several."""
    base, _, sup = letter.partition("^")
    return s.symbol(base, sup, str(i + 1) if len(among) > 1 else "")


def _decay(form: NormalForm, s: Style) -> str:
    if form.decay.kind == "none":
        return ""
    log = "g" if form.stabilizer is None else f"g + {_scale(form, 't-1', s)} - {_scale(form, 't', s)}"
    factor = s.exp(log) if form.decay.signed is None else s.symbol("α")
    return f"{s.diag(factor) if form.decay.kind == 'vector' else factor}{s.times}"


def _value_decay(form: NormalForm, s: Style) -> str:
    factor = s.exp("u") if form.value_decay.signed is None else s.symbol("γ")
    return "" if form.value_decay.kind == "none" else s.times + s.diag(factor)


def _scale(form: NormalForm, at: str, s: Style) -> str:
    """The running maximum at a token."""
    assert form.stabilizer is not None
    return s.symbol(form.stabilizer.state.name, sub=at)


def _state_line(form: NormalForm, s: Style) -> str:
    weight = "" if form.stabilizer is None else s.exp(f"l - {_scale(form, 't', s)}") + s.times
    writes = [
        f"{weight}{numbered('w', i, form.streams, s)}{s.times}{s.transposed(numbered('E', i, form.streams, s))}"
        for i in range(len(form.streams))
    ]
    return f"{s.symbol('S', sub='t')} = {' + '.join([_decay(form, s) + s.symbol('S', sub='t-1') + _value_decay(form, s), *writes])}"


def _write_line(form: NormalForm, i: int, stream: Stream, s: Style) -> str:
    parts = [numbered("X", i, form.streams, s)] if stream.value is not None else []
    if stream.correct is not None:
        decay, value_decay = (_decay(form, s), _value_decay(form, s)) if stream.decayed else ("", "")
        before = decay + s.symbol("S", sub="t-1") + value_decay
        turned = s.transposed(s.brackets(before) if decay or value_decay else before)
        if stream.slot > form.streams[0].slot:
            turned = s.transposed(s.symbol("S", sub=f"t,{stream.slot - 1}"))
        strength = (
            numbered("c", i, form.streams, s) + (s.hadamard if stream.strong_by_channel else s.times) if stream.strength is not None else ""
        )
        found = f"{turned}{s.times}{numbered('a', i, form.streams, s)}"
        parts.append(strength + (s.brackets(found) if stream.strong_by_channel else found))
    return f"{numbered('E', i, form.streams, s)} = {' + '.join(parts)}"


def _bindings(form: NormalForm, printer: TermPrinter) -> list[tuple[Formula, str]]:
    """What the letters stand for."""
    found: list[tuple[Formula, str]] = []

    def add(letter: str, i: int, among: tuple[object, ...], term: Term | None, meaning: str) -> None:
        if term is None:
            return
        value = printer.formula(term)
        names = [numbered(letter, i, among, style) for style in (TEXT, LATEX)]
        found.append((Formula(f"{names[0]} = {value.text}", f"{names[1]} = {value.latex}"), meaning))

    if form.decay.signed is not None:
        add("α", 0, (), form.decay.signed, "what multiplies the state; of either sign")
    elif form.decay.log is not None:
        add("g", 0, (), form.decay.log, "log decay" + (", constant in time" if form.decay.constant else ""))
    if form.value_decay.signed is not None:
        add("γ", 0, (), form.value_decay.signed, "what multiplies the value side; of either sign")
    else:
        add("u", 0, (), form.value_decay.log, "log decay of the value side" + ", constant in time" * form.value_decay.constant)
    if form.stabilizer is not None:
        add("l", 0, (), form.stabilizer.weight, "log weight of what is written")
    for i, s in enumerate(form.streams):
        add("w", i, form.streams, s.write, "write direction")
        add("X", i, form.streams, s.value, "value written")
        for column, number in zip(form.columns, s.columns, strict=False):
            add(f"x^{column.name}", i, form.streams, number, f"number written into {column.name}")
        add("c", i, form.streams, s.strength, "strength of the correction")
        add("a", i, form.streams, s.correct, "correction direction")
    for i, r in enumerate(form.reads):
        before, across = ", of the state before the write" * bool(r.lag), ", over the value axis" * r.across
        add("q", i, form.reads, r.query, f"query{before}{across}")
    return found


def definitions(form: NormalForm | CoupledForm, operands: NamedOperands, printer: TermPrinter) -> tuple[tuple[Formula, str], ...]:
    """The definitions that stand behind the names in operands and outputs."""
    roots = [term for _, term in operands.terms] + [o.value for o in form.outputs]
    used = {printer.names[x] for term in roots for x in walk(term) if x in printer.names}
    found = [d for d in form.recurrence.definitions if d.name in used]
    return tuple((equal(d.name, printer.formula(d.value, whole=True)), "") for d in found)


def _stream_data(s: Stream, printer: TermPrinter) -> dict[str, object]:
    terms = {"write": s.write, "value": s.value, "strength": s.strength, "correct": s.correct}
    return {name: None if t is None else pair(printer.formula(t)) for name, t in terms.items()} | {"reads_decayed_state": s.decayed}


def equal(name: str, value: Formula) -> Formula:
    """A name and what it is."""
    return Formula(f"{name} = {value.text}", f"{LATEX.symbol(name)} = {value.latex}")


def pair(f: Formula) -> dict[str, str]:
    """A formula as data."""
    return {"text": f.text, "latex": f.latex}
