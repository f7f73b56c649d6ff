"""Which form by products of matrices a recurrence has, and why it has none."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from recgen.analysis.algebra import expand
from recgen.analysis.analyzer import analyze
from recgen.analysis.coupled import analyze_coupled, is_system
from recgen.analysis.coupled_form import CoupledForm
from recgen.analysis.normal_form import NormalForm
from recgen.analysis.refusal import Refusal
from recgen.analysis.token_form import Reason
from recgen.lang.recurrence import Recurrence


def chunkwise(recurrence: Recurrence) -> NormalForm | CoupledForm:
    """The normal form, or the coupled form of several matrix states over the same axes; raises `Refusal`."""
    return analyze_coupled(recurrence) if is_system(recurrence) else analyze(recurrence)


def reasons_against_chunks(recurrence: Recurrence) -> tuple[Reason, ...]:
    """Why the recurrence has neither, if it has none: as a whole, then equation by equation."""
    found: list[Reason] = []

    def attempt(what: Callable[[], object]) -> None:
        try:
            what()
        except Refusal as refusal:
            found.append(Reason(refusal.reason, refusal.span))

    attempt(lambda: chunkwise(recurrence))
    if found:
        for step in (step for state in recurrence.states for step in state.steps):
            attempt(partial(expand, step))
    return tuple({reason.text: reason for reason in reversed(found)}.values())[::-1]
