"""Interval inference: what is known of the value of a term from the domains of the arguments in it."""

from __future__ import annotations

import math
from collections.abc import Callable

from recgen.lang.recurrence import INFINITY, ArgumentInfo, Interval
from recgen.lang.terms import Apply, Argument, AxisSize, Constant, Eye, Term

EVERYTHING = Interval()
UNIT = Interval(0.0, 1.0)

_SILU_ARGMIN = -1.2784645427610738
_SILU_MINIMUM = -0.27846454276107380


def interval(term: Term, arguments: tuple[ArgumentInfo, ...]) -> Interval:
    """Bounds of every entry of a term, by interval arithmetic.

    States, reads and options (run-time numbers) are unbounded. The bounds are closed and may be infinite. What has no real value somewhere
    (a logarithm, a root or a power of an interval that reaches below its domain) has no bounds at all.
    """
    return _Intervals({a.name: a.interval for a in arguments}).of(term)


class _Intervals:
    def __init__(self, arguments: dict[str, Interval]) -> None:
        self.arguments = arguments
        self.known: dict[int, Interval] = {}

    def of(self, term: Term) -> Interval:
        match term:
            case Constant(value=value):
                return EVERYTHING if math.isnan(value) else Interval(value, value)
            case AxisSize():
                return Interval(1.0, INFINITY)
            case Argument(name=name):
                return self.arguments.get(name, EVERYTHING)
            case Eye():
                return UNIT
            case Apply():
                # Definitions are shared objects: each is worked out once.
                if id(term) not in self.known:
                    self.known[id(term)] = self._apply(term)
                return self.known[id(term)]
        return EVERYTHING

    def _apply(self, term: Apply) -> Interval:
        if term.op in ("mul", "matmul") and _is_square(term):
            factor, sign = _unsigned(term.args[1])
            power = _power(self.of(factor), 2.0)
            sign *= _unsigned(term.args[0])[1]
            signed = power if sign > 0 else Interval(-power.high, -power.low)
            return signed if term.op == "mul" else _sum(signed)
        args = [self.of(a) for a in term.args]
        match term.op:
            case "select" | "where<" | "where<=":
                return _union(args[-2], args[-1])
            case "pow":
                return _power(args[0], args[1].low) if args[1].low == args[1].high else _general_power(args[0], args[1])
            case "matmul":
                product = _multiply(args[0], args[1])
                return product if term.args[0].shape[1] == "1" else _sum(product)
        if term.op in _BINARY:
            return _BINARY[term.op](args[0], args[1])
        return _UNARY[term.op](args[0])


def _is_square(term: Apply) -> bool:
    """`x * x`, and `x^T @ x` of a column, up to sign."""
    left, right = _unsigned(term.args[0])[0], _unsigned(term.args[1])[0]
    if term.op == "mul":
        return left == right
    return isinstance(left, Apply) and left.op == "transpose" and left.args[0] == right and right.shape[1] == "1"


def _unsigned(term: Term) -> tuple[Term, int]:
    """The term without its outer minus signs, and their product."""
    sign = 1
    while isinstance(term, Apply) and term.op == "neg":
        term, sign = term.args[0], -sign
    return term, sign


def _make(low: float, high: float) -> Interval:
    """An interval whose bounds are unknown where they came out as inf - inf."""
    return Interval(-INFINITY if math.isnan(low) else low, INFINITY if math.isnan(high) else high)


def _union(a: Interval, b: Interval) -> Interval:
    return Interval(min(a.low, b.low), max(a.high, b.high))


def _times(x: float, y: float) -> float:
    """A product of bounds: an infinite bound is a limit, so 0 times it is 0."""
    return 0.0 if x == 0 or y == 0 else x * y


