"""Check: what the text alone decides is a finite number. Infinity may stand where values are chosen or bounded, not in arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from recgen.lang.diagnostics import Reporter
from recgen.lang.source import Span
from recgen.lang.suggest import quote
from recgen.lang.terms import Apply, Constant, Term

INFINITE = "one of its parts is infinite"
ZERO = "it divides by 0"
LARGE = "its value is too large"
UNREAL = "it has no real value"
WIDE = "one of its parts is more than float32 holds"
FLOAT32_MAX = 3.4028234663852886e38

_HELP = {
    INFINITE: "write the limit itself; `inf` stands in `min`, `max`, `where`, options and domains",
    ZERO: "divide by what is not 0 whatever the inputs",
    LARGE: "numbers are at most about 1e308, and 3e38 beside inputs and states",
    UNREAL: "check the sign of what is inside",
    WIDE: "numbers are at most about 3e38 beside inputs and states, which are computed in float32 unless inputs are float64",
}
_ARITHMETIC = ("add", "sub", "mul", "div", "pow")


def report_not_finite(terms: Iterable[Term], reporter: Reporter) -> None:
    """Reports arithmetic on numbers alone that gives none, divisions by the number 0, and arithmetic on numbers that float32 cannot hold.

    Each place is reported once. Infinity is no number that is held.
    """
    check = _Check(reporter)
    for term in terms:
        check.value(term)


class _Check:
    def __init__(self, reporter: Reporter) -> None:
        self.reporter = reporter
        self.told: set[Span] = set()

    def value(self, term: Term) -> float | None:
        """The number that a term is whatever the inputs, options and sizes; None if they decide, or if it was reported."""
        if isinstance(term, Constant):
            return term.value
        if not isinstance(term, Apply):
            return None
        values = [self.value(a) for a in term.args]
        reason = _reason(term.op, values)
        if reason:
            self._report(term, reason)
        if reason or None in values or term.op not in _VALUES:
            return None
        found, reason = _computed(term.op, [v for v in values if v is not None])
        if reason:
            self._report(term, reason)
        return found

    def _report(self, term: Apply, reason: str) -> None:
        assert term.span is not None
        if term.span not in self.told:
            self.told.add(term.span)
            text = quote(self.reporter.source, term.span)
            self.reporter.report("E231", term.span, help=_HELP[reason], text=text, reason=reason)


def _reason(op: str, values: list[float | None]) -> str:
    """What an operation does with a number that no other operand makes up for."""
    if op in _ARITHMETIC and any(v is not None and math.isinf(v) for v in values):
        return INFINITE
    if op == "div" and values[1] == 0.0:
        return ZERO
    beside = op in _ARITHMETIC and None in values
    return WIDE if beside and any(v is not None and abs(v) > FLOAT32_MAX for v in values) else ""


def _computed(op: str, values: list[float]) -> tuple[float | None, str]:
    """The number, or the reason why there is none; a function of infinity may be infinite."""
    try:
        found = _VALUES[op](*values)
    except ZeroDivisionError:
        return None, ZERO
    except OverflowError:
        return None, LARGE
    except ValueError:
        return None, UNREAL
    if isinstance(found, complex) or math.isnan(found):
        return None, UNREAL
    return (None, LARGE) if math.isinf(found) and not any(map(math.isinf, values)) else (found, "")


def _sigmoid(x: float) -> float:
    return 0.5 * (1.0 + math.tanh(0.5 * x))


def _softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


_VALUES: dict[str, Callable[..., float]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "pow": lambda x, y: x**y,
    "neg": lambda x: -x,
    "min": min,
    "max": max,
    "where<": lambda a, b, x, y: x if a < b else y,
    "where<=": lambda a, b, x, y: x if a <= b else y,
    "transpose": lambda x: x,
    **{op: getattr(math, op) for op in ("exp", "log", "log1p", "expm1", "sqrt", "tanh", "sin", "cos")},
    "rsqrt": lambda x: x**-0.5,
    "sigmoid": _sigmoid,
    "logsigmoid": lambda x: -_softplus(-x),
    "softplus": _softplus,
    "silu": lambda x: x * _sigmoid(x),
    "relu": lambda x: max(x, 0.0),
    "abs": abs,
    "sign": lambda x: float((x > 0) - (x < 0)),
}
"""Operations on numbers alone."""
