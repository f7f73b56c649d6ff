"""The adjoint of a program, by the chain rule over its statements in reverse.

Every rule is written so that the gradient is finite wherever the function is. The forward values are recomputed, not stored.
"""

from __future__ import annotations

from collections.abc import Callable

from recgen.derive.program import Assign, Branch, Literal, Operand, Program, Scope, Statement, Value, assigned, move, needed


class _Adjoint:
    """Collects gradient contributions per value while walking backwards."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.gradients: dict[Value, Value] = {}

    def add(self, value: Operand, gradient: Value) -> None:
        """Add a contribution to the gradient of `value`; numbers have none."""
        if not isinstance(value, Value):
            return
        before = self.gradients.get(value)
        if before is not None:
            gradient = self.scope.assign("add", (before, gradient), value, f"d_{value.name}")
        self.gradients[value] = gradient

    def op(self, op: str, *args: Operand, like: Value | None = None) -> Value:
        """A new value `op(args)` of the kind of the first value among args, or of `like`."""
        kind = like or next(a for a in args if isinstance(a, Value))
        return self.scope.assign(op, args, kind, "d")


def differentiate(program: Program, wanted: tuple[Value, ...], reserved: frozenset[str]) -> tuple[Program, tuple[tuple[str, Value], ...]]:
    """The program that computes the gradient of every value of `wanted`.

    Returns it together with the cotangents it expects: (role, value) for every result that is a value. Its results are named after the
    wanted values; a value that nothing depends on has no result.
    """
    used = set(reserved) | {v.name for v in program.inputs} | assigned(program.statements)
    scope = Scope({}, used)
    adjoint = _Adjoint(scope)
    cotangents = []
    for role, operand in program.results:
        if isinstance(operand, Value):
            cotangent = Value(scope.fresh(f"d_{role}"), operand.axis, operand.grouped, operand.per_token)
            cotangents.append((role, cotangent))
            adjoint.add(operand, cotangent)
    active = _active(program.statements, set(wanted))
    _reverse(program.statements, adjoint, active)
    results = tuple((v.name, adjoint.gradients[v]) for v in wanted if v in adjoint.gradients)
    inputs = (*program.inputs, *(c for _, c in cotangents))
    statements = needed((*program.statements, *scope.statements), {g.name for _, g in results})
    return Program(inputs, statements, results), tuple(cotangents)


def _active(statements: tuple[Statement, ...], seeds: set[Value]) -> set[Value]:
    """Values that depend on a seed."""
    active = set(seeds)
    for s in statements:
        if isinstance(s, Assign):
            if any(a in active for a in s.args if isinstance(a, Value)) and s.op != "zeros":
                active.add(s.target)
        else:
            inner = _active(s.then, active) | _active(s.otherwise, active)
            active |= inner
    return active


def _reverse(statements: tuple[Statement, ...], adjoint: _Adjoint, active: set[Value]) -> None:
    for s in reversed(statements):
        if isinstance(s, Branch):
            _reverse_branch(s, adjoint, active)
            continue
        gradient = adjoint.gradients.get(s.target)
        if gradient is None and s.op == "scan":  # nothing but its last state is read
            gradient = adjoint.op("zeros", s.target)
        if gradient is not None and s.target in active:
            _RULES[s.op](adjoint, s, gradient)


def _reverse_branch(branch: Branch, adjoint: _Adjoint, active: set[Value]) -> None:
    """Both sides contribute to the values outside; a side that does not touch one contributes zeros."""
    if not any(t in adjoint.gradients and t in active for t in branch.targets):
        return
    sides = []
    for body in (branch.then, branch.otherwise):
        scope = adjoint.scope.nested()
        inner = _Adjoint(scope)
        inner.gradients = {t: adjoint.gradients[t] for t in branch.targets if t in adjoint.gradients}
        _reverse(body, inner, active)
        local = _targets(body)
        outside = {v: g for v, g in inner.gradients.items() if v not in local and v in active and v not in branch.targets}
        sides.append((body, scope, outside))
    touched = list(dict.fromkeys(v for _, _, outside in sides for v in outside))
    joined = {v: Value(adjoint.scope.fresh(f"d_{v.name}"), v.axis, v.grouped, v.per_token) for v in touched}
    bodies = []
    for body, scope, outside in sides:
        for v, target in joined.items():
            scope.statements.append(Assign(target, "copy", (outside[v],)) if v in outside else Assign(target, "zeros", (v,)))
        bodies.append((*body, *scope.statements))
    adjoint.scope.statements.append(Branch(branch.option, bodies[0], bodies[1], tuple(joined.values())))
    for v, target in joined.items():
        adjoint.add(v, target)


def _targets(statements: tuple[Statement, ...]) -> set[Value]:
    found: set[Value] = set()
    for s in statements:
        found |= {s.target} if isinstance(s, Assign) else set(s.targets)
    return found


Rule = Callable[[_Adjoint, Assign, Value], None]
ONE = Literal("1.0", 1.0)
HALF = Literal("0.5", 0.5)


def _times(factor: Callable[[_Adjoint, Operand, Value], Operand]) -> Rule:
    """The rule of an elementwise function whose derivative is `factor` of its argument and its value."""

    def rule(adjoint: _Adjoint, s: Assign, gradient: Value) -> None:
        adjoint.add(s.args[0], adjoint.op("mul", gradient, factor(adjoint, s.args[0], s.target)))

    return rule


def _add(adjoint: _Adjoint, s: Assign, gradient: Value) -> None:
    for arg in s.args:
        adjoint.add(arg, gradient)


def _sub(adjoint: _Adjoint, s: Assign, gradient: Value) -> None:
    adjoint.add(s.args[0], gradient)
    if isinstance(s.args[1], Value):
        adjoint.add(s.args[1], adjoint.op("neg", gradient))


def _mul(adjoint: _Adjoint, s: Assign, gradient: Value) -> None:
    left, right = s.args
    if isinstance(left, Value):
        adjoint.add(left, adjoint.op("mul", gradient, right))
    if isinstance(right, Value):
        adjoint.add(right, adjoint.op("mul", gradient, left))


def _div(adjoint: _Adjoint, s: Assign, gradient: Value) -> None:
    share = adjoint.op("div", gradient, s.args[1])
    adjoint.add(s.args[0], share)
    if isinstance(s.args[1], Value):
        adjoint.add(s.args[1], adjoint.op("neg", adjoint.op("mul", share, s.target)))


def _pow(adjoint: _Adjoint, s: Assign, gradient: Value) -> None:
    base, exponent = s.args
    if isinstance(base, Value):
        if isinstance(exponent, Literal):
            known = exponent.value
            lower: Operand = Literal(f"({exponent.text} - 1)", None) if known is None else Literal(repr(known - 1.0), known - 1.0)
        else:
            lower = adjoint.op("sub", exponent, ONE)
        slope = adjoint.op("mul", adjoint.op("pow", base, lower), exponent)
        adjoint.add(base, adjoint.op("mul", gradient, slope))
    if isinstance(exponent, Value):
        log = adjoint.op("log", base, like=exponent) if isinstance(base, Value) else Literal(f"math.log({base.text})", None)
        adjoint.add(exponent, adjoint.op("mul", gradient, adjoint.op("mul", s.target, log)))


def _extremum(op: str) -> Rule:
    """Ties go to the first argument."""

    def rule(adjoint: _Adjoint, s: Assign, gradient: Value) -> None:
        left, right = s.args
        zero = Literal("0.0", 0.0)
        small, large = (left, right) if op == "min" else (right, left)
        if isinstance(left, Value):
            adjoint.add(left, adjoint.op("where<=", small, large, gradient, zero, like=gradient))
        if isinstance(right, Value):
            adjoint.add(right, adjoint.op("where<=", small, large, zero, gradient, like=gradient))

    return rule


def _where(adjoint: _Adjoint, s: Assign, gradient: Value) -> None:
    left, right, then, otherwise = s.args
    zero = Literal("0.0", 0.0)
    if isinstance(then, Value):
        adjoint.add(then, adjoint.op(s.op, left, right, gradient, zero, like=gradient))
    if isinstance(otherwise, Value):
        adjoint.add(otherwise, adjoint.op(s.op, left, right, zero, gradient, like=gradient))


def _dot(adjoint: _Adjoint, s: Assign, gradient: Value) -> None:
    """Each factor's gradient is the other factor times the gradient, summed over the axes that it lacks."""
    left, right = s.args
    assert isinstance(left, Value) and isinstance(right, Value)
    for one, other in ((left, right), (right, left)):
        if set(one.axes) >= {*gradient.axes, *other.axes}:
            spread = (move(x, Value("", one.axis, x.grouped, x.per_token), adjoint.scope) for x in (gradient, other))
            adjoint.add(one, adjoint.op("mul", *spread))
        else:
            adjoint.add(one, adjoint.op("dot", gradient, other, like=one))


