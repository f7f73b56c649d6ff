"""The operands of the chunk form of coupled states, each computed once."""

from __future__ import annotations

import math
from dataclasses import dataclass

from recgen.analysis.coupled_form import CoupledForm
from recgen.derive.operands import NamedOperands, Namer, ReadNames, tag_of
from recgen.lang.terms import Apply, Constant, Term


@dataclass(frozen=True)
class FeedNames:
    """A feed with the name of its number: of tokens that fill up a chunk it is 0, whatever it is of others."""

    target: int
    source: int
    lag: int
    weight: str


@dataclass(frozen=True)
class CorrectionNames:
    """A correction with the name of its direction."""

    correct: str
    state: int
    lag: int


@dataclass(frozen=True)
class CoupledStreamNames:
    """The operand names of one write stream; `value` "" for none; `into`: the states that take it, each with a number, "" for 1."""

    tag: str
    write: str
    value: str
    corrections: tuple[CorrectionNames, ...]
    into: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class CoupledOperands(NamedOperands):
    """The operands of a coupled form; `kinds`: of every state's decay, "scalar" or "none"."""

    streams: tuple[CoupledStreamNames, ...]
    feeds: tuple[FeedNames, ...]
    kinds: tuple[str, ...]

    @property
    def count(self) -> int:
        """How many states there are."""
        return len(self.kinds)


def name_coupled(form: CoupledForm) -> CoupledOperands:
    """Names for all operands: query, write, value, correct, share, feed, and log_decay_1, .. of the states in order."""
    namer = Namer()

    def number(term: Term, hint: str, symbol: str) -> str:
        return "" if term == Constant(1.0) else namer.name(term, hint, "1", symbol)

    streams = []
    for i, s in enumerate(form.streams):
        write = namer.name(s.write, "write", "K", "w")
        corrections = tuple(CorrectionNames(namer.name(c.correct, "correct", "K", "a"), c.state, c.lag) for c in s.corrections)
        value = namer.name(s.value, "value", "V", "X")
        into = tuple((a, number(z, "share", "z")) for a, z in enumerate(s.into) if z is not None)
        streams.append(CoupledStreamNames(tag_of(i, len(form.streams)), write, value, corrections, into))
    reads = tuple(
        ReadNames(tag_of(i, len(form.reads)), namer.name(r.query, "query", "K", "q"), r.lag, 0, False, form.names.index(r.state))
        for i, r in enumerate(form.reads)
    )
    feeds = tuple(FeedNames(f.target, f.source, f.lag, namer.name(f.weight, "feed", "1", "f")) for f in form.feeds)
    _name_decays(form, namer)
    kinds = tuple("none" if d.kind == "none" else "scalar" for d in form.decays)
    return CoupledOperands(tuple(namer.operands), tuple(namer.terms), reads, tuple(streams), feeds, kinds)


def _name_decays(form: CoupledForm, namer: Namer) -> None:
    """Log decays, of a state that does not carry itself on -inf; where a multiplier may be negative, all of them have a sign."""
    signed = any(d.signed is not None for d in form.decays)
    for i, d in enumerate(form.decays):
        if d.kind == "none":
            continue
        namer.gate(Constant(-math.inf) if d.log is None else d.log, f"log_decay_{i + 1}", "1", "g")
        if signed:
            sign: Term = Constant(1.0) if d.signed is None else Apply("sign_of", (d.signed,), d.signed.shape)
            namer.gate(sign, f"sign_{i + 1}", "1", "sign")
