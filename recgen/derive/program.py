"""Straight-line programs over one token's scalars, vectors and matrices: the spec's own expressions, ready to print and to differentiate.

A value is a scalar, a vector over one axis or a matrix over two, of one token and head. Three facts decide how it is stored and how its
gradient is summed: its axes, whether it is `grouped` (one per key head instead of per value head), whether it is `per_token` (a param is
not). Moving from one kind to the other is an operation of its own, so that its gradient is the right sum. Matrices have no orientation:
their axes stand in the order of the scope, and no axis stands twice.
"""

from __future__ import annotations

from dataclasses import dataclass

from recgen.lang.terms import Apply, Argument, AxisSize, Constant, Eye, OptionValue, Read, State, Term


@dataclass(frozen=True)
class Value:
    """A named value; `axis` is "" for a scalar, the names of both axes with a space between them for a matrix."""

    name: str
    axis: str
    grouped: bool
    per_token: bool

    @property
    def axes(self) -> tuple[str, ...]:
        """The names of its axes."""
        return tuple(self.axis.split())


@dataclass(frozen=True)
class Literal:
    """A number known at emission, or a run-time number by its name (a numeric option or an axis size)."""

    text: str
    value: float | None


Operand = Value | Literal


@dataclass(frozen=True)
class Assign:
    """target = op(args).

    ops: those of terms.Apply without matmul and transpose (values have no orientation here), "dot" (a product of two values summed over
    the axes that the target lacks), the moves "heads" (grouped to per value head) and "tokens" (param to per token), "spread" (to more
    axes), their sums "sum_heads", "sum_tokens" and "sum", "zeros" (like the argument), and the gradients that are no product: "l2norm_grad"
    "rmsnorm_grad" (gradient, input); "softplus_grad" "silu_grad" ... are written out in elementwise operations instead.
    In programs over the tokens of a chunk also "scan" (multiplier, write, state at the chunk's start: the states after every token),
    "before" (scanned states, state at the start: those before every token), and of their gradients "scan_gradient", "scan_first", "later"
    and "at_first".
    """

    target: Value
    op: str
    args: tuple[Operand, ...]


@dataclass(frozen=True)
class Branch:
    """`if option: then; else: otherwise`, both assigning every value of `targets`."""

    option: str
    then: tuple[Statement, ...]
    otherwise: tuple[Statement, ...]
    targets: tuple[Value, ...]


Statement = Assign | Branch


@dataclass(frozen=True)
class Program:
    """`inputs` are bound by the caller; `results` pair a role with the operand that holds it."""

    inputs: tuple[Value, ...]
    statements: tuple[Statement, ...]
    results: tuple[tuple[str, Operand], ...]

    def result(self, role: str) -> Operand:
        """The operand of this role."""
        return dict(self.results)[role]


class Scope:
    """Builds statements, giving equal terms one value; a nested scope sees its parents' values and keeps its own."""

    def __init__(self, names: dict[Term, str], used: set[str], parent: Scope | None = None, order: tuple[str, ...] = ()) -> None:
        self.statements: list[Statement] = []
        self.order = order
        self._values: dict[Term, Operand] = {}
        self._names = names
        self._used = used
        self._parent = parent

    def nested(self) -> Scope:
        """A scope for one side of a branch."""
        return Scope(self._names, self._used, self, self.order)

    def bind(self, term: Term, operand: Operand) -> None:
        """Let `term` stand for `operand`."""
        self._values[term] = operand

    def find(self, term: Term) -> Operand | None:
        """The operand that already holds this term."""
        return self._values.get(term) or (self._parent.find(term) if self._parent else None)

    def fresh(self, hint: str) -> str:
        """An unused name, from `hint`."""
        name, n = hint, 1
        while name in self._used:
            n += 1
            name = f"{hint}_{n}"
        self._used.add(name)
        return name

    def assign(self, op: str, args: tuple[Operand, ...], like: Value, hint: str) -> Value:
        """A new value of the kind of `like`."""
        target = Value(self.fresh(hint), like.axis, like.grouped, like.per_token)
        self.statements.append(Assign(target, op, args))
        return target

    def joined(self, axes: set[str]) -> str:
        """The axis of a value over these axes."""
        return " ".join(sorted(axes, key=self.order.index)) if len(axes) > 1 else "".join(axes)

    def finish(self, target: Value, source: Operand, like: Value) -> None:
        """Give `source` the name `target`: directly where the last statement made it."""
        last = self.statements[-1] if self.statements else None
        if isinstance(last, Assign) and last.target == source:
            self.statements[-1] = Assign(target, last.op, last.args)
        else:
            self.statements.append(Assign(target, "copy", (source,) if isinstance(source, Value) else (source, like)))

    def hint(self, term: Term, default: str) -> str:
        """The user's own name for this term, if it has one."""
        return self._names.get(term, default)


