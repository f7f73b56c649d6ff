"""The coupled form: several matrix states that feed one another, with a chunk form for all of them together.

Per token, with n states over one key axis and one value axis, in an order in which none feeds an earlier one, and R write streams:

    S^a_t = α^a_t S^a_{t-1} + sum_b f^ab_t S^b_t (or S^b_{t-1}) + sum_r z^ar_t w^r_t (E^r_t)^T
    E^r_t = X^r_t + sum_b (S^b_t or S^b_{t-1})^T a^rb_t
    reads: (S^a_t)^T q_t (lag 0) or (S^a_{t-1})^T q_t (lag 1); outputs: any function of the reads and of the token's inputs

α, f and z are numbers of a token and head. So the transition of all states is a triangular matrix of numbers, the same for every entry,
plus corrections of low rank over the keys, which may read any of the states.
"""

from __future__ import annotations

from dataclasses import dataclass

from recgen.analysis.normal_form import Decay, Output, ReadOut
from recgen.analysis.token_form import TokenForm
from recgen.lang.recurrence import Recurrence, StateInfo
from recgen.lang.terms import Term


@dataclass(frozen=True)
class Feed:
    """`target` takes `weight` (scalar) times `source`, after the token (lag 0) or before it (lag 1); both count `CoupledForm.states`."""

    target: int
    source: int
    lag: int
    weight: Term


@dataclass(frozen=True)
class Correction:
    """What a write finds: the state's answer S^T `correct` (key column) of `state`, after the token (lag 0) or before it (lag 1)."""

    correct: Term
    state: int
    lag: int


@dataclass(frozen=True)
class CoupledStream:
    """One rank-one write a token, into one state or several.

    Direction `write` (key column); `value` X (value column, None for 0); `corrections` are added to it; `into`: the number by which every
    state takes it, None for a state that does not.
    """

    write: Term
    value: Term | None
    corrections: tuple[Correction, ...]
    into: tuple[Term | None, ...]


@dataclass(frozen=True)
class CoupledForm:
    """Matrix states that are compiled together.

    `token`: the same as equations of one token, of which steps and the recurrent form are made. `states` in an order in which none feeds an
    earlier one; `decays` are theirs, of kind "none", "scalar" or, for a state that does not carry itself on, "nothing". `transposed`: the
    states were declared [value axis, key axis]. `streams` in an order in which none corrects by what a later one writes at the same
    token. `notes`: the structure that was recognised, one sentence each.
    """

    token: TokenForm
    states: tuple[StateInfo, ...]
    key_axis: str
    value_axis: str
    transposed: bool
    decays: tuple[Decay, ...]
    feeds: tuple[Feed, ...]
    streams: tuple[CoupledStream, ...]
    reads: tuple[ReadOut, ...]
    outputs: tuple[Output, ...]
    notes: tuple[str, ...]

    @property
    def recurrence(self) -> Recurrence:
        """The checked spec."""
        return self.token.recurrence

    @property
    def names(self) -> tuple[str, ...]:
        """The states' names, in their order here."""
        return tuple(s.name for s in self.states)

    @property
    def columns(self) -> tuple[StateInfo, ...]:
        """Vector states that are further columns of a matrix: none."""
        return ()

    @property
    def stabilizer(self) -> None:
        """The running maximum that scales a state: none."""
        return None

    @property
    def read_axes(self) -> tuple[str, ...]:
        """The axis of every read."""
        return (self.value_axis,) * len(self.reads)

    @property
    def terms(self) -> tuple[Term, ...]:
        """Every term: of the decays, the feeds, the streams, the reads and the outputs."""
        streams = (t for s in self.streams for t in (s.write, s.value, *(c.correct for c in s.corrections), *s.into))
        found = (*(d.log for d in self.decays), *(f.weight for f in self.feeds), *streams, *(r.query for r in self.reads))
        return tuple(t for t in (*found, *(o.value for o in self.outputs)) if t is not None)