def _product(adjoint: _Adjoint, s: Assign, gradient: Value) -> None:
    """Of A B: dC B^T and A^T dC."""
    left, right = s.args
    assert isinstance(left, Value) and isinstance(right, Value)
    turned = tuple(adjoint.op("turn", x, like=Value("", " ".join(reversed(x.axes)), False, True)) for x in (left, right))
    adjoint.add(left, adjoint.op("product", gradient, turned[1], like=left))
    adjoint.add(right, adjoint.op("product", turned[0], gradient, like=right))


def _moved_back(op: str) -> Rule:
    """The gradient of a move goes the other way: it is the sum over what was repeated."""

    def rule(adjoint: _Adjoint, s: Assign, gradient: Value) -> None:
        source = s.args[0]
        assert isinstance(source, Value)
        adjoint.add(source, adjoint.op(op, gradient, like=source))

    return rule


def _sum(adjoint: _Adjoint, s: Assign, gradient: Value) -> None:
    source = s.args[0]
    assert isinstance(source, Value)
    adjoint.add(source, move(gradient, source, adjoint.scope))


def last_gradient(scanned: Value) -> Value:
    """The cotangent of a scanned state after the last token, which every scan has."""
    return Value(f"d_{scanned.name}_last", scanned.axis, False, False)