def lower(
    roles: tuple[tuple[str, Term], ...], inputs: tuple[tuple[Term, Value], ...], names: dict[Term, str], reserved: frozenset[str]
) -> Program:
    """The program that computes every role's scalar or vector term from the inputs.

    `inputs` binds argument and read terms to values; `names` maps terms to the user's definition names; `reserved` names are not used.
    """
    scope = Scope(names, set(reserved) | {v.name for _, v in inputs})
    for term, value in inputs:
        scope.bind(term, value)
    results = tuple((role, lower_term(term, scope)) for role, term in roles)
    return Program(tuple(v for _, v in inputs), tuple(scope.statements), results)


def lower_term(term: Term, scope: Scope) -> Operand:
    """The operand holding `term`, adding the statements that it needs."""
    found = scope.find(term)
    if found is not None:
        return found
    operand = _lower_new(term, scope)
    scope.bind(term, operand)
    return operand


def _lower_new(term: Term, scope: Scope) -> Operand:
    match term:
        case Constant(value):
            return Literal(repr(value), value)
        case AxisSize(axis):
            return Literal(axis, None)
        case OptionValue(name):
            return Literal(name, None)
        case Apply("transpose", (arg,)):
            return lower_term(arg, scope)
        case Apply("matmul", (left, right)):
            return _lower_product(left, right, term, scope)
        case Apply("select", (then, otherwise), _, option):
            return _lower_select(term, option, then, otherwise, scope)
        case Apply(op, args):
            operands = tuple(lower_term(a, scope) for a in args)
            if all(isinstance(o, Literal) for o in operands):
                return fold(op, operands)
            return _elementwise(op, operands, scope, scope.hint(term, HINTS.get(op, op.rstrip("<="))))
        case Argument() | Read() | State() | Eye():
            raise AssertionError(f"unbound {term}")


_INFINITIES = {"inf": "math.inf", "-inf": "(-math.inf)"}
"""Numbers that Python has other names for."""

HINTS = {"mul": "product", "div": "quotient", "add": "total", "sub": "difference", "neg": "minus", "where<": "chosen", "where<=": "chosen"}


def fold(op: str, operands: tuple[Operand, ...]) -> Literal:
    """An operation on numbers alone, kept as an expression of Python; without its functions, whose names values may have."""
    texts = [_INFINITIES.get(o.text, o.text) for o in operands if isinstance(o, Literal)]
    symbols = {"add": "+", "sub": "-", "mul": "*", "div": "/", "pow": "**"}
    if op in symbols:
        return Literal(f"({texts[0]} {symbols[op]} {texts[1]})", None)
    if op == "neg":
        return Literal(f"(-{texts[0]})", None)
    if op in ("min", "max"):
        return Literal(f"({texts[0]} if {texts[0]} {'<' if op == 'min' else '>'} {texts[1]} else {texts[1]})", None)
    if op.startswith("where"):
        return Literal(f"({texts[2]} if {texts[0]} {op[5:]} {texts[1]} else {texts[3]})", None)
    if op == "abs":
        return Literal(f"math.fabs({texts[0]})", None)
    formulas = {
        "sigmoid": "0.5 * (1.0 + math.tanh(0.5 * {0}))",
        "softplus": "({0} if {0} > 0.0 else 0.0) + math.log1p(math.exp(-math.fabs({0})))",
        "logsigmoid": "({0} if {0} < 0.0 else 0.0) - math.log1p(math.exp(-math.fabs({0})))",
        "rsqrt": "{0} ** -0.5",
        "silu": "0.5 * {0} * (1.0 + math.tanh(0.5 * {0}))",
        "relu": "({0} if {0} > 0.0 else 0.0)",
        "sign": "(1.0 if {0} > 0.0 else -1.0 if {0} < 0.0 else 0.0)",
        "sign_of": "(-1.0 if {0} < 0 else 1.0)",
        "log_floor": "math.log(math.fabs({0}) if math.fabs({0}) > 2.0**-60 else 2.0**-60)",
    }
    return Literal(f"({formulas.get(op, f'math.{op}({{0}})').format(texts[0])})", None)


def _lower_product(left: Term, right: Term, term: Apply, scope: Scope) -> Operand:
    a, b = lower_term(left, scope), lower_term(right, scope)
    if left.shape[1] != "1" and isinstance(a, Value) and isinstance(b, Value):
        grouped, per_token = a.grouped and b.grouped, a.per_token or b.per_token
        a, b = (move(x, Value("", x.axis, grouped, per_token), scope) for x in (a, b))
        target = Value("", scope.joined(set(term.shape) - {"1"}), grouped, per_token)
        return scope.assign("dot", (a, b), target, scope.hint(term, "dot"))
    return _elementwise("mul", (a, b), scope, scope.hint(term, "product"))


