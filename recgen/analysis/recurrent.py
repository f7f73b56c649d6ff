"""The token form of any checked recurrence, from its equations alone."""

from __future__ import annotations

from collections.abc import Iterator

from recgen.analysis.normal_form import Output
from recgen.analysis.refusal import Refusal
from recgen.analysis.rewriting import applied
from recgen.analysis.token_form import Reason, TokenForm, TokenState
from recgen.lang.recurrence import Recurrence, StateInfo
from recgen.lang.terms import ROW_FUNCTIONS, SCALAR, Apply, Term, walk


def token_form(recurrence: Recurrence, reasons: tuple[Reason, ...]) -> TokenForm:
    """The recurrence as equations of one token; `reasons`: why it is no normal form.

    Raises:
        Refusal: a state has an axis that no argument has, so that nothing tells its size; or `stabilize log` is asked for.
    """
    if recurrence.stabilize:
        raise Refusal("`stabilize log` is of chunkwise forms; write the stabiliser as a state of its own", recurrence.states[0].span)
    known = {axis for a in recurrence.arguments for axis in a.axes}
    for state in recurrence.states:
        for axis in state.axes:
            if axis not in known:
                raise Refusal(f"state `{state.name}` has axis `{axis}`, which no input or param has: its size is not known", state.span)
    outputs = tuple(Output(name, applied(recurrence.definition(name))) for name in recurrence.outputs)
    values = {axis for o in outputs for axis in o.value.shape if axis != "1"}
    states = tuple(
        TokenState(s.name, s.axes, applied(s.equation), _turned(s, values), tuple(applied(m) for m in s.micro)) for s in recurrence.states
    )
    return TokenForm(recurrence, "recurrent", states, outputs, _split(states, outputs), reasons)


def _turned(state: StateInfo, values: set[str]) -> bool:
    """Whether a matrix is declared [value axis, key axis]: outputs run over its first axis and not over its second."""
    return len(state.axes) == 2 and state.axes[0] in values and state.axes[1] not in values


def _split(states: tuple[TokenState, ...], outputs: tuple[Output, ...]) -> str:
    """The axis that nothing sums over and that most states have; of several the last of the first state."""
    terms = (*(step for s in states for step in s.steps), *(o.value for o in outputs))
    summed = {axis for term in terms for axis in _summed(term)}
    square = {axis for term in terms for x in walk(term) for axis in x.shape if x.shape[0] == x.shape[1] != "1"}
    free = [axis for s in states for axis in reversed(s.axes) if axis not in summed | square]
    return max(free, key=lambda axis: sum(axis in s.axes for s in states), default="")


def _summed(term: Term) -> Iterator[str]:
    """The axes that a term sums over."""
    for x in walk(term):
        if isinstance(x, Apply) and x.op == "matmul" and x.args[0].shape[1] != "1":
            yield x.args[0].shape[1]
        elif isinstance(x, Apply) and x.op in ROW_FUNCTIONS and x.args[0].shape != SCALAR:
            yield next(axis for axis in x.args[0].shape if axis != "1")
