"""Vector states that follow a matrix state: further columns of it, found by structure.

A state z over the key axis whose transition is that of the matrix S, and which is written along directions that S is written along too, is
one more column of S: what S adds is w E^T, what z adds is e w with a number e.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from recgen.analysis.arithmetic import scalar_term
from recgen.analysis.decay import Multiplier
from recgen.analysis.normal_form import Stream
from recgen.analysis.products import Column, Product
from recgen.analysis.refusal import Refusal
from recgen.lang.recurrence import Recurrence, StateInfo
from recgen.lang.terms import State, Term, walk

Follow = Callable[[StateInfo], tuple[Multiplier, tuple[Stream, ...]]]
"""The decay and the streams of a vector state's own equation, read as that of a matrix with one column."""


def matrix_and_columns(recurrence: Recurrence) -> tuple[StateInfo, tuple[StateInfo, ...]]:
    """The matrix state, and the vector states beside it in declaration order; raises Refusal where there are others."""
    _refuse_coupled(recurrence)
    matrices = [s for s in recurrence.states if len(s.axes) == 2]
    if len(matrices) > 1:
        raise Refusal(f"the spec carries {len(recurrence.states)} states; one matrix state is compiled", matrices[1].span)
    if not matrices:
        state = recurrence.states[0]
        raise Refusal(
            f"state `{state.name}` has {len(state.axes)} axes; a matrix state [K, V] is compiled (vector states are the scan class)",
            state.span,
        )
    for state in recurrence.states:
        if len(state.axes) not in (1, 2):
            raise Refusal(f"state `{state.name}` has {len(state.axes)} axes; beside a matrix stand vectors over its key axis", state.span)
    return matrices[0], tuple(s for s in recurrence.states if len(s.axes) == 1)


def _refuse_coupled(recurrence: Recurrence) -> None:
    """Refuses states that read one another."""
    for state in recurrence.states:
        for x in walk(state.equation):
            if isinstance(x, State) and x.name != state.name:
                read = f"{x.name}[t{'-1' if x.lag else ''}]"
                count = len(recurrence.states)
                raise Refusal(
                    f"`{state.name}[t]` reads `{read}`: {count} states depend on one another; one matrix state is compiled", x.span
                )


def beside(
    streams: tuple[Stream, ...], decay: Multiplier, columns: tuple[StateInfo, ...], matrix: StateInfo, key_axis: str, follow: Follow
) -> tuple[Stream, ...]:
    """The matrix's streams with what each of them writes into every column; raises Refusal for a vector that is none."""
    written: list[tuple[Term | None, ...]] = []
    for state in columns:
        _same_axis(state, matrix, key_axis)
        own_decay, own = follow(state)
        if not _equal(own_decay, decay):
            raise Refusal(f"state `{state.name}` decays otherwise than `{matrix.name}`, so that it is no further column of it", state.span)
        written.append(_writes(state, matrix, own, streams))
    return tuple(replace(s, columns=tuple(w[i] for w in written)) for i, s in enumerate(streams))


def column_write(state: StateInfo) -> Callable[[Product], tuple[Term, Term]]:
    """The direction and the number of what a vector state adds."""

    def split(p: Product) -> tuple[Term, Term]:
        if len(p.chain) == 1 and isinstance(p.chain[0], Column):
            return p.chain[0].term, scalar_term(p.coefficient, p.scalars)
        raise Refusal(f"what is written into `{state.name}` is no number times a vector", p.span)

    return split


def _same_axis(state: StateInfo, matrix: StateInfo, key_axis: str) -> None:
    if state.axes[0] != key_axis:
        raise Refusal(
            f"state `{state.name}` runs over {state.axes[0]}; a further column of `{matrix.name}` runs over the key axis {key_axis}",
            state.span,
        )


def _equal(left: Multiplier, right: Multiplier) -> bool:
    return (left.coefficient, left.diagonal, Counter(left.scalars)) == (right.coefficient, right.diagonal, Counter(right.scalars))


def _writes(state: StateInfo, matrix: StateInfo, own: tuple[Stream, ...], streams: tuple[Stream, ...]) -> tuple[Term | None, ...]:
    """The number that each stream of the matrix writes into this column."""
    found = {s.write: s for s in own}
    for write in found:
        if write not in {s.write for s in streams}:
            raise Refusal(f"`{state.name}` is written along a direction that `{matrix.name}` is not", write.span or state.span)
    for s in streams:
        mine = found.get(s.write)
        if (mine.strength, mine.correct) != (s.strength, s.correct) if mine else s.correct is not None:
            raise Refusal(f"`{state.name}` and `{matrix.name}` are corrected differently along one direction", s.write.span or state.span)
    return tuple(found[s.write].value if s.write in found else None for s in streams)
