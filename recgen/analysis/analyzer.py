"""From the checked recurrence to its normal form, by structure alone."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from recgen.analysis.algebra import Column, Dense, Diagonal, Factor, Product, Refusal, Row, StateFactor, expand, flip, times
from recgen.analysis.by_value import refuse_by_value
from recgen.analysis.columns import beside, column_write, matrix_and_columns
from recgen.analysis.decay import Multiplier, decay_of, decays_of
from recgen.analysis.normal_form import NO_DECAY, Decay, NormalForm, Output, ReadOut, Stabilizer, Stream
from recgen.analysis.readout import Reads
from recgen.analysis.stabilizer import unstabilized, weighted
from recgen.analysis.streams import Link, streams_of
from recgen.lang.recurrence import Recurrence, StateInfo
from recgen.lang.source import Span
from recgen.lang.terms import SCALAR, Apply, Argument, Term, walk


def analyze(recurrence: Recurrence) -> NormalForm:
    """The normal form; raises `Refusal` with the reason in the user's terms and the span of the term that breaks it."""
    plain, stabilizer = unstabilized(recurrence)
    state, columns = matrix_and_columns(plain)
    steps = tuple(tuple(p for p in expand(equation) if p.coefficient != 0.0) for equation in state.steps)
    outputs = [recurrence.definition(name) for name in recurrence.outputs]
    transposed = _key_side_is_right(tuple(p for products in steps for p in products), outputs, state)
    if transposed:
        steps = tuple(tuple(_turned_over(p) for p in products) for products in steps)
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
    _refuse_matrices(form)
    refuse_by_value(form)
    return form


def _refuse_matrices(form: NormalForm) -> None:
    """The operands and outputs are made of numbers and vectors."""
    for node in (x for term in form.terms for x in walk(term)):
        if isinstance(node, Argument) and "1" not in node.shape:
            raise Refusal(f"`{node.name}` is a full matrix, and operands are numbers and vectors: make what it gives an input", node.span)
        if not isinstance(node, Argument) and "1" not in node.shape:
            advice = "multiply out what is in brackets, as in `k - a * (a^T @ k)` for `(I - a @ a^T) @ k`"
            raise Refusal(f"a matrix stands inside a number or a function of vectors: {advice}", node.span)


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


def _key_side_is_right(products: tuple[Product, ...], outputs: list[Term], state: StateInfo) -> bool:
    """Whether the key axis is the state's second: corrections decide, else vector decay, else the first read."""
    for what, rank in (("is corrected", _has_row_pair), ("decays by channel", _has_diagonal)):
        votes: list[tuple[bool, Product]] = []
        for product in products:
            if product.state is not None:
                left, right = _beside(product)
                votes += [(False, product)] * rank(left) + [(True, product)] * rank(right)
        other = next((p for right, p in votes if right != votes[0][0]), None)
        if other is not None:
            raise Refusal(f"the state {what} on both sides, over {state.axes[0]} and over {state.axes[1]}", other.span or state.span)
        if votes:
            return votes[0][0]
    return next((right for term in outputs for right in _contracted(term)), False)


def _beside(product: Product) -> tuple[tuple[Factor, ...], tuple[Factor, ...]]:
    """What stands left and right of the state."""
    at = next(i for i, f in enumerate(product.chain) if isinstance(f, StateFactor))
    return product.chain[:at], product.chain[at + 1 :]


def _has_row_pair(factors: tuple[Factor, ...]) -> bool:
    return any(isinstance(f, Row | Column) for f in factors)


def _has_diagonal(factors: tuple[Factor, ...]) -> bool:
    return any(isinstance(f, Diagonal) for f in factors)