def _elementwise(op: str, operands: tuple[Operand, ...], scope: Scope, hint: str) -> Value:
    aligned = align(operands, scope)
    like = next(o for o in aligned if isinstance(o, Value))
    axis = "" if op == "sum" else like.axis
    return scope.assign(op, aligned, Value("", axis, like.grouped, like.per_token), hint)


def align(operands: tuple[Operand, ...], scope: Scope) -> tuple[Operand, ...]:
    """The operands brought to one kind: same axis, same heads, all per token or none."""
    values = [o for o in operands if isinstance(o, Value)]
    axis = scope.joined({a for v in values for a in v.axes})
    grouped = all(v.grouped for v in values)
    per_token = any(v.per_token for v in values)
    return tuple(move(o, Value("", axis, grouped, per_token), scope) if isinstance(o, Value) else o for o in operands)


def move(value: Value, to: Value, scope: Scope) -> Value:
    """The value as one of the kind of `to`, each step a statement of its own."""
    if to.per_token and not value.per_token:
        value = _cached("tokens", value, Value("", value.axis, value.grouped, True), scope)
    if value.grouped and not to.grouped:
        value = _cached("heads", value, Value("", value.axis, False, value.per_token), scope)
    if to.axis != value.axis:
        value = _cached("spread", value, Value("", to.axis, value.grouped, value.per_token), scope)
    return value


def _cached(op: str, value: Value, like: Value, scope: Scope) -> Value:
    key = Apply(op, (Argument(value.name, "value", (like.axis, "1")),), (like.axis, "1"))
    found = scope.find(key)
    if isinstance(found, Value):
        return found
    out = scope.assign(op, (value,), like, f"{value.name}_{op}")
    scope.bind(key, out)
    return out


def _lower_select(term: Term, option: str, then: Term, otherwise: Term, scope: Scope) -> Operand:
    sides = (scope.nested(), scope.nested())
    operands = [lower_term(t, s) for t, s in zip((then, otherwise), sides, strict=True)]
    values = [o for o in operands if isinstance(o, Value)]
    if not values:
        texts = [o.text for o in operands if isinstance(o, Literal)]
        return Literal(f"({texts[0]} if {option} else {texts[1]})", None)
    axis = scope.joined({a for v in values for a in v.axes})
    kind = Value("", axis, all(v.grouped for v in values) and len(values) == 2, any(v.per_token for v in values) or len(values) < 2)
    target = Value(scope.fresh(scope.hint(term, "chosen")), kind.axis, kind.grouped, kind.per_token)
    for operand, side in zip(operands, sides, strict=True):
        source = move(operand, kind, side) if isinstance(operand, Value) else operand
        side.finish(target, source, values[0])
    scope.statements.append(Branch(option, tuple(sides[0].statements), tuple(sides[1].statements), (target,)))
    return target


def complete(program: Program, roles: tuple[tuple[str, Term], ...]) -> Program:
    """The program with every result moved to one value per token and value head, a vector where its term is one."""
    scope = Scope({}, set(assigned(program.statements)) | {v.name for v in program.inputs})
    results: list[tuple[str, Operand]] = []
    for (role, operand), (_, term) in zip(program.results, roles, strict=True):
        wanted = Value("", next((a for a in term.shape if a != "1"), ""), False, True)
        results.append((role, move(operand, wanted, scope) if isinstance(operand, Value) else operand))
    return Program(program.inputs, (*program.statements, *scope.statements), tuple(results))


def assigned(statements: tuple[Statement, ...]) -> frozenset[str]:
    """Every name that statements assign, inside branches too."""
    names: set[str] = set()
    for s in statements:
        if isinstance(s, Assign):
            names.add(s.target.name)
        else:
            names |= {t.name for t in s.targets} | assigned(s.then) | assigned(s.otherwise)
    return frozenset(names)


def mentioned(statements: tuple[Statement, ...]) -> frozenset[str]:
    """Every value that statements read."""
    names: set[str] = set()
    for s in statements:
        if isinstance(s, Assign):
            names |= {a.name for a in s.args if isinstance(a, Value)}
        else:
            names |= mentioned(s.then) | mentioned(s.otherwise)
    return frozenset(names)


def needed(statements: tuple[Statement, ...], wanted: set[str]) -> tuple[Statement, ...]:
    """The statements without those whose values nobody uses; `wanted` grows by what the rest reads."""
    out: list[Statement] = []
    for s in reversed(statements):
        if isinstance(s, Assign):
            if s.target.name in wanted:
                out.append(s)
                wanted |= {a.name for a in s.args if isinstance(a, Value)}
            continue
        targets = tuple(t for t in s.targets if t.name in wanted)
        if targets:
            then_wanted, other_wanted = set(wanted), set(wanted)
            then, otherwise = needed(s.then, then_wanted), needed(s.otherwise, other_wanted)
            wanted |= then_wanted | other_wanted
            out.append(Branch(s.option, then, otherwise, targets))
    return tuple(reversed(out))
