"""The token form of a recurrence: the spec's own equations, for recurrences that run one token after another.

It is what `plan recurrent` compiles, whatever the equations are: several states, states that feed one another within a token, states inside
nonlinear functions, dense transitions.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from recgen.analysis.normal_form import Output
from recgen.lang.recurrence import Recurrence
from recgen.lang.source import Span
from recgen.lang.terms import Term


@dataclass(frozen=True)
class TokenState:
    """A carried state: its axes as declared and what it becomes, a term over arguments and states of either lag.

    `micro`: what it is after each micro-step of the token before the last; empty where a token has one step.
    `turned`: a matrix that was declared [value axis, key axis]; callers' states and the forms' have the key axis first.
    """

    name: str
    axes: tuple[str, ...]
    equation: Term
    turned: bool
    micro: tuple[Term, ...] = ()

    @property
    def steps(self) -> tuple[Term, ...]:
        """The micro-steps, then the equation."""
        return (*self.micro, self.equation)


@dataclass(frozen=True)
class Reason:
    """Why the recurrence has no chunkwise form, in the user's terms, and the term in the user's text that breaks it."""

    text: str
    span: Span | None = field(compare=False)


@dataclass(frozen=True)
class TokenForm:
    """A recurrence as equations of one token.

    `kind`: the class, "recurrent" for one that is compiled token by token. `states` in declaration order; their equations may read
    states at t, without a cycle. `outputs`: terms over arguments and states. `split`: the axis over whose blocks programs may be spread,
    since nothing sums over it, "" if there is none. `reasons`: why it is no normal form; empty where it has one and the plan asks for the
    token form.
    """

    recurrence: Recurrence
    kind: str
    states: tuple[TokenState, ...]
    outputs: tuple[Output, ...]
    split: str
    reasons: tuple[Reason, ...]

    @property
    def terms(self) -> tuple[Term, ...]:
        """The equations of all states, then the outputs."""
        return (*(step for s in self.states for step in s.steps), *(o.value for o in self.outputs))
