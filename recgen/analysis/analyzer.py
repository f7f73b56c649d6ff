"""From the checked recurrence to its normal form, by structure alone."""

from __future__ import annotations

from functools import partial

from recgen.analysis.algebra import expand
from recgen.analysis.by_value import refuse_by_value
from recgen.analysis.columns import beside, column_write, matrix_and_columns
from recgen.analysis.decay import Multiplier, decay_of, decays_of
from recgen.analysis.links import key_side_is_right, link, refuse_matrices, turned_over
from recgen.analysis.normal_form import NO_DECAY, Decay, NormalForm, Output, ReadOut, Stabilizer, Stream
from recgen.analysis.products import Product
from recgen.analysis.readout import Reads
from recgen.analysis.refusal import Refusal
from recgen.analysis.stabilizer import unstabilized, weighted
from recgen.analysis.streams import Link, streams_of
from recgen.lang.recurrence import Recurrence, StateInfo
from recgen.lang.source import Span


def analyze(recurrence: Recurrence) -> NormalForm:
    """The normal form; raises `Refusal` with the reason in the user's terms and the span of the term that breaks it."""
    plain, stabilizer = unstabilized(recurrence)
    state, columns = matrix_and_columns(plain)
    steps = tuple(tuple(p for p in expand(equation) if p.coefficient != 0.0) for equation in state.steps)
    outputs = [recurrence.definition(name) for name in recurrence.outputs]
    transposed = key_side_is_right(tuple(p for products in steps for p in products), outputs, state)
    if transposed:
        steps = tuple(tuple(turned_over(p) for p in products) for products in steps)
    axes = state.axes[::-1] if transposed else state.axes
    decay, value_decay, streams, notes, first = _micro_steps(steps, recurrence, state, stabilizer)
    if len(steps) > 1 and len(recurrence.states) > 1:
        raise Refusal(f"`{state.name}` has micro-steps, and other states beside it; one of the two is compiled", state.span)
    if columns:
        multiplier = _multiplier(steps[0], recurrence, state)
        streams = beside(streams, multiplier, columns, state, axes[0], partial(_follow, recurrence=recurrence, stabilizer=stabilizer))
        notes += [f"`{c.name}` follows `{state.name}`: one more column of it" for c in columns]
    if stabilizer is not None:
        _refuse_unstable(stabilizer, decay, streams)
        notes.append(f"`{stabilizer.state.name}` is the running maximum of log weights: the state is carried divided by its exponential")
    reads = Reads(state, transposed, first, tuple(c.name for c in columns), stabilizer.state.name if stabilizer else "")
    values = tuple(Output(name, reads.extract(term)) for name, term in zip(recurrence.outputs, outputs, strict=True))
    form = NormalForm(
        recurrence,
        recurrence.state(state.name),
        tuple(recurrence.state(c.name) for c in columns),
        stabilizer,
        axes[0],
        axes[1],
        transposed,
        decay,
        streams,
        tuple(reads.found),
        values,
        tuple(_describe(decay, value_decay, transposed) + notes + _across(reads.found, axes)),
        value_decay,
    )
    refuse_matrices(form.terms)
    refuse_by_value(form)
    return form


def _micro_steps(
    steps: tuple[tuple[Product, ...], ...], recurrence: Recurrence, state: StateInfo, stabilizer: Stabilizer | None
) -> tuple[Decay, Decay, tuple[Stream, ...], list[str], int]:
    """Decays, streams, notes, and the first step that changes the state, from the products of every micro-step of a token."""
    decay, value_decay, decaying = NO_DECAY, NO_DECAY, -1
    streams: tuple[Stream, ...] = ()
    notes: list[str] = []
    for slot, products in enumerate(steps):
        links, constants = _split(products, slot)
        own, of_values, multiplier = decays_of([x.multiplier for x in links if x.write is None], recurrence, state)
        if not multiplier.trivial and (streams or decaying >= 0):
            text = _step_text(state, slot)
            before = f"{_step_text(state, decaying)} decays already" if decaying >= 0 else "an earlier one writes"
            raise Refusal(
                f"the micro-step {text} decays the state, but {before}; one decay before all writes is compiled", _decay_span(links)
            )
        if not multiplier.trivial:
            decay, value_decay, decaying = own, of_values, slot
        after = 0 <= decaying < slot
        found, told = streams_of([x for x in links if x.write is not None], weighted(constants, stabilizer, state), multiplier, slot, after)
        streams, notes = (*streams, *found), notes + told
    if len({s.slot for s in streams}) > 1:
        notes.append("a correction finds what earlier micro-steps of its token wrote: their scores include the token")
    if not streams:
        raise Refusal("nothing is ever written into the state", None)
    first = min([s.slot for s in streams] + [decaying] * (decaying >= 0), default=0)
    return decay, value_decay, streams, list(dict.fromkeys(notes)), first


