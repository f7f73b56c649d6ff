"""The normal form of a recurrence: what the analyzer finds and every later stage works from.

Per token, with the state oriented [key axis, value axis] and R write streams:

    S_t = diag(exp(g_t)) S_{t-1} + sum_r w^r_t (E^r_t)^T,     E^r_t = X^r_t + c^r_t D_t^T a^r_t
    D_t = diag(exp(g_t)) S_{t-1} where `Stream.decayed`, else S_{t-1}
    with a correction the value side may decay too, by channel: diag(exp(g_t)) S_{t-1} diag(exp(u_t)), and c may be a vector over it
    reads: S_t^T q_t (lag 0) or S_{t-1}^T q_t (lag 1), across S_t q_t or S_{t-1} q_t with q over the value axis;
    outputs: any function of the reads and of the token's inputs

Where a token has micro-steps, a stream's `slot` is the one that writes it: a correction finds the writes of the same token's smaller slots
in D_t too, and a read of lag 0 those up to its own slot.

Vector states with the same transition, written along the same directions, are further columns of S.
"""

from __future__ import annotations

from dataclasses import dataclass

from recgen.lang.recurrence import Recurrence, StateInfo
from recgen.lang.terms import ROW_FUNCTIONS, SCALAR, Apply, Term, walk


@dataclass(frozen=True)
class Decay:
    """How the state forgets.

    `kind` is "none", "scalar" (one number per token and head) or "vector" (one per key channel). `log` is the natural log of the
    multiplier's magnitude as a term (None for kind "none"). `constant`: it varies with the head only. `signed` holds the multiplier
    itself where it may be negative. `bounded`: its magnitude is proved to be at most 1, so that no exponent is positive.
    """

    kind: str
    log: Term | None
    constant: bool
    signed: Term | None
    bounded: bool


NO_DECAY = Decay("none", None, True, None, True)


@dataclass(frozen=True)
class Stabilizer:
    """A running maximum that scales the state, m_t = max(decay + m_{t-1}, weight): `decay` and `weight` (scalars) are logarithms.

    The state is carried divided by exp(m), every write scaled by exp(weight - m). No gradient goes through m.
    """

    state: StateInfo
    decay: Term
    weight: Term


@dataclass(frozen=True)
class Stream:
    """One rank-one write a token.

    Direction `write` (key column); `value` X (value column, None for 0); `strength` c (scalar or value column, None for 1) times the
    state's answer to `correct` a (key column, None for no correction), of the decayed state where `decayed`. `slot`: the micro-step, 0
    where there are none.
    `columns`: what it writes into every further column of the state (scalar, None for 0).
    """

    write: Term
    value: Term | None
    strength: Term | None
    correct: Term | None
    decayed: bool
    slot: int = 0
    columns: tuple[Term | None, ...] = ()

    @property
    def strong_by_channel(self) -> bool:
        """Whether its correction has a strength of its own for every value channel."""
        return self.strength is not None and self.strength.shape != SCALAR


@dataclass(frozen=True)
class ReadOut:
    """What a query reads of the state after micro-step `slot` of the token (lag 0) or before the token (lag 1).

    S^T query, a vector over the value axis and a number of every further column, or where `across` S query over the key axis, the query
    over the value axis. `state`: the state's name where several matrix states are compiled together, else "".
    """

    query: Term
    lag: int
    slot: int = 0
    across: bool = False
    state: str = ""


@dataclass(frozen=True)
class Output:
    """A returned value: a state-free term over `Read`s, inputs and params."""

    name: str
    value: Term


@dataclass(frozen=True)
class NormalForm:
    """A recurrence whose state enters affinely with a diagonal-plus-low-rank transition on one side.

    `transposed`: the state was declared [value axis, key axis]. `columns`: vector states [key axis] that are further columns of `state`.
    `stabilizer`: the running maximum by which the state is scaled, with the log weight of what is written. `notes`: the structure that was
    recognised, one sentence each. `value_decay`: of the value side, of kind "none" or "vector" (one per value channel).
    """

    recurrence: Recurrence
    state: StateInfo
    columns: tuple[StateInfo, ...]
    stabilizer: Stabilizer | None
    key_axis: str
    value_axis: str
    transposed: bool
    decay: Decay
    streams: tuple[Stream, ...]
    reads: tuple[ReadOut, ...]
    outputs: tuple[Output, ...]
    notes: tuple[str, ...]
    value_decay: Decay = NO_DECAY

    @property
    def terms(self) -> tuple[Term, ...]:
        """Every term: of the decay, the streams, the reads and the outputs."""
        streams = (t for s in self.streams for t in (s.write, s.value, s.strength, s.correct, *s.columns))
        weight = None if self.stabilizer is None else self.stabilizer.weight
        found = (self.decay.log, self.value_decay.log, weight, *streams, *(r.query for r in self.reads), *(o.value for o in self.outputs))
        return tuple(t for t in found if t is not None)

    @property
    def read_axes(self) -> tuple[str, ...]:
        """The axis of every read."""
        return tuple(self.key_axis if r.across else self.value_axis for r in self.reads)

    @property
    def whole_values(self) -> bool:
        """Whether the value axis cannot be worked on in blocks: something sums over it, or it is the key axis too."""

        def sums(x: Term) -> bool:
            if not isinstance(x, Apply):
                return False
            return (x.op in ROW_FUNCTIONS and self.value_axis in x.args[0].shape) or (
                x.op == "matmul" and x.args[0].shape[1] == self.value_axis
            )

        whole = self.key_axis == self.value_axis or any(r.across for r in self.reads)
        return whole or any(sums(x) for t in self.terms for x in walk(t))

    @property
    def feedback(self) -> bool:
        """Whether any stream corrects by what the state holds."""
        return any(s.correct is not None for s in self.streams)

    @property
    def decays(self) -> bool:
        """Whether either side decays."""
        return self.decay.kind != "none" or self.value_decay.kind != "none"

    @property
    def by_value(self) -> bool:
        """Whether what a correction finds in a chunk differs by value channel, so that no one inverse serves all of them."""
        return self.value_decay.kind != "none" or any(s.strong_by_channel for s in self.streams)
