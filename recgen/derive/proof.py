"""What the proofs share: both sides of identities as polynomials, compared entry by entry; the unrolled recurrence is one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from recgen.analysis.normal_form import Output
from recgen.derive.meaning import Matrix, Meaning, States, Symbols, Unknown
from recgen.lang.recurrence import Recurrence
from recgen.lang.terms import Read, State, Term, rebuild


class ProofFailed(Exception):
    """The chunk form does not equal the recurrence: a compiler bug."""


@dataclass(frozen=True)
class Proof:
    """What was shown: for chunks of `tokens` tokens and the given axis sizes, `identities` polynomial identities hold exactly."""

    tokens: int
    sizes: tuple[tuple[str, int], ...]
    identities: int
    symbols: int

    def __str__(self) -> str:
        sizes = ", ".join(f"{axis} = {n}" for axis, n in self.sizes)
        span = f"chunk of {self.tokens} tokens" if self.tokens > 1 else "one token"
        return f"{span}, {sizes}: {self.identities} polynomial identities in {self.symbols} symbols hold exactly"


def sizes_of(recurrence: Recurrence, key_axis: str, value_axis: str) -> dict[str, int]:
    """The sizes of the axes in a proof: two keys and values, one of everything else."""
    sizes = dict.fromkeys((key_axis, value_axis), 2)
    return sizes | {axis: 1 for a in recurrence.arguments for axis in a.axes if axis not in sizes}


class Sides(Protocol):
    """Both sides of an identity, by the names of what is compared."""

    def unrolled(self) -> dict[str, Matrix]:
        """What the recurrence gives."""

    def chunked(self) -> dict[str, Matrix]:
        """What the chunk form gives."""


def compare(make: Callable[[Symbols, Any], Sides], tokens: int, sizes: dict[str, int]) -> Proof:
    """Both sides in one ring, entry by entry; raises ProofFailed where they differ."""
    symbols = Symbols()
    unproved = make(symbols, lambda _: Unknown())
    unproved.unrolled(), unproved.chunked()
    sides = make(symbols, symbols.generate())
    unrolled, derived = sides.unrolled(), sides.chunked()
    count = 0
    for name, left in unrolled.items():
        for i, (row, other) in enumerate(zip(left, derived[name], strict=True)):
            for j, (x, y) in enumerate(zip(row, other, strict=True)):
                count += 1
                if x - y != 0:
                    raise ProofFailed(f"{name}[{i}, {j}]: the recurrence gives {x}, the chunk form {y}")
    return Proof(tokens, tuple(sizes.items()), count, symbols.count)


def initial_states(recurrence: Recurrence, meaning: Meaning) -> dict[str, Matrix]:
    """Every incoming state as declared."""
    found = {}
    for info in recurrence.states:
        first, second = (*info.axes, "1", "1")[:2]
        rows, columns = meaning.sizes[first], meaning.sizes[second]
        state = State(info.name, 1, (first, second))
        found[info.name] = [[meaning.symbols.entry(state, -1, i, j) for j in range(columns)] for i in range(rows)]
    return found


def unrolled(recurrence: Recurrence, meaning: Meaning, tokens: int, after: Callable[[dict[str, Matrix], int], States]) -> dict[str, Matrix]:
    """Outputs of every token and the final states; `after` gives all states before and after a token from those before it."""
    states, found = initial_states(recurrence, meaning), {}
    for t in range(tokens):
        known = after(states, t)
        for output in recurrence.outputs:
            found[f"{output} at token {t}"] = meaning.value(recurrence.definition(output), t, known)
        states = {name: known[name, 0, None] for name in states}
    return {**found, **{f"the final state {name}": value for name, value in states.items()}}


def read_out(outputs: tuple[Output, ...], meaning: Meaning, reads: list[States]) -> dict[str, Matrix]:
    """Outputs of every token from what it read: read m of a state is known there by the name "read m STATE"."""
    return {
        f"{output.name} at token {t}": meaning.value(rebuild(output.value, _as_state), t, known)
        for t, known in enumerate(reads)
        for output in outputs
    }


def _as_state(term: Term) -> Term:
    """A read, as a state whose value is given."""
    return State(f"read {term.index} {term.state}", 0, term.shape) if isinstance(term, Read) else term
