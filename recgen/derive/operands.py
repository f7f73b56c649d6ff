"""The operands of the chunk form: which expressions of the spec stand for q, w, X, c, a and g, each computed once."""

from __future__ import annotations

from dataclasses import dataclass

from recgen.analysis.normal_form import NormalForm
from recgen.derive.chunk_ir import Operand
from recgen.lang.terms import Apply, Term


@dataclass(frozen=True)
class StreamNames:
    """The operand names of one write stream; "" where it has none, and its micro-step. `tag` tells several streams apart.

    `by_channel`: the strength is a vector over the value axis.
    `columns`: the numbers that it writes into the further columns of the state.
    """

    tag: str
    write: str
    value: str
    strength: str
    correct: str
    decayed: bool
    slot: int
    columns: tuple[str, ...] = ()
    by_channel: bool = False

    @property
    def stretch(self) -> str:
        """Over what the incoming state has decayed when the stream corrects."""
        return "start" if self.decayed else "before"

    def finds(self, other: StreamNames) -> bool:
        """Whether its correction finds what the other stream writes at the same token."""
        return other.slot < self.slot


@dataclass(frozen=True)
class ReadNames:
    """The operand name of one read's query, its lag and micro-step; `tag` tells several reads apart ("" for a single one).

    `across`: S query, the query over the value axis, instead of S^T query. `state`: which of several coupled states is read.
    """

    tag: str
    query: str
    lag: int
    slot: int
    across: bool
    state: int = 0

    @property
    def stretch(self) -> str:
        """Over what the incoming state has decayed when it is read."""
        return "before" if self.lag == 1 else "start"

    def sees(self, stream: StreamNames) -> bool:
        """Whether it sees what the stream writes at the same token."""
        return self.lag == 0 and stream.slot <= self.slot


@dataclass(frozen=True)
class NamedOperands:
    """Every operand with its term, equal terms as one operand, and the reads."""

    operands: tuple[Operand, ...]
    terms: tuple[tuple[str, Term], ...]
    reads: tuple[ReadNames, ...]

    def term(self, name: str) -> Term:
        """The expression behind an operand."""
        return dict(self.terms)[name]

    @property
    def signs(self) -> frozenset[str]:
        """The operands that no gradient goes to: signs are constant piece by piece."""
        return frozenset(o.name for o in self.operands if o.symbol == "sign")


@dataclass(frozen=True)
class OperandSet(NamedOperands):
    """The operands of a normal form.

    `columns`: how many further columns the state has; `stabilized`: `log_weight` scales what is written, under a running maximum.
    """

    streams: tuple[StreamNames, ...]
    columns: int = 0
    stabilized: bool = False

    @property
    def ordinary(self) -> tuple[ReadNames, ...]:
        """The reads S^T query, over the value axis."""
        return tuple(r for r in self.reads if not r.across)

    @property
    def across(self) -> tuple[ReadNames, ...]:
        """The reads S query, over the key axis."""
        return tuple(r for r in self.reads if r.across)


class Namer:
    """Names operands, one for equal terms."""

    def __init__(self) -> None:
        self.names: dict[tuple[Term, str], str] = {}
        self.operands: list[Operand] = []
        self.terms: list[tuple[str, Term]] = []

    def name(self, term: Term | None, hint: str, size: str, symbol: str) -> str:
        """The name of an operand for this term, from `hint`; "" for none."""
        if term is None:
            return ""
        key = (term, size)
        if key not in self.names:
            taken = set(self.names.values())
            name, n = hint, 1
            while name in taken:
                n += 1
                name = f"{hint}{n}"
            self.names[key] = name
            self._append(term, name, size, symbol)
        return self.names[key]

    def gate(self, term: Term, name: str, size: str, symbol: str) -> None:
        """An operand of a fixed name, which shares nothing with a vector or number that happens to be equal."""
        self._append(term, name, size, symbol)

    def _append(self, term: Term, name: str, size: str, symbol: str) -> None:
        self.operands.append(Operand(name, size, symbol))
        self.terms.append((name, term))


def name_operands(form: NormalForm) -> OperandSet:
    """Names for all operands of a normal form: query, write, value, strength, correct, column, log_decay, value_log_decay, log_weight."""
    namer = Namer()
    streams = []
    for i, s in enumerate(form.streams):
        write = namer.name(s.write, "write", "K", "w")
        correct = namer.name(s.correct, "correct", "K", "a")
        value = namer.name(s.value, "value", "V", "X")
        strength = namer.name(s.strength, "strength", "V" if s.strong_by_channel else "1", "c")
        columns = tuple(namer.name(c, "column", "1", "x") for c in s.columns)
        tag = tag_of(i, len(form.streams))
        streams.append(StreamNames(tag, write, value, strength, correct, s.decayed, s.slot, columns, s.strong_by_channel))
    reads = tuple(
        ReadNames(tag_of(i, len(form.reads)), namer.name(r.query, "query", "V" if r.across else "K", "q"), r.lag, r.slot, r.across)
        for i, r in enumerate(form.reads)
    )
    if form.decay.log is not None:
        size = "K" if form.decay.kind == "vector" else "1"
        namer.gate(form.decay.log, "log_decay", size, "g")
        if form.decay.signed is not None:
            namer.name(Apply("sign_of", (form.decay.signed,), form.decay.signed.shape), "sign", size, "sign")
    if form.value_decay.log is not None:
        namer.gate(form.value_decay.log, "value_log_decay", "V", "u")
        if form.value_decay.signed is not None:
            namer.name(Apply("sign_of", (form.value_decay.signed,), form.value_decay.signed.shape), "value_sign", "V", "sign")
    if form.stabilizer is not None:
        namer.gate(form.stabilizer.weight, "log_weight", "1", "l")
    return OperandSet(tuple(namer.operands), tuple(namer.terms), reads, tuple(streams), len(form.columns), form.stabilizer is not None)


def tag_of(index: int, count: int) -> str:
    """What tells one of several apart."""
    return "" if count == 1 else f"_{index + 1}"
