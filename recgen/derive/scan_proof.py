"""The proof of a scan form: multiplier and write must make the state's own equation, exactly."""

from __future__ import annotations

from typing import Any

from recgen.analysis.scan_form import ScanForm, ScanState
from recgen.derive.meaning import Matrix, Meaning, States, Symbols, Unknown
from recgen.derive.proof import Proof, ProofFailed
from recgen.derive.scan import state_shape
from recgen.lang.terms import Constant, State, Term


def prove_scan(form: ScanForm) -> Proof:
    """Compares α ∘ S + X with every state's equation, entry by entry, as polynomials; raises ProofFailed where they differ.

    With that the chunk form holds: it takes the same pairs one after another, and its outputs are the spec's own expressions.
    """
    sizes = dict.fromkeys(form.axes, 2)
    symbols = Symbols()
    _differences(form, Meaning(sizes, symbols, lambda _: Unknown()))
    count = 0
    for name, left, right in _differences(form, Meaning(sizes, symbols, symbols.generate())):
        for i, (row, other) in enumerate(zip(left, right, strict=True)):
            for j, (x, y) in enumerate(zip(row, other, strict=True)):
                count += 1
                if x - y != 0:
                    raise ProofFailed(f"{name}[{i}, {j}]: the recurrence gives {x}, the scan form {y}")
    return Proof(1, tuple(sizes.items()), count, symbols.count)


def _differences(form: ScanForm, meaning: Meaning) -> list[tuple[str, Matrix, Matrix]]:
    """Every state's name, its equation and its scan form."""
    states: States = {}
    for s in form.states:
        shape = state_shape(s.info.axes)
        for lag in (0, 1):
            whole = State(s.info.name, lag, shape)
            rows, columns = (meaning.sizes[axis] for axis in shape)
            states[s.info.name, lag, None] = [[meaning.symbols.entry(whole, 0, i, j) for j in range(columns)] for i in range(rows)]
    return [(s.info.name, meaning.value(s.info.equation, 0, states), _affine(s, meaning, states)) for s in form.states]


def _affine(state: ScanState, meaning: Meaning, states: States) -> Matrix:
    """α ∘ S + X over all entries of the state."""
    before = states[state.info.name, 1, None]
    decay = _whole(state.decay, meaning, states, before)
    write = _whole(state.write or Constant(0.0), meaning, states, before)
    return [[a * s + x for a, s, x in zip(*rows, strict=True)] for rows in zip(decay, before, write, strict=True)]


def _whole(term: Term, meaning: Meaning, states: States, like: Matrix) -> Matrix:
    """The term repeated over the rows and columns that it lacks."""
    value: Matrix = meaning.value(term, 0, states)

    def entry(i: int, j: int) -> Any:
        return value[i if len(value) > 1 else 0][j if len(value[0]) > 1 else 0]

    return [[entry(i, j) for j in range(len(like[0]))] for i in range(len(like))]
