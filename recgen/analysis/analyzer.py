"""From the checked recurrence to its normal form, by structure alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from recgen.analysis.algebra import (
    Column,
    Dense,
    Diagonal,
    Factor,
    Product,
    Refusal,
    Row,
    StateFactor,
    expand,
    flip,
    plus,
    quotient,
    scalar_term,
    times,
)
from recgen.analysis.decay import Multiplier, decay_of
from recgen.analysis.normal_form import Decay, NormalForm, Output, ReadOut, Stream
from recgen.analysis.readout import Reads
from recgen.lang.recurrence import Recurrence, StateInfo
from recgen.lang.terms import SCALAR, Apply, Argument, Constant, State, Term, walk


@dataclass(frozen=True)
class _Link:
    """A product that carries the state on: decay alone (`write` None), or a correction written along `write`, read along `correct`."""

    multiplier: Multiplier
    write: Term | None
    correct: Term | None
    product: Product


def analyze(recurrence: Recurrence) -> NormalForm:
    """The normal form; raises `Refusal` with the reason in the user's terms and the span of the term that breaks it."""
    state = _single_state(recurrence)
    _refuse_plan(recurrence)
    products = tuple(p for p in expand(state.equation) if p.coefficient != 0.0)
    outputs = [recurrence.definition(name) for name in recurrence.outputs]
    transposed = _key_side_is_right(products, outputs, state)
    axes = state.axes[::-1] if transposed else state.axes
    links, constants = _split(tuple(_turned_over(p) for p in products) if transposed else products, axes)
    decay, multiplier = decay_of([x.multiplier for x in links if x.write is None], recurrence, state)
    streams, notes = _streams([x for x in links if x.write is not None], constants, multiplier)
    reads = Reads(state.name, transposed)
    values = tuple(Output(name, reads.extract(term)) for name, term in zip(recurrence.outputs, outputs, strict=True))
    form = NormalForm(
        recurrence,
        state,
        axes[0],
        axes[1],
        transposed,
        decay,
        streams,
        tuple(reads.found),
        values,
        tuple(_describe(decay, transposed) + notes + _across(reads.found, axes)),
    )
    _refuse_matrices(form)
    return form


def _refuse_matrices(form: NormalForm) -> None:
    """The operands and outputs are made of numbers and vectors."""
    for node in (x for term in form.terms for x in walk(term)):
        if isinstance(node, Argument) and "1" not in node.shape:
            raise Refusal(f"`{node.name}` is a full matrix, and operands are numbers and vectors: make what it gives an input", node.span)
        if not isinstance(node, Argument) and "1" not in node.shape:
            advice = "multiply out what is in brackets, as in `k - a * (a^T @ k)` for `(I - a @ a^T) @ k`"
            raise Refusal(f"a matrix stands inside a number or a function of vectors: {advice}", node.span)


def _single_state(recurrence: Recurrence) -> StateInfo:
    if len(recurrence.states) > 1:
        raise _several_states(recurrence)
    state = recurrence.states[0]
    if len(state.axes) != 2:
        raise Refusal(
            f"state `{state.name}` has {len(state.axes)} axes; a matrix state [K, V] is compiled (vector states are the scan class)",
            state.span,
        )
    return state


def _several_states(recurrence: Recurrence) -> Refusal:
    """The refusal of several states, where one reads another if one does."""
    count = len(recurrence.states)
    for state in recurrence.states:
        for x in walk(state.equation):
            if isinstance(x, State) and x.name != state.name:
                read = f"{x.name}[t{'-1' if x.lag else ''}]"
                return Refusal(
                    f"`{state.name}[t]` reads `{read}`: {count} states depend on one another; one matrix state is compiled", x.span
                )
    return Refusal(f"the spec carries {count} states; one matrix state is compiled", recurrence.states[1].span)


def _refuse_plan(recurrence: Recurrence) -> None:
    if recurrence.stabilize:
        raise Refusal("`stabilize log` is not compiled by this revision", recurrence.states[0].span)


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


def _split(products: tuple[Product, ...], axes: tuple[str, ...]) -> tuple[list[_Link], list[Product]]:
    """Products that carry the state on, and products that only write."""
    links, constants = [], []
    _refuse_value_decay([p for p in products if p.state is not None], axes)
    for p in products:
        if p.state is None:
            constants.append(p)
            continue
        at = next(i for i, f in enumerate(p.chain) if isinstance(f, StateFactor))
        links.append(_link(p, at))
    return links, constants


def _refuse_value_decay(products: list[Product], axes: tuple[str, ...]) -> None:
    """A decay by channel is on the side that is corrected."""
    for p in products:
        left, right = _beside(p)
        if _has_diagonal(right) and not _has_row_pair(left):
            raise Refusal(
                f"the state is corrected over {axes[0]} and decays by channel over {axes[1]}: "
                "a decay by channel is compiled on the side that is corrected",
                p.span,
            )


