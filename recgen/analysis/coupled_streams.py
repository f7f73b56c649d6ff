"""The write streams of coupled states: what goes along one direction into several states is one stream where it is proportional."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from recgen.analysis.arithmetic import plus, scalar_term, times
from recgen.analysis.coupled_form import Correction, CoupledStream
from recgen.analysis.products import Column, Dense, Product, Row, quotient
from recgen.analysis.refusal import Refusal
from recgen.lang.terms import Apply, Constant, Term


@dataclass(frozen=True)
class Part:
    """One summand of what is written along a direction: numbers times `vector`.

    `found`: the state and the lag that answer to `vector`, a key column; None where `vector` is written itself, a value column.
    """

    coefficient: float
    scalars: tuple[Term, ...]
    found: tuple[int, int] | None
    vector: Term

    @property
    def term(self) -> Term:
        """The numbers times the vector."""
        number = scalar_term(self.coefficient, self.scalars)
        return Apply("neg", (self.vector,), self.vector.shape) if number == Constant(-1.0) else times(number, self.vector)


@dataclass(frozen=True)
class _Share:
    """What a state takes along one direction: the numbers that all parts have in common, and the parts without them."""

    coefficient: float
    scalars: tuple[Term, ...]
    core: tuple[Part, ...]
    whole: tuple[Part, ...]

    @property
    def number(self) -> Term:
        """The common numbers."""
        return scalar_term(self.coefficient, self.scalars)

    def is_multiple_of(self, other: _Share) -> bool:
        """Whether both are numbers times the same."""
        return Counter(map(_comparable, self.core)) == Counter(map(_comparable, other.core))


def _comparable(part: Part) -> object:
    return part.coefficient, frozenset(Counter(part.scalars).items()), part.found, part.vector


def written(p: Product) -> tuple[Term, Part]:
    """A plain write as its direction over the key axis, and what is written along it."""
    if len(p.chain) == 2 and isinstance(p.chain[0], Column) and isinstance(p.chain[1], Row):
        return p.chain[0].term, Part(p.coefficient, p.scalars, None, p.chain[1].term)
    if p.chain and isinstance(p.chain[0], Dense):
        raise Refusal("a full matrix is written into the state; a write is a column times a row", p.chain[0].term.span or p.span)
    raise Refusal("this write into the state is no column times a row", p.span)


def streams_of(
    parts: tuple[dict[Term, list[Part]], ...], names: list[str], within: list[int]
) -> tuple[tuple[CoupledStream, ...], tuple[str, ...]]:
    """The streams and what was recognised; `parts`: of every state by direction; `within`: the states as a token goes through them."""
    found: list[CoupledStream] = []
    notes: list[str] = []
    for direction in dict.fromkeys(w for own in parts for w in own):
        shares = {a: _share(own[direction]) for a, own in enumerate(parts) if direction in own}
        while shares:
            first = next(iter(shares.values()))
            together = {a: s for a, s in shares.items() if s.is_multiple_of(first)}
            shares = {a: s for a, s in shares.items() if a not in together}
            found.append(_stream(direction, together, len(parts)))
            if len(together) > 1:
                notes.append(f"one write goes into {' and '.join(names[a] for a in together)}")
    order = sorted(found, key=lambda s: min(within.index(a) for a, z in enumerate(s.into) if z is not None))
    return tuple(order), tuple(notes)


def _share(parts: list[Part]) -> _Share:
    """What a state takes, with the numbers that all parts have in common taken out."""
    common = Counter(parts[0].scalars)
    for p in parts[1:]:
        common &= Counter(p.scalars)
    factor = parts[0].coefficient
    ratios = [quotient(p.coefficient, factor) for p in parts]
    if any(r is None for r in ratios):
        factor, ratios = 1.0, [p.coefficient for p in parts]
    core = []
    for p, ratio in zip(parts, ratios, strict=True):
        assert ratio is not None
        left = list(p.scalars)
        for s in common.elements():
            left.remove(s)
        core.append(replace(p, coefficient=ratio, scalars=tuple(left)))
    return _Share(factor, tuple(common.elements()), tuple(core), tuple(parts))


def _stream(direction: Term, shares: dict[int, _Share], states: int) -> CoupledStream:
    """The stream that these states take; numbers that are the same for all of them stay inside it."""
    first = next(iter(shares.values()))
    same = all((s.coefficient, Counter(s.scalars)) == (first.coefficient, Counter(first.scalars)) for s in shares.values())
    into = tuple((Constant(1.0) if same else shares[a].number) if a in shares else None for a in range(states))
    value: Term | None = None
    corrections: dict[tuple[int, int], Term] = {}
    for p in first.whole if same else first.core:
        if p.found is None:
            value = p.term if value is None else plus(value, p.term)
        else:
            corrections[p.found] = plus(corrections[p.found], p.term) if p.found in corrections else p.term
    return CoupledStream(direction, value, tuple(Correction(a, *at) for at, a in corrections.items()), into)
