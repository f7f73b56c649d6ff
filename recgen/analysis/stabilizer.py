"""A running maximum of log weights: the scalar state by which `stabilize log` keeps every exponential at most 1.

    m_t = max(g_t + m_{t-1}, l_t)        S_t = exp(g_t + m_{t-1} - m_t) S_{t-1} + exp(l_t - m_t) w_t x_t^T

is S_t = exp(g_t) S_{t-1} + exp(l_t) w_t x_t^T, carried divided by exp(m_t) (Beck et al. 2024, xLSTM). What m is changes no result that is
invariant to that scale, so that no gradient goes through it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from recgen.analysis.arithmetic import plus
from recgen.analysis.normal_form import Stabilizer
from recgen.analysis.products import Product
from recgen.analysis.refusal import Refusal
from recgen.lang.recurrence import Recurrence, StateInfo
from recgen.lang.terms import SCALAR, Apply, Constant, State, Term, rebuild, walk

_WEIGHT = "weight"
"""Stands in an equation where exp(l - m[t]) stood."""


def unstabilized(recurrence: Recurrence) -> tuple[Recurrence, Stabilizer | None]:
    """The recurrence without its running maximum, exp(l) marked where it scales a write; and the maximum, None where there is none.

    Raises `Refusal` where `stabilize log` is asked for and no state is the maximum, or where that enters otherwise than as above.
    """
    scalars = [s for s in recurrence.states if not s.axes]
    if not recurrence.stabilize:
        if scalars:
            raise Refusal(
                f"state `{scalars[0].name}` is a number; one that scales the others needs a line `stabilize log`", scalars[0].span
            )
        return recurrence, None
    if len(scalars) != 1:
        span = scalars[1].span if scalars else recurrence.states[0].span
        raise Refusal(f"`stabilize log` needs one state without axes, the running maximum; there are {len(scalars)}", span)
    found = _maximum(scalars[0])
    others = tuple(replace(s, equation=_marked(s, found)) for s in recurrence.states if s.axes)
    return replace(recurrence, states=others), found


def weighted(products: list[Product], stabilizer: Stabilizer | None, state: StateInfo) -> list[Product]:
    """What is written, without the marks; raises `Refusal` where a write lacks the weight."""
    if stabilizer is None:
        return products
    found = []
    for p in products:
        marks = [x for x in p.scalars if _is_mark(x)]
        if len(marks) != 1:
            raise Refusal(f"`stabilize log`: what is written into `{state.name}` is not scaled by exp({_shown(stabilizer)})", p.span)
        found.append(replace(p, scalars=tuple(x for x in p.scalars if not _is_mark(x))))
    return found


def _shown(found: Stabilizer) -> str:
    return f"log weight - {found.state.name}[t]"


def _maximum(state: StateInfo) -> Stabilizer:
    """The maximum's own equation: max(g + m[t-1], l)."""
    expected = f"`stabilize log`: expected {state.name}[t] = max(log decay + {state.name}[t-1], log weight)"
    equation = state.equation
    if not isinstance(equation, Apply) or equation.op != "max":
        raise Refusal(expected, equation.span or state.span)
    carried, weight = sorted(equation.args, key=lambda x: not _mentions(x, state.name))
    parts = _addends(carried)
    before = State(state.name, 1, SCALAR)
    if parts.get(before) != 1 or _mentions(weight, state.name) or any(isinstance(y, State) for x in parts if x != before for y in walk(x)):
        raise Refusal(expected, equation.span or state.span)
    del parts[before]
    return Stabilizer(state, _sum(parts), weight)


def _mentions(term: Term, name: str) -> bool:
    return any(isinstance(x, State) and x.name == name for x in walk(term))


def _addends(term: Term) -> Counter[Term]:
    """A sum as how often each summand occurs, negative where it is subtracted."""
    found: Counter[Term] = Counter()
    match term:
        case Apply("add" | "sub", (left, right)):
            found.update(_addends(left))
            for x, n in _addends(right).items():
                found[x] += n if term.op == "add" else -n
        case Apply("neg", (arg,)):
            for x, n in _addends(arg).items():
                found[x] -= n
        case _:
            found[term] = 1
    return Counter({x: n for x, n in found.items() if n})


def _sum(parts: Counter[Term]) -> Term:
    """The sum of what `_addends` took apart; 0 for nothing."""
    total: Term | None = None
    for x, n in parts.items():
        part = x if n == 1 else Apply("mul", (Constant(float(n)), x), SCALAR, "", x.span)
        total = part if total is None else plus(total, part)
    return Constant(0.0) if total is None else total


def _marked(state: StateInfo, found: Stabilizer) -> Term:
    """The equation with exp(g + m[t-1] - m[t]) as exp(g), and exp(l - m[t]) as a mark."""
    name = found.state.name
    before, after = State(name, 1, SCALAR), State(name, 0, SCALAR)
    decay = _addends(found.decay) if found.decay != Constant(0.0) else Counter()
    weight = _addends(found.weight)

    def change(term: Term) -> Term:
        if not isinstance(term, Apply) or term.op != "exp" or not _mentions(term, name):
            return term
        parts = _addends(term.args[0])
        scale = (parts.pop(before, 0), parts.pop(after, 0))
        if scale == (1, -1) and parts == decay:
            return Apply("exp", (found.decay,), SCALAR, "", term.span)
        if scale == (0, -1) and parts == weight:
            return Apply(_WEIGHT, (found.weight,), SCALAR, "", term.span)
        return term

    equation = rebuild(state.equation, change)
    if _mentions(equation, name):
        raise Refusal(
            f"`stabilize log`: `{name}` enters `{state.name}` otherwise than in exp(log decay + {name}[t-1] - {name}[t]) and "
            f"exp({_shown(found)})",
            state.equation.span or state.span,
        )
    return equation


def _is_mark(term: Term) -> bool:
    return isinstance(term, Apply) and term.op == _WEIGHT
