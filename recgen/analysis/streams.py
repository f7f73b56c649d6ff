"""The write streams of one micro-step: its plain writes and corrections, merged where they go along one direction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from recgen.analysis.arithmetic import plus, scalar_term, times
from recgen.analysis.decay import Multiplier
from recgen.analysis.normal_form import Stream
from recgen.analysis.products import Column, Dense, Product, Row, quotient
from recgen.analysis.refusal import Refusal
from recgen.lang.terms import Apply, Constant, Term


@dataclass(frozen=True)
class Link:
    """A product that carries the state on: decay alone (`write` None), or a correction written along `write`, read along `correct`."""

    multiplier: Multiplier
    write: Term | None
    correct: Term | None
    product: Product


def streams_of(
    links: list[Link],
    constants: list[Product],
    decay: Multiplier,
    slot: int,
    after: bool,
    split: Callable[[Product], tuple[Term, Term]] | None = None,
) -> tuple[tuple[Stream, ...], list[str]]:
    """One stream for every write direction: corrections and plain writes along the same direction are merged.

    `decay`: of this micro-step; `after`: whether the state has decayed in an earlier one; `split` takes a write apart into its direction
    and what is written along it, a column times a row if None.
    """
    directions: list[Term] = []
    plain: dict[Term, Term] = {}
    for p in constants:
        write, value = (split or _outer_product)(p)
        if write not in directions:
            directions.append(write)
        plain[write] = plus(plain[write], value) if write in plain else value
    corrections: dict[Term, list[Link]] = {}
    for link in links:
        assert link.write is not None
        if link.write not in directions:
            directions.append(link.write)
        corrections.setdefault(link.write, []).append(link)
    streams = tuple(_stream(w, plain.get(w), corrections.get(w, []), decay, slot, after) for w in directions)
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


def _stream(write: Term, value: Term | None, links: list[Link], decay: Multiplier, slot: int, after: bool) -> Stream:
    if not links:
        return Stream(write, value, None, None, False, slot)
    undecayed = [_without(x, decay) for x in links]
    decayed = all(u is not None for u in undecayed) and not decay.trivial
    pairs = [u if decayed and u is not None else (x.multiplier, x.correct) for x, u in zip(links, undecayed, strict=True)]
    if len(pairs) == 1:
        multiplier, correct = pairs[0]
        assert correct is not None
        strength = _strength(multiplier)
        return Stream(write, value, None if strength == Constant(1.0) else strength, correct, decayed or after, slot)
    total: Term | None = None
    values = pairs[0][0].values
    for (multiplier, correct), link in zip(pairs, links, strict=True):
        assert correct is not None
        if multiplier.values != values:
            raise Refusal("corrections along one direction have different strengths for the value channels", link.product.span)
        part = times(scalar_term(multiplier.coefficient, multiplier.scalars), correct)
        total = part if total is None else plus(total, part)
    return Stream(write, value, values, total, decayed or after, slot)


def _strength(multiplier: Multiplier) -> Term:
    """What an answer of the state is multiplied with: a number, or a number for every value channel."""
    if multiplier.values is None:
        return scalar_term(multiplier.coefficient, multiplier.scalars)
    if multiplier.coefficient == -1.0 and not multiplier.scalars:
        return Apply("neg", (multiplier.values,), multiplier.values.shape, "", multiplier.values.span)
    return times(scalar_term(multiplier.coefficient, multiplier.scalars), multiplier.values)


def _without(link: Link, decay: Multiplier) -> tuple[Multiplier, Term | None] | None:
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
    values = link.multiplier.values
    if decay.values is not None:
        if values is None or Counter(_factors(decay.values)) - Counter(_factors(values)):
            return None
        values = _take(values, decay.values)
    left = list(link.multiplier.scalars)
    for s in decay.scalars:
        left.remove(s)
    coefficient = quotient(link.multiplier.coefficient, decay.coefficient)
    if coefficient is None:
        return None
    return replace(link.multiplier, coefficient=coefficient, scalars=tuple(left), values=values), correct


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