def _multiply(a: Interval, b: Interval) -> Interval:
    products = [_times(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    return Interval(min(products), max(products))


def _reciprocal(a: Interval) -> Interval:
    if a.low < 0 < a.high or a.low == a.high == 0:
        return EVERYTHING
    low = -INFINITY if a.high == 0 else 1 / a.high
    high = INFINITY if a.low == 0 else 1 / a.low
    return Interval(low, high)


def _sum(a: Interval) -> Interval:
    """A sum of one or more entries."""
    return Interval(a.low if a.low >= 0 else -INFINITY, a.high if a.high <= 0 else INFINITY)


def _safe(function: Callable[[float], float], x: float) -> float:
    """A real function of a bound; overflow is infinity."""
    try:
        return function(x)
    except OverflowError:
        return INFINITY


def _raise(x: float, exponent: float) -> float:
    """A bound to a power: 0 to a negative one is the limit from above."""
    if x == 0 and exponent < 0:
        return INFINITY
    try:
        return float(math.pow(x, exponent))
    except OverflowError:
        return -INFINITY if x < 0 and exponent % 2 == 1 else INFINITY


def _power(a: Interval, exponent: float) -> Interval:
    """The interval to a known exponent."""
    if exponent == 0:
        return Interval(1.0, 1.0)
    whole = math.isfinite(exponent) and exponent.is_integer()
    if not whole:
        if a.low < 0 or not math.isfinite(exponent):
            return Interval(0.0, INFINITY) if a.low >= 0 else EVERYTHING
    elif exponent % 2 == 0:
        low = 0.0 if a.low <= 0 <= a.high else min(abs(a.low), abs(a.high))
        a = Interval(low, max(abs(a.low), abs(a.high)))
    elif exponent < 0 and (a.low < 0 <= a.high or a.high == 0):
        return _reciprocal(_power(a, -exponent))
    ends = (_raise(a.low, exponent), _raise(a.high, exponent))
    return Interval(min(ends), max(ends))


def _general_power(a: Interval, b: Interval) -> Interval:
    """The interval to an unknown exponent."""
    if a.low >= 0 and a.high <= 1 and b.low >= 0:
        return UNIT
    return Interval(0.0, INFINITY) if a.low >= 0 else EVERYTHING


def _monotone(function: Callable[[float], float]) -> Callable[[Interval], Interval]:
    """The interval form of a function that never falls."""
    return lambda a: Interval(_safe(function, a.low), _safe(function, a.high))


def _rising_above(function: Callable[[float], float], minimum: float) -> Callable[[Interval], Interval]:
    """The interval form of a function that never falls and is defined above `minimum`, where it is `function(minimum)` in the limit."""
    return lambda a: EVERYTHING if a.low < minimum else Interval(_safe(function, a.low), _safe(function, a.high))


def _log(x: float) -> float:
    return math.log(x) if x > 0 else -INFINITY


def _log1p(x: float) -> float:
    return math.log1p(x) if x > -1 else -INFINITY


def _sigmoid(x: float) -> float:
    if x >= 0:
        return 1 / (1 + math.exp(-x))
    return math.exp(x) / (1 + math.exp(x))


def _softplus(x: float) -> float:
    return INFINITY if x == INFINITY else max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def _silu_at(x: float) -> float:
    return 0.0 if x == -INFINITY else x * _sigmoid(x)


def _silu(a: Interval) -> Interval:
    ends = (_silu_at(a.low), _silu_at(a.high))
    low = _SILU_MINIMUM if a.low <= _SILU_ARGMIN <= a.high else min(ends)
    return Interval(low, max(ends))


def _rsqrt(a: Interval) -> Interval:
    return _power(a, -0.5)


def _abs(a: Interval) -> Interval:
    return Interval(0.0 if a.low <= 0 <= a.high else min(abs(a.low), abs(a.high)), max(abs(a.low), abs(a.high)))


def _sign(x: float) -> float:
    return float((x > 0) - (x < 0))


def _wave(_: Interval) -> Interval:
    return Interval(-1.0, 1.0)


def _l2norm(a: Interval) -> Interval:
    return Interval(0.0 if a.low >= 0 else -1.0, 0.0 if a.high <= 0 else 1.0)


def _rmsnorm(a: Interval) -> Interval:
    return Interval(0.0 if a.low >= 0 else -INFINITY, 0.0 if a.high <= 0 else INFINITY)


_BINARY: dict[str, Callable[[Interval, Interval], Interval]] = {
    "add": lambda a, b: _make(a.low + b.low, a.high + b.high),
    "sub": lambda a, b: _make(a.low - b.high, a.high - b.low),
    "mul": _multiply,
    "div": lambda a, b: _multiply(a, _reciprocal(b)),
    "min": lambda a, b: Interval(min(a.low, b.low), min(a.high, b.high)),
    "max": lambda a, b: Interval(max(a.low, b.low), max(a.high, b.high)),
}

_UNARY: dict[str, Callable[[Interval], Interval]] = {
    "neg": lambda a: Interval(-a.high, -a.low),
    "transpose": lambda a: a,
    "exp": _monotone(math.exp),
    "log": _rising_above(_log, 0.0),
    "log1p": _rising_above(_log1p, -1.0),
    "expm1": _monotone(math.expm1),
    "sqrt": _rising_above(math.sqrt, 0.0),
    "rsqrt": _rsqrt,
    "sigmoid": _monotone(_sigmoid),
    "logsigmoid": _monotone(lambda x: -_softplus(-x)),
    "softplus": _monotone(_softplus),
    "silu": _silu,
    "relu": _monotone(lambda x: max(x, 0.0)),
    "tanh": _monotone(math.tanh),
    "sin": _wave,
    "cos": _wave,
    "abs": _abs,
    "sign": _monotone(_sign),
    "l2norm": _l2norm,
    "rmsnorm": _rmsnorm,
    "sum": _sum,
}