def _link(product: Product, at: int) -> _Link:
    factor, left, right = product.chain[at], product.chain[:at], product.chain[at + 1 :]
    assert isinstance(factor, StateFactor)
    if factor.state.lag != 1:
        raise Refusal(f"the equation of {factor.state.name}[t] reads {factor.state.name}[t]", factor.state.span)
    for f in (*left, *right):
        if isinstance(f, Dense):
            raise Refusal(
                "a full matrix transforms the state: the transition is dense, not diagonal plus low rank", f.term.span or product.span
            )
    if factor.transposed:
        raise Refusal("the equation mixes the state with its transpose", factor.state.span)
    if left and any(isinstance(f, Diagonal) for f in right):
        raise Refusal(
            "a correction has a strength of its own for each value channel; one strength for all of them is compiled", product.span
        )
    if right:
        raise Refusal("the state is transformed on both sides", product.span)
    write, correct, diagonal = None, None, None
    match left:
        case ():
            pass
        case (Diagonal(d),):
            diagonal = d
        case _:
            write, correct = _rank_one(left, product)
    return _Link(Multiplier(product.coefficient, product.scalars, diagonal), write, correct, product)


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


def _streams(links: list[_Link], constants: list[Product], decay: Multiplier) -> tuple[tuple[Stream, ...], list[str]]:
    """One stream for every write direction: corrections and plain writes along the same direction are merged."""
    directions: list[Term] = []
    plain: dict[Term, Term] = {}
    for p in constants:
        write, value = _outer_product(p)
        if write not in directions:
            directions.append(write)
        plain[write] = plus(plain[write], value) if write in plain else value
    corrections: dict[Term, list[_Link]] = {}
    for link in links:
        assert link.write is not None
        if link.write not in directions:
            directions.append(link.write)
        corrections.setdefault(link.write, []).append(link)
    if not directions:
        raise Refusal("nothing is ever written into the state", None)
    streams = tuple(_stream(w, plain.get(w), corrections.get(w, []), decay) for w in directions)
    merged = sum(w in plain for w in corrections)
    notes = [f"{merged} correction and plain write along one direction: one stream"] if merged else []
    notes += ["the correction reads the decayed state: inclusive sums"] * any(s.decayed for s in streams)
    notes += ["the correction reads the state before its decay: exclusive sums"] * any(
        s.correct is not None and not s.decayed for s in streams
    )
    return streams, notes


def _outer_product(p: Product) -> tuple[Term, Term]:
    """A plain write as (direction over the key axis, value over the value axis), its scalars on the value."""
    if len(p.chain) == 2 and isinstance(p.chain[0], Column) and isinstance(p.chain[1], Row):
        return p.chain[0].term, times(scalar_term(p.coefficient, p.scalars), p.chain[1].term)
    if p.chain and isinstance(p.chain[0], Dense):
        raise Refusal("a full matrix is written into the state; a write is a column times a row", p.chain[0].term.span or p.span)
    raise Refusal("this write into the state is no column times a row", p.span)


def _stream(write: Term, value: Term | None, links: list[_Link], decay: Multiplier) -> Stream:
    if not links:
        return Stream(write, value, None, None, False)
    undecayed = [_without(x, decay) for x in links]
    decayed = all(u is not None for u in undecayed) and not decay.trivial
    pairs = [u if decayed and u is not None else (x.multiplier, x.correct) for x, u in zip(links, undecayed, strict=True)]
    if len(pairs) == 1:
        multiplier, correct = pairs[0]
        assert correct is not None
        strength = scalar_term(multiplier.coefficient, multiplier.scalars)
        return Stream(write, value, None if strength == Constant(1.0) else strength, correct, decayed)
    total: Term | None = None
    for multiplier, correct in pairs:
        assert correct is not None
        part = times(scalar_term(multiplier.coefficient, multiplier.scalars), correct)
        total = part if total is None else plus(total, part)
    return Stream(write, value, None, total, decayed)


def _without(link: _Link, decay: Multiplier) -> tuple[Multiplier, Term | None] | None:
    """The correction with the decay taken out of it, or None where it does not contain the decay."""
    assert link.correct is not None
    scalars = Counter(link.multiplier.scalars)
    needed = Counter(decay.scalars)
    if any(scalars[s] < n for s, n in needed.items()):
        return None
    correct = link.correct
    if decay.diagonal is not None:
        taken = _take(correct, decay.diagonal)
        if taken is None:
            return None
        correct = taken
    left = list(link.multiplier.scalars)
    for s in decay.scalars:
        left.remove(s)
    coefficient = quotient(link.multiplier.coefficient, decay.coefficient)
    return None if coefficient is None else (replace(link.multiplier, coefficient=coefficient, scalars=tuple(left)), correct)


def _take(vector: Term, factor: Term) -> Term | None:
    """The vector with `factor` (itself a product) taken out of its elementwise product, or None."""
    have, want = _factors(vector), Counter(_factors(factor))
    if any(Counter(have)[f] < n for f, n in want.items()):
        return None
    for f in want.elements():
        have.remove(f)
    out: Term = Constant(1.0)
    for f in have:
        out = times(out, f)
    return out if have else None


def _factors(vector: Term) -> list[Term]:
    if isinstance(vector, Apply) and vector.op == "mul":
        return _factors(vector.args[0]) + _factors(vector.args[1])
    return [vector]


def _describe(decay: Decay, transposed: bool) -> list[str]:
    text = {"none": "no decay", "scalar": "one decay for the whole state", "vector": "one decay per key channel"}[decay.kind]
    notes = [text + (", constant in time" if decay.constant and decay.kind != "none" else "")]
    return notes + (["the state is declared [value, key]: read from the other side"] if transposed else [])


def _across(reads: list[ReadOut], axes: tuple[str, ...]) -> list[str]:
    return [f"a read sums over the value axis {axes[1]} and runs over {axes[0]}: read across"] * any(r.across for r in reads)
