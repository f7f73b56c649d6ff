"""The inputs that are tried: which combinations of options, sizes, states, gates and losses."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from recgen.lang.recurrence import Recurrence

TOKENS = (0, 1, 17, 64, 150)
"""Below, at and above one chunk, and several chunks with a rest."""

GATES = ("mild", "strong", "resets")
LOSSES = ("outputs and state", "outputs", "state")
MOST_COMBINATIONS = 8
"""Up to this many combinations of boolean options all are tried, beyond it every pair of values."""


@dataclass(frozen=True)
class Case:
    """One input, reproducible from its fields.

    `key_heads`, `heads`: H and HV; `small`: which set of axis sizes; `initial`: whether a state comes in; `gates`: what the decays are
    like; `loss`: through what gradients flow; `packed`: several sequences in one row; `flags`: values of the boolean options.
    """

    tokens: int
    key_heads: int = 1
    heads: int = 2
    small: bool = False
    initial: bool = True
    gates: str = "mild"
    loss: str = "outputs and state"
    packed: bool = False
    flags: tuple[tuple[str, bool], ...] = ()
    seed: int = 0

    def arguments(self) -> str:
        """The fields that differ from their defaults, as keyword arguments."""
        changed = [(f.name, getattr(self, f.name)) for f in fields(self) if f.name == "tokens" or getattr(self, f.name) != f.default]
        return ", ".join(f"{name}={value!r}" for name, value in changed)

    @property
    def boundaries(self) -> tuple[int, ...] | None:
        """First tokens of packed sequences and the end: two sequences are empty, one has a single token."""
        t = self.tokens
        return (0, 0, 1, t // 9, t // 9, t // 2, t) if self.packed else None


def flag_combinations(recurrence: Recurrence) -> tuple[tuple[tuple[str, bool], ...], ...]:
    """Every combination of boolean options, or, where there are many, enough for every pair of values."""
    names = [o.name for o in recurrence.options if isinstance(o.default, bool)]
    if 2 ** len(names) <= MOST_COMBINATIONS:
        return tuple(tuple(zip(names, values, strict=True)) for values in itertools.product((False, True), repeat=len(names)))
    return tuple(tuple(zip(names, row, strict=True)) for row in pairwise([(False, True)] * len(names)))


def cases(recurrence: Recurrence, resets: bool) -> tuple[Case, ...]:
    """A set of cases in which every pair of values of any two of these properties occurs; `resets`: whether the spec's decay can be 0."""
    grouped = any(a.grouped for a in recurrence.arguments)
    factors: list[Sequence[Any]] = [
        TOKENS,
        flag_combinations(recurrence),
        GATES if resets else GATES[:2],
        LOSSES,
        ((1, 2), (2, 2)) if grouped else ((2, 2),),
        (True, False),
        (False, True),
    ]
    found = []
    for i, (tokens, flags, gates, loss, heads, initial, small) in enumerate(pairwise(factors)):
        found.append(Case(tokens, heads[0], heads[1], small, initial, gates, loss, False, flags, i))
    return tuple(found)


def packed_cases(recurrence: Recurrence) -> tuple[Case, ...]:
    """Packed sequences, with and without incoming states, over the first and the last combination of options."""
    combinations = flag_combinations(recurrence)
    grouped = any(a.grouped for a in recurrence.arguments)
    base = Case(150, 1 if grouped else 2, 2, packed=True, gates="strong")
    return tuple(
        replace(base, flags=flags, initial=initial, seed=100 + initial)
        for flags, initial in zip(_ends(combinations), (True, False), strict=True)
    )


def long_cases(recurrence: Recurrence) -> tuple[Case, ...]:
    """Two cases of several chunks for the properties that compare a form with itself."""
    grouped = any(a.grouped for a in recurrence.arguments)
    first, last = _ends(flag_combinations(recurrence))
    return (
        Case(150, 1 if grouped else 2, 2, gates="strong", flags=first, seed=200),
        Case(83, 2, 2, True, gates="mild", flags=last, seed=201),
    )


def _ends(combinations: Sequence[Any]) -> tuple[Any, Any]:
    return combinations[0], combinations[-1]


def pairwise(factors: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Rows over the factors' values in which every pair of values of two factors occurs; the same rows every time."""
    if len(factors) == 1:
        return [(value,) for value in factors[0]]
    missing = set(_pairs(factors))
    rows = []
    while missing:
        (i, a), (j, b) = min(missing)
        row: list[int | None] = [None] * len(factors)
        row[i], row[j] = a, b
        for k in range(len(factors)):
            if row[k] is None:
                gains = [_gain(row, k, value, missing) for value in range(len(factors[k]))]
                row[k] = gains.index(max(gains))
        indices = [v for v in row if v is not None]
        missing -= {((i, indices[i]), (j, indices[j])) for i, j in itertools.combinations(range(len(factors)), 2)}
        rows.append(tuple(factors[k][v] for k, v in enumerate(indices)))
    return rows


def _pairs(factors: Sequence[Sequence[Any]]) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    for i, j in itertools.combinations(range(len(factors)), 2):
        for a, b in itertools.product(range(len(factors[i])), range(len(factors[j]))):
            yield (i, a), (j, b)


def _gain(row: list[int | None], k: int, value: int, missing: set[tuple[tuple[int, int], tuple[int, int]]]) -> int:
    """How many missing pairs the row would cover with this value."""
    others = [(i, v) for i, v in enumerate(row) if v is not None]
    return sum((tuple(sorted(((i, v), (k, value)))) in missing) for i, v in others)
