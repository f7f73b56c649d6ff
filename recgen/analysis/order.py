"""The order in which the states of a token can be computed."""

from __future__ import annotations

from recgen.lang.recurrence import Recurrence, StateInfo
from recgen.lang.terms import State, walk


def within_a_token(recurrence: Recurrence) -> tuple[StateInfo, ...]:
    """The states, each after those that its equations read at the same token; the checker refuses a circle."""
    waiting, done = list(recurrence.states), dict[str, StateInfo]()
    while waiting:
        ready = next(s for s in waiting if _needs(s) <= done.keys())
        waiting.remove(ready)
        done[ready.name] = ready
    return tuple(done.values())


def _needs(state: StateInfo) -> set[str]:
    read = (x for step in state.steps for x in walk(step) if isinstance(x, State) and x.lag == 0)
    return {x.name for x in read} - {state.name}