def _scan(adjoint: _Adjoint, s: Assign, gradient: Value) -> None:
    """The reverse scan G_t = gradient_t + α_{t+1} G_{t+1} is the gradient of what is written; α has that times the state before."""
    decay, write, first = s.args
    assert isinstance(decay, Value) and isinstance(write, Value) and isinstance(first, Value)
    total = adjoint.op("scan_gradient", gradient, decay, last_gradient(s.target), like=s.target)
    adjoint.add(write, total)
    adjoint.add(decay, adjoint.op("mul", total, adjoint.op("before", s.target, first)))
    adjoint.add(first, adjoint.op("scan_first", total, decay, like=first))


def _before(adjoint: _Adjoint, s: Assign, gradient: Value) -> None:
    """A state before a token is the one after the token before it, or the first."""
    scanned, first = s.args
    adjoint.add(scanned, adjoint.op("later", gradient))
    assert isinstance(first, Value)
    adjoint.add(first, adjoint.op("at_first", gradient, like=first))


def _normalised(op: str) -> Rule:
    def rule(adjoint: _Adjoint, s: Assign, gradient: Value) -> None:
        adjoint.add(s.args[0], adjoint.op(op, gradient, s.args[0]))

    return rule


def _silu_slope(adjoint: _Adjoint, x: Operand, _: Value) -> Operand:
    """sigmoid(x) (1 + x (1 - sigmoid(x)))."""
    s = adjoint.op("sigmoid", x)
    return adjoint.op("mul", s, adjoint.op("add", ONE, adjoint.op("mul", x, adjoint.op("sub", ONE, s, like=s)), like=s))


def _slope(op: str) -> Callable[[_Adjoint, Operand, Value], Operand]:
    return lambda adjoint, x, _: adjoint.op(op, x)


def _tanh_slope(adjoint: _Adjoint, _: Operand, y: Value) -> Operand:
    return adjoint.op("sub", ONE, adjoint.op("mul", y, y), like=y)


def _sigmoid_slope(adjoint: _Adjoint, _: Operand, y: Value) -> Operand:
    return adjoint.op("mul", y, adjoint.op("sub", ONE, y, like=y))


_RULES: dict[str, Rule] = {
    "copy": lambda a, s, g: a.add(s.args[0], g),
    "zeros": lambda _a, _s, _g: None,
    "turn": _moved_back("turn"),
    "product": _product,
    "add": _add,
    "sub": _sub,
    "neg": lambda a, s, g: a.add(s.args[0], a.op("neg", g)),
    "mul": _mul,
    "div": _div,
    "pow": _pow,
    "min": _extremum("min"),
    "max": _extremum("max"),
    "where<": _where,
    "where<=": _where,
    "dot": _dot,
    "sum": _sum,
    "scan": _scan,
    "before": _before,
    "heads": _moved_back("sum_heads"),
    "tokens": _moved_back("sum_tokens"),
    "spread": _moved_back("sum"),
    "l2norm": _normalised("l2norm_grad"),
    "rmsnorm": _normalised("rmsnorm_grad"),
    "exp": _times(lambda _a, _x, y: y),
    "log": lambda a, s, g: a.add(s.args[0], a.op("div", g, s.args[0])),
    "log_floor": lambda a, s, g: a.add(s.args[0], a.op("div", g, a.op("floored", s.args[0]))),
    "log1p": lambda a, s, g: a.add(s.args[0], a.op("div", g, a.op("add", s.args[0], ONE))),
    "expm1": _times(lambda a, _x, y: a.op("add", y, ONE)),
    "sqrt": lambda a, s, g: a.add(s.args[0], a.op("div", a.op("mul", g, HALF), s.target)),
    "rsqrt": _times(lambda a, x, y: a.op("mul", a.op("div", y, x), Literal("-0.5", -0.5))),
    "sigmoid": _times(_sigmoid_slope),
    "logsigmoid": _times(lambda a, x, _y: a.op("sigmoid", a.op("neg", x))),
    "softplus": _times(_slope("sigmoid")),
    "silu": _times(_silu_slope),
    "relu": lambda a, s, g: a.add(s.args[0], a.op("where<", Literal("0.0", 0.0), s.args[0], g, Literal("0.0", 0.0), like=g)),
    "tanh": _times(_tanh_slope),
    "sin": _times(_slope("cos")),
    "cos": _times(lambda a, x, _y: a.op("neg", a.op("sin", x))),
    "abs": _times(_slope("sign")),
    "sign": lambda _a, _s, _g: None,
    "sign_of": lambda _a, _s, _g: None,
}
