"""The names of a chunk's cumulated decays in PyTorch: those of the value side with "value_" before."""

from __future__ import annotations

from recgen.derive.chunk_ir import Step, nodes
from recgen.derive.chunk_nodes import (
    DecayColumn,
    Decayed,
    DecayedProduct,
    Gamma,
    GateGradient,
    Score,
    ScoreGradients,
    Substitution,
    Through,
)

Links = Score | DecayedProduct | ScoreGradients
"""What a decay by channel scales link by link."""

_STRETCHES = {"start": "from_start", "before": "from_start_before", "end": "to_end"}

VALUE_STRETCHES = frozenset(f"value_{name}" for name in (*_STRETCHES.values(), "through"))
"""The names of the value side's decays that scale rows and states."""


def stretch_name(node: Decayed | DecayColumn) -> str:
    """The decay of every token from the chunk's start or to its end."""
    return "value_" * (isinstance(node, Decayed) and node.values) + _STRETCHES[node.stretch]


def link_sums(node: Links) -> str:
    """The cumulated decays up to the rows and up to the columns."""
    side = "value_" * node.values
    return f"{side}before, {side}cumulated" if node.exclusive else f"{side}cumulated, {side}cumulated"


def through_name(node: Through) -> str:
    """The decay of a side over the whole chunk."""
    return "value_" * node.values + "through"


def stretches(steps: tuple[Step, ...]) -> set[str]:
    """Which cumulated decays the steps use: names of `_STRETCHES`, "through", "before"; those of the value side with "value_" before."""
    found: set[str] = set()
    for step in steps:
        for node in nodes(step.value):
            if isinstance(node, Decayed | DecayColumn):
                found.add(stretch_name(node))
            elif isinstance(node, Through | GateGradient):
                found.add("value_" * node.values + "through")
            elif isinstance(node, Gamma | Links) and node.exclusive:
                found.add("value_" * (not isinstance(node, Gamma) and node.values) + "before")
            elif isinstance(node, Substitution) and node.decays and node.exclusive:
                found.add("value_before")
    return found