def _step_text(state: StateInfo, slot: int) -> str:
    """A micro-step in the user's terms."""
    return f"`{state.name}[t, {slot}]`"


def _decay_span(links: list[Link]) -> Span | None:
    """Where a micro-step scales the state."""
    return next(x.product.span for x in links if x.write is None and not x.multiplier.trivial)


def _multiplier(products: tuple[Product, ...], recurrence: Recurrence, state: StateInfo) -> Multiplier:
    """What the state is multiplied with at a token."""
    links, _ = _split(products, 0)
    return decays_of([x.multiplier for x in links if x.write is None], recurrence, state)[2]


def _follow(state: StateInfo, recurrence: Recurrence, stabilizer: Stabilizer | None) -> tuple[Multiplier, tuple[Stream, ...]]:
    """The decay and the streams of a vector state."""
    links, constants = _split(tuple(p for p in expand(state.equation) if p.coefficient != 0.0), 0)
    _, multiplier = decay_of([x.multiplier for x in links if x.write is None], recurrence, state)
    corrections = [x for x in links if x.write is not None]
    return multiplier, streams_of(corrections, weighted(constants, stabilizer, state), multiplier, 0, False, column_write(state))[0]


def _refuse_unstable(stabilizer: Stabilizer, decay: Decay, streams: tuple[Stream, ...]) -> None:
    span = stabilizer.state.span
    if decay.kind == "vector" or decay.signed is not None:
        raise Refusal("`stabilize log` takes one decay for the whole state, exp(log decay)", span)
    if any(s.correct is not None for s in streams):
        raise Refusal("`stabilize log` with a correction by what the state holds", span)


def _split(products: tuple[Product, ...], slot: int) -> tuple[list[Link], list[Product]]:
    """Products of a micro-step that carry the state on, and products that only write."""
    links, constants = [], []
    for p in products:
        if p.state is None:
            constants.append(p)
            continue
        _refuse_other_steps(p, slot)
        links.append(link(p))
    return links, constants


def _refuse_other_steps(product: Product, slot: int) -> None:
    """A micro-step carries on the one before it."""
    state = product.state
    assert state is not None
    if (state.lag, state.micro) != ((0, slot - 1) if slot else (1, None)):
        name, read = state.name, "t-1" if state.lag else f"t, {state.micro}"
        before = f"{name}[t, {slot - 1}]" if slot else f"{name}[t-1]"
        raise Refusal(f"the micro-step `{name}[t, {slot}]` reads `{name}[{read}]`, not `{before}` before it", state.span)


def _describe(decay: Decay, value_decay: Decay, transposed: bool) -> list[str]:
    text = {"none": "no decay", "scalar": "one decay for the whole state", "vector": "one decay per key channel"}[decay.kind]
    notes = [text + (", constant in time" if decay.constant and decay.kind != "none" else "")]
    if value_decay.kind != "none":
        both = [] if decay.kind == "none" else notes
        notes = [*both, "one decay per value channel" + ", constant in time" * value_decay.constant]
    return notes + (["the state is declared [value, key]: read from the other side"] if transposed else [])


def _across(reads: list[ReadOut], axes: tuple[str, ...]) -> list[str]:
    return [f"a read sums over the value axis {axes[1]} and runs over {axes[0]}: read across"] * any(r.across for r in reads)
