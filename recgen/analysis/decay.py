"""The decay of a state: the products that only scale it, as one multiplier and as its logarithm."""

from __future__ import annotations

from dataclasses import dataclass, replace

from recgen.analysis.arithmetic import plus, scalar_term, times
from recgen.analysis.normal_form import NO_DECAY, Decay
from recgen.analysis.refusal import Refusal
from recgen.lang.domains import interval
from recgen.lang.recurrence import Recurrence, StateInfo
from recgen.lang.terms import SCALAR, Apply, Argument, Constant, Term, walk


@dataclass(frozen=True)
class Multiplier:
    """coefficient * scalars * diag(diagonal), the diagonal None for a multiple of the identity; `values`: a diagonal on the value side."""

    coefficient: float
    scalars: tuple[Term, ...]
    diagonal: Term | None
    values: Term | None = None

    @property
    def trivial(self) -> bool:
        """Whether it is the number 1."""
        return self.coefficient == 1.0 and not self.scalars and self.diagonal is None and self.values is None

    @property
    def term(self) -> Term:
        """The multiplier of the key side as one term: a scalar, or a key column."""
        scalar = scalar_term(self.coefficient, self.scalars)
        return scalar if self.diagonal is None else times(scalar, self.diagonal)


def decays_of(parts: list[Multiplier], recurrence: Recurrence, state: StateInfo) -> tuple[Decay, Decay, Multiplier]:
    """The decays of the key side and of the value side, and their multiplier; numbers join a side that decays by channel."""
    if all(p.values is None for p in parts):
        decay, multiplier = decay_of(parts, recurrence, state)
        return decay, NO_DECAY, multiplier
    if len(parts) > 1:
        raise Refusal("the state is scaled by a sum, a part of it by value channel: write it as one product", state.span)
    (whole,) = parts
    keys = replace(whole, values=None)
    values = Multiplier(1.0, (), whole.values)
    if whole.diagonal is None:
        keys, values = Multiplier(1.0, (), None), replace(keys, diagonal=whole.values)
    (decay, _), (value_decay, _) = decay_of([keys], recurrence, state), decay_of([values], recurrence, state)
    return decay, value_decay, whole


def decay_of(parts: list[Multiplier], recurrence: Recurrence, state: StateInfo) -> tuple[Decay, Multiplier]:
    """The decay and its multiplier from the products that carry the state on unchanged in direction (several are added)."""
    parts = _collected(parts)
    if not parts:
        raise Refusal(f"{state.name}[t] does not carry {state.name}[t-1] on: every step starts afresh", state.span)
    whole = parts[0] if len(parts) == 1 else Multiplier(1.0, (), None)
    total = parts[0].term
    for part in parts[1:]:
        total = plus(total, part.term)
    if len(parts) > 1:
        whole = Multiplier(1.0, (total,), None) if total.shape == SCALAR else Multiplier(1.0, (), total)
    if whole.trivial:
        return NO_DECAY, whole
    bounds = interval(total, recurrence.arguments)
    kind = "scalar" if total.shape == SCALAR else "vector"
    constant = not any(isinstance(x, Argument) and x.role == "input" for x in walk(total))
    if bounds.low >= 0.0:
        return Decay(kind, _log(whole), constant, None, bounds.high <= 1.0), whole
    return Decay(kind, Apply("log_floor", (total,), total.shape, "", total.span), constant, total, bounds.within(-1.0, 1.0)), whole


def _collected(parts: list[Multiplier]) -> list[Multiplier]:
    """Equal multiples added, and what cancels left out."""
    sums: dict[tuple[tuple[Term, ...], Term | None], float] = {}
    for part in parts:
        key = (part.scalars, part.diagonal)
        sums[key] = sums.get(key, 0.0) + part.coefficient
    return [Multiplier(coefficient, *key) for key, coefficient in sums.items() if coefficient != 0.0]


def _log(whole: Multiplier) -> Term:
    """log of the multiplier, factor by factor: log exp(x) is x, log sigmoid(x) is logsigmoid(x), else a floored logarithm."""
    factors = list(whole.scalars) + (_vector_factors(whole.diagonal) if whole.diagonal is not None else [])
    if whole.coefficient != 1.0:
        factors.insert(0, Constant(whole.coefficient))
    logs = [_log_factor(f) for f in factors]
    total = logs[0]
    for x in logs[1:]:
        total = plus(total, x)
    return total


def _vector_factors(term: Term) -> list[Term]:
    if isinstance(term, Apply) and term.op == "mul":
        return _vector_factors(term.args[0]) + _vector_factors(term.args[1])
    return [term]


def _log_factor(factor: Term) -> Term:
    if isinstance(factor, Apply) and factor.op == "exp":
        return factor.args[0]
    if isinstance(factor, Apply) and factor.op == "sigmoid":
        return Apply("logsigmoid", factor.args, factor.shape, "", factor.span)
    return Apply("log_floor", (factor,), factor.shape, "", factor.span)
