"""The checked recurrence: typed, shaped, with domains. The only thing later stages see of a spec."""

from __future__ import annotations

from dataclasses import dataclass, field

from recgen.lang.source import Source, Span
from recgen.lang.terms import Term

INFINITY = float("inf")


@dataclass(frozen=True)
class Interval:
    """A closed interval of the extended reals: what is known of a value."""

    low: float = -INFINITY
    high: float = INFINITY

    def within(self, low: float, high: float) -> bool:
        """Whether every value lies in [low, high]."""
        return self.low >= low and self.high <= high


@dataclass(frozen=True)
class ArgumentInfo:
    """A declared input (per token) or param (per head).

    `axes` without token and head axes; `grouped`: shared by a group of value heads; `domain` the declared name ("" if none), `interval` its
    bounds; `needed_if`: the boolean options under which it is read, as (option, value) pairs any of which makes it required, empty when it
    is always read.
    """

    name: str
    role: str
    axes: tuple[str, ...]
    grouped: bool
    domain: str
    interval: Interval
    needed_if: tuple[tuple[str, bool], ...]
    span: Span = field(compare=False)


@dataclass(frozen=True)
class PackedInfo:
    """An argument with a value for each micro-step: `info` as declared, its first axis a const, and the arguments that its values are."""

    info: ArgumentInfo
    members: tuple[str, ...]


@dataclass(frozen=True)
class OptionInfo:
    """A keyword of the generated functions: `default` is a boolean, or a state-free scalar term over axis sizes."""

    name: str
    default: bool | Term
    span: Span = field(compare=False)


@dataclass(frozen=True)
class StateInfo:
    """A carried state, its declared axes, and its equation at t.

    `micro`: the equations of its micro-states 0, 1, ... before the last step, each of which reads the one before.
    """

    name: str
    axes: tuple[str, ...]
    equation: Term
    span: Span = field(compare=False)
    micro: tuple[Term, ...] = ()

    @property
    def steps(self) -> tuple[Term, ...]:
        """The equations of one token in order."""
        return (*self.micro, self.equation)


@dataclass(frozen=True)
class Definition:
    """A named expression, inlined wherever it is used; kept for readable names."""

    name: str
    value: Term
    span: Span = field(compare=False)


@dataclass(frozen=True)
class Recurrence:
    """A spec that passed every check.

    What is declared with a value for each micro-step is one of the `arguments` for each; `packed` says which belong together.
    `definitions` are in dependency order and include the outputs; `outputs` names those that are returned.
    """

    name: str
    doc: str
    arguments: tuple[ArgumentInfo, ...]
    packed: tuple[PackedInfo, ...]
    options: tuple[OptionInfo, ...]
    consts: tuple[tuple[str, int], ...]
    states: tuple[StateInfo, ...]
    definitions: tuple[Definition, ...]
    outputs: tuple[str, ...]
    plan: str
    stabilize: bool
    source: Source = field(compare=False)

    @property
    def declared(self) -> tuple[ArgumentInfo, ...]:
        """The inputs and params as the caller passes them."""
        whole = {p.members[0]: p.info for p in self.packed}
        parts = {name for p in self.packed for name in p.members[1:]}
        return tuple(whole.get(a.name, a) for a in self.arguments if a.name not in parts)

    def argument(self, name: str) -> ArgumentInfo:
        """The input or param of this name."""
        return next(a for a in self.arguments if a.name == name)

    def definition(self, name: str) -> Term:
        """The value of the definition of this name."""
        return next(d.value for d in self.definitions if d.name == name)

    def state(self, name: str) -> StateInfo:
        """The state of this name."""
        return next(s for s in self.states if s.name == name)

    @property
    def scales(self) -> tuple[StateInfo, ...]:
        """The states that `stabilize log` makes a choice of scale, which no gradient goes through: those without axes.

        Token by token nothing needs it, and every gradient is that of the equations.
        """
        return tuple(s for s in self.states if self.stabilize and not self.plan and not s.axes)
