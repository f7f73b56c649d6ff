"""Interval inference: known cases, and that it holds for values drawn from the domains."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recgen.lang.domains import interval
from recgen.lang.recurrence import ArgumentInfo, Interval
from recgen.lang.source import Span
from recgen.lang.terms import ELEMENTWISE, Apply, Argument, Constant, Term
from tests.lang.helpers import term

INF = math.inf
BOUNDS = {
    "a": (-INF, INF), "b": (0, 1), "g": (-INF, 0), "gk": (-5, 0), "k": (-INF, INF), "q": (0, INF), "v": (-2, 3), "w": (0.5, 4),
    "A_log": (-INF, INF),
}  # fmt: skip


def argument(name: str, low: float, high: float) -> ArgumentInfo:
    return ArgumentInfo(name, "input", (), False, "", Interval(low, high), (), Span(1, 1, 1, 1))


ARGUMENTS = tuple(argument(name, *bounds) for name, bounds in BOUNDS.items())


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("-exp(A_log) * softplus(a + 1)", -INF, 0),
        ("exp(g)", 0, 1),
        ("1 - b", 0, 1),
        ("b * exp(g)", 0, 1),
        ("exp(g) * b - b", -1, 1),
        ("sigmoid(a)", 0, 1),
        ("logsigmoid(a)", -INF, 0),
        ("-softplus(a)", -INF, 0),
        ("2 * sigmoid(a) - 1", -1, 1),
        ("b * a", -INF, INF),
        ("0 * a", 0, 0),
        ("g * b", -INF, 0),
        ("a * a", 0, INF),
        ("k^T @ k", 0, INF),
        ("k^2", 0, INF),
        ("v^2", 0, 9),
        ("v^3", -8, 27),
        ("w^-1", 0.25, 2),
        ("w^0.5", math.sqrt(0.5), 2),
        ("b^b", 0, 1),
        ("q^a", 0, INF),
        ("k^0", 1, 1),
        ("v^-1", -INF, INF),
        ("b^-1", 1, INF),
        ("g^-1", -INF, 0),
        ("1 / w", 0.25, 2),
        ("1 / b", 1, INF),
        ("1 / g", -INF, 0),
        ("1 / v", -INF, INF),
        ("exp(1000)", INF, INF),
        ("exp(-a * a)", 0, 1),
        ("max(a, 0)", 0, INF),
        ("min(max(a, 0), 1)", 0, 1),
        ("where(a < 0, b, 2)", 0, 2),
        ("b if flag else -b", -1, 1),
        ("l2norm(k)", -1, 1),
        ("l2norm(q)", 0, 1),
        ("rmsnorm(q)", 0, INF),
        ("sum(v)", -INF, INF),
        ("sum(w)", 0.5, INF),
        ("sum(-w)", -INF, -0.5),
        ("tanh(a)", -1, 1),
        ("sin(a) * cos(a)", -1, 1),
        ("abs(v)", 0, 3),
        ("sign(q)", 0, 1),
        ("relu(v)", 0, 3),
        ("silu(a)", -0.27846454276107380, INF),
        ("log(b)", -INF, 0),
        ("log1p(-b)", -INF, 0),
        ("expm1(g)", -1, 0),
        ("rsqrt(w)", 0.5, math.sqrt(2)),
        ("sqrt(b)", 0, 1),
        ("K^-0.5", 0, 1),
        ("g^0.5", -INF, INF),
        ("v^1.5", -INF, INF),
        ("v^-0.5", -INF, INF),
        ("sqrt(v)", -INF, INF),
        ("rsqrt(v)", -INF, INF),
        ("log(v)", -INF, INF),
        ("log1p(v)", -INF, INF),
        ("exp(log(v))", 0, INF),
        ("x", -INF, INF),
        ("S[t-1]", -INF, INF),
        ("b * k @ k^T", -INF, INF),
        ("w @ q^T", 0, INF),
        ("g - g", -INF, INF),
        ("(I + I) @ S[t]", -INF, INF),
    ],
)
def test_known_cases(text: str, low: float, high: float) -> None:
    found = interval(term(text), ARGUMENTS)
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-15)


def evaluate(node: Term, value: float, other: float) -> float:
    """The value of a term in two arguments `x`, `y`; NaN where it is none."""
    if isinstance(node, Constant):
        return node.value
    if isinstance(node, Argument):
        return value if node.name == "x" else other
    assert isinstance(node, Apply)
    args = [evaluate(a, value, other) for a in node.args]
    if any(math.isnan(a) for a in args):
        # Python's own max and pow may swallow one.
        return math.nan
    try:
        return float(FUNCTIONS[node.op](*args))
    except (OverflowError, ValueError, ZeroDivisionError):
        return math.nan


FUNCTIONS = {
    "neg": lambda x: -x, "add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y, "div": lambda x, y: x / y,
    "pow": math.pow, "min": min, "max": max, "exp": math.exp, "log": math.log, "log1p": math.log1p, "expm1": math.expm1, "sqrt": math.sqrt,
    "rsqrt": lambda x: 1 / math.sqrt(x), "sigmoid": lambda x: 1 / (1 + math.exp(-x)), "logsigmoid": lambda x: -math.log1p(math.exp(-x)),
    "softplus": lambda x: math.log1p(math.exp(x)), "silu": lambda x: x / (1 + math.exp(-x)), "relu": lambda x: max(x, 0), "tanh": math.tanh,
    "sin": math.sin, "cos": math.cos, "abs": abs, "sign": lambda x: (x > 0) - (x < 0),
}  # fmt: skip

X, Y = Argument("x", "input", ("1", "1")), Argument("y", "input", ("1", "1"))
OPERATIONS = ("add", "sub", "mul", "div", "pow", "min", "max")
CONSTANTS = st.sampled_from([-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0]).map(Constant)
TERMS = st.recursive(
    st.one_of(st.just(X), st.just(Y), CONSTANTS),
    lambda inner: st.one_of(
        st.builds(lambda op, a: Apply(op, (a,), ("1", "1")), st.sampled_from(["neg", *ELEMENTWISE]), inner),
        st.builds(lambda op, a, b: Apply(op, (a, b), ("1", "1")), st.sampled_from(OPERATIONS), inner, inner),
    ),
    max_leaves=5,
)
NUMBERS = st.floats(-6, 6)


@settings(deadline=None, max_examples=300)
@given(TERMS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.floats(0, 1), st.floats(0, 1))
def test_values_lie_in_the_interval(node: Term, a: float, b: float, c: float, d: float, p: float, r: float) -> None:
    (low, high), (bottom, top) = sorted((a, b)), sorted((c, d))
    found = interval(node, (argument("x", low, high), argument("y", bottom, top)))
    value = evaluate(node, min(high, low + p * (high - low)), min(top, bottom + r * (top - bottom)))
    assert not math.isnan(found.low)
    assert not math.isnan(found.high)
    if math.isfinite(value):
        slack = 1e-9 * (1 + abs(value))
        assert found.low - slack <= value <= found.high + slack