def _contracted(term: Term) -> list[bool]:
    """For every product of the state with a vector in an output: whether the vector runs over the state's second axis."""
    found = []
    for node in walk(term):
        if not isinstance(node, Apply) or node.op != "matmul" or "1" not in node.shape:
            continue
        try:
            products = expand(node)
        except Refusal:
            continue
        for p in products:
            # A number has a vector on either side of the state: it can be read from both.
            if p.state is None or p.shape == SCALAR:
                continue
            at = next(i for i, f in enumerate(p.chain) if isinstance(f, StateFactor))
            factor = p.chain[at]
            assert isinstance(factor, StateFactor)
            vector_right = len(p.chain) > at + 1 and isinstance(p.chain[-1], Column)
            found.append(vector_right != factor.transposed)
    return found


def _turned_over(product: Product) -> Product:
    """The transposed equation in the transposed state: what stood right of S stands left of it."""
    turned = flip(product)
    chain = tuple(StateFactor(f.state, not f.transposed) if isinstance(f, StateFactor) else f for f in turned.chain)
    return replace(turned, chain=chain)


def _split(products: tuple[Product, ...], slot: int) -> tuple[list[Link], list[Product]]:
    """Products of a micro-step that carry the state on, and products that only write."""
    links, constants = [], []
    for p in products:
        if p.state is None:
            constants.append(p)
            continue
        at = next(i for i, f in enumerate(p.chain) if isinstance(f, StateFactor))
        links.append(_link(p, at, slot))
    return links, constants


def _link(product: Product, at: int, slot: int) -> Link:
    factor, left, right = product.chain[at], product.chain[:at], product.chain[at + 1 :]
    assert isinstance(factor, StateFactor)
    if (factor.state.lag, factor.state.micro) != ((0, slot - 1) if slot else (1, None)):
        name, read = factor.state.name, "t-1" if factor.state.lag else f"t, {factor.state.micro}"
        before = f"{name}[t, {slot - 1}]" if slot else f"{name}[t-1]"
        raise Refusal(f"the micro-step `{name}[t, {slot}]` reads `{name}[{read}]`, not `{before}` before it", factor.state.span)
    for f in (*left, *right):
        if isinstance(f, Dense):
            raise Refusal(
                "a full matrix transforms the state: the transition is dense, not diagonal plus low rank", f.term.span or product.span
            )
    if factor.transposed:
        raise Refusal("the equation mixes the state with its transpose", factor.state.span)
    write, correct, diagonal, values = None, None, None, None
    match right:
        case ():
            pass
        case (Diagonal(d),):
            values = d
        case _:
            raise Refusal("the state is transformed on both sides", product.span)
    match left:
        case ():
            pass
        case (Diagonal(d),):
            diagonal = d
        case _:
            write, correct = _rank_one(left, product)
    return Link(Multiplier(product.coefficient, product.scalars, diagonal, values), write, correct, product)


def _rank_one(left: tuple[object, ...], product: Product) -> tuple[Term, Term]:
    """diag(d) u a^T diag(e), as the write direction d*u and the correction's direction a*e (rows are already folded)."""
    parts = [f for f in left if not isinstance(f, Diagonal)]
    if len(parts) != 2 or not isinstance(parts[0], Column) or not isinstance(parts[1], Row):
        raise Refusal("a transition of this form is not diagonal plus rank one", product.span)
    write, correct = parts[0].term, parts[1].term
    first = left[0]
    if isinstance(first, Diagonal):
        write = times(first.term, write)
    return write, correct


def _describe(decay: Decay, value_decay: Decay, transposed: bool) -> list[str]:
    text = {"none": "no decay", "scalar": "one decay for the whole state", "vector": "one decay per key channel"}[decay.kind]
    notes = [text + (", constant in time" if decay.constant and decay.kind != "none" else "")]
    if value_decay.kind != "none":
        both = [] if decay.kind == "none" else notes
        notes = [*both, "one decay per value channel" + ", constant in time" * value_decay.constant]
    return notes + (["the state is declared [value, key]: read from the other side"] if transposed else [])


def _across(reads: list[ReadOut], axes: tuple[str, ...]) -> list[str]:
    return [f"a read sums over the value axis {axes[1]} and runs over {axes[0]}: read across"] * any(r.across for r in reads)
